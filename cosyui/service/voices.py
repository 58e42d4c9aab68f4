"""The voices that people saved, together with those that are built in."""

from __future__ import annotations

import hashlib
import logging
import re
import secrets
import threading
import time
from collections.abc import Callable, Sequence

from cosyui.engine.request import Mode
from cosyui.errors import ConflictError, CosyuiError, InputError, MissingError, RightsError
from cosyui.notice import Notice
from cosyui.ops.logs import log
from cosyui.service import checks, remarks
from cosyui.service.clips import ClipStore
from cosyui.service.types import FormError
from cosyui.service.voice_files import VoiceFiles
from cosyui.service.voice_names import BuiltInVoices, VoiceData
from cosyui.service.voice_record import ID_PATTERN, Voice, VoiceForm, clean_words, name_key, normal
from cosyui.service.voice_zip import pack, unpack
from cosyui.settings import Settings
from cosyui.speech.clip.intake import prepare, read_source, wav_bytes

logger = logging.getLogger(__name__)


class SavedVoices:
    """`load` once, then use; blocking, from any thread. ``problems`` tells of what `load` could not read.

    A name or an id finds a voice, a name as it is written; names differ by more than capitals, also from built-in
    ones. ``by`` is who asks, by the beginning of its key's hash, and empty where nobody has a key: with keys, a voice
    is changed and removed by its maker alone, and one without a maker by everybody. ``on_remove`` is told the id of
    what was removed, for those who made copies; it must not raise.
    """

    def __init__(self, settings: Settings, clips: ClipStore) -> None:
        self.problems: tuple[Notice, ...] = ()
        self.on_remove: Callable[[str], None] = lambda voice_id: None
        self._settings = settings
        self._clips = clips
        self._files = VoiceFiles(settings.voices_folder)
        self._built_in = BuiltInVoices()
        self._lock = threading.Lock()  # for who writes; who reads has a dictionary that never changes
        self._voices: dict[str, Voice] = {}

    def load(self) -> None:
        """Read what was saved. Never raises: what cannot be read is left out, told and left alone."""
        with self._lock:
            try:
                found, damaged = self._files.read_all()
            except OSError as error:
                log(logger, logging.ERROR, "voices_unread", reason=error.strerror)
                self.problems = (remarks.voices_unread(self._files.root, error),)
                return
            self._voices = {}
            for voice in found:
                try:
                    self._check_name(voice.name)
                except CosyuiError as error:
                    damaged[voice.id] = error.message
                else:
                    self._voices[voice.id] = voice
            for voice_id, reason in damaged.items():
                log(logger, logging.ERROR, "voice_damaged", voice=voice_id, reason=reason)
            reasons = [f"{voice_id} ({reason})" for voice_id, reason in damaged.items()]
            self.problems = (remarks.voices_damaged(reasons),) if reasons else ()

    def find(self, name: str) -> VoiceData | None:
        """Raises MissingError ``voice_broken``."""
        built_in = self._built_in.find(name)
        if built_in is not None:
            return built_in
        voices, wanted = self._voices, normal(name)
        voice = voices.get(name) or next((voice for voice in voices.values() if voice.name == wanted), None)
        if voice is None:
            return None
        try:
            return VoiceData(self._clip(voice), voice.transcript, voice.language)
        except MissingError:
            if voice.id not in self._voices:  # removed meanwhile
                return None
            raise

    def key(self, name: str) -> str:
        """What a voice goes by for good: the name of a built-in one, the id of a saved one; empty if there is none."""
        if self._built_in.find(name) is not None:
            return name
        wanted = normal(name)
        return next((key for key, voice in self._voices.items() if name == key or voice.name == wanted), "")

    def list(self) -> Sequence[str]:
        return (*self._built_in.list(), *(voice.name for voice in self._voices.values()))

    def all(self) -> tuple[Voice, ...]:
        """The saved ones, the oldest first."""
        return tuple(self._voices.values())

    def get(self, voice_id: str) -> Voice:
        """Raises MissingError ``voice_not_found``."""
        voice = self._voices.get(voice_id)
        if voice is None:
            message = "There is no saved voice of this id; perhaps it was deleted. Choose another."
            raise MissingError("voice_not_found", message, "voice")
        return voice

    def clip(self, voice_id: str) -> bytes:
        """WAV file of its clip, to be listened to. Raises MissingError ``voice_not_found`` or ``voice_broken``."""
        return self._clip(self.get(voice_id))

    def add(self, form: VoiceForm) -> Voice:
        """Check a form and save its voice; takes up to a second.

        Raises FormError with every problem of the form and its field, ConflictError ``voice_name_taken`` or
        ``voices_full``, and CosyuiError ``voice_not_stored``.
        """
        self._check_room()
        words, problems = clean_words(vars(form), self._settings)
        wav, seconds = b"", 0.0
        try:
            wav, seconds = self._prepared(form)
        except InputError as problem:
            problems.append(problem)
        if problems:
            raise FormError(problems)
        voice = Voice(
            **words.model_dump(),
            id=f"voice_{secrets.token_hex(12)}",
            created=int(time.time()),
            maker=form.maker,
            clip=hashlib.sha256(wav).hexdigest(),
            seconds=round(seconds, 3),
        )
        with self._lock:
            self._check_room()
            self._check_name(voice.name)
            try:
                self._files.write(voice, wav)
            except OSError as error:
                raise self._not_stored(error) from error
            self._voices = {**self._voices, voice.id: voice}
        log(logger, logging.INFO, "voice_saved", voice=voice.id)
        return voice

    def change(
        self,
        voice_id: str,
        *,
        name: str | None = None,
        transcript: str | None = None,
        language: str | None = None,
        consent: str | None = None,
        by: str = "",
    ) -> Voice:
        """Other words for a voice; None leaves what is there, a ``language`` of ``""`` means any.

        Raises as `get` and `add` do, and RightsError ``voice_not_yours``.
        """
        asked = {"name": name, "transcript": transcript, "language": language, "consent": consent}
        with self._lock:
            old = self._own(voice_id, by)
            changes = {field: text for field, text in asked.items() if text is not None}
            words, problems = clean_words(old.model_dump() | changes, self._settings)
            if problems:
                raise FormError(problems)
            self._check_name(words.name, besides=old)
            voice = old.model_copy(update=words.model_dump())
            try:
                self._files.replace(voice)
            except OSError as error:
                raise self._not_stored(error) from error
            self._voices = {**self._voices, voice.id: voice}
        return voice

    def remove(self, voice_id: str, by: str = "") -> None:
        """Delete all of it. Requests that were taken in keep what they have.

        Raises MissingError ``voice_not_found``, RightsError ``voice_not_yours`` and CosyuiError ``voice_not_removed``.
        """
        with self._lock:
            voice = self._own(voice_id, by)
            try:
                self._files.put_away(voice.id)
                self._voices = {key: other for key, other in self._voices.items() if key != voice.id}
                self._clips.forget(voice.clip)
                self.on_remove(voice.id)
                self._files.sweep(voice.id)
            except OSError as error:
                message = f"The voice could not be deleted ({error.strerror}); look at {self._files.root}."
                raise CosyuiError("voice_not_removed", message) from error
        log(logger, logging.INFO, "voice_removed", voice=voice.id)

    def export(self, voice_id: str) -> bytes:
        """A ZIP file for `import_`. Raises as `clip` does."""
        voice = self.get(voice_id)
        return pack(voice, self._clip(voice))

    def import_(self, data: bytes, *, name: str = "", maker: str = "") -> Voice:
        """A new voice from an exported one, under another ``name`` if one is given; checked as in `add`.

        Raises as `add` does, and InputError ``voice_file_invalid``, field ``file``.
        """
        words, clip = unpack(data, self._clips.limits.max_bytes)
        return self.add(
            VoiceForm(name or words.name, clip, words.transcript, words.language, words.consent, maker=maker)
        )

    def _prepared(self, form: VoiceForm) -> tuple[bytes, float]:
        """The clip as it will be used, and its length. What is kept must pass the same checks again."""
        limits = self._clips.limits
        source = read_source(form.clip, limits.max_bytes)
        mode = Mode.ZERO_SHOT if form.transcript.strip() else Mode.CROSS_LINGUAL
        if self._clips.outdated(hashlib.sha256(source).hexdigest(), form.transcript):
            message = "This is the transcript of the whole recording. Type or transcribe what the cut clip says."
            raise InputError("transcript_stale", message, "transcript")
        prompt, _ = prepare(source, limits, cut_over=checks.cut_over(mode, self._settings))
        wav = wav_bytes(prompt)
        prepare(read_source(wav, limits.max_bytes), limits)
        return wav, prompt.seconds

    def _clip(self, voice: Voice) -> bytes:
        try:
            return self._files.clip(voice)
        except (OSError, ValueError) as error:
            log(logger, logging.ERROR, "voice_broken", voice=voice.id, reason=str(error))
            message = "The clip of this voice is damaged or gone. Delete the voice and save it again."
            raise MissingError("voice_broken", message, "voice") from error

    def _own(self, voice_id: str, by: str) -> Voice:
        voice = self.get(voice_id)
        if by and voice.maker and by != voice.maker:
            message = "Another key saved this voice: it can be used, and neither changed nor deleted."
            raise RightsError("voice_not_yours", message, "voice")
        return voice

    def _check_room(self) -> None:
        if len(self._voices) >= self._settings.voices_max:
            message = f"{len(self._voices)} voices are saved, which is the limit. Delete one first."
            raise ConflictError("voices_full", message)

    def _check_name(self, name: str, besides: Voice | None = None) -> None:
        key = name_key(name)
        others = [voice.name for voice in self._voices.values() if besides is None or voice.id != besides.id]
        if re.fullmatch(ID_PATTERN, key) or key in {name_key(other) for other in (*self._built_in.list(), *others)}:
            message = "There is a voice of this name already, or the name looks like an id. Choose another."
            raise ConflictError("voice_name_taken", message, "name")

    def _not_stored(self, error: OSError) -> CosyuiError:
        message = (
            f"The voice could not be stored ({error.strerror}): free some space, make its folder {self._files.root} "
            "writable, or choose another one with COSYUI_VOICES_DIR."
        )
        return CosyuiError("voice_not_stored", message)
