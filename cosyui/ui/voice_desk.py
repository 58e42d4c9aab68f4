"""What the page does with voices, by the same rules as the API; one for all browser tabs."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import gradio as gr

from cosyui.engine.request import Mode
from cosyui.errors import CosyuiError, MissingError
from cosyui.service.service import SynthesisService
from cosyui.service.types import TakeForm
from cosyui.service.voice_names import EXAMPLE_TRANSCRIPTS, BuiltInVoices, VoiceData
from cosyui.service.voice_record import Voice, VoiceForm
from cosyui.service.voice_zip import joined
from cosyui.ui.i18n import Dictionary, Words
from cosyui.ui.voice_copies import VoiceCopies

PAGE_MAKER = "page"
"""Who made the voices of this page where the API has keys; no key's name looks like it."""
SENTENCES = {
    "en": "This is how I sound when I read something aloud.",
    "zh": "我读一句话，听听是什么声音。",
    "ja": "こんにちは、これは私の声です。",
    "ko": "안녕하세요, 이것은 제 목소리입니다.",
    "ru": "Здравствуйте, так звучит мой голос.",
    "de": "So klinge ich, wenn ich etwas vorlese.",
    "fr": "Voici ma voix quand je lis une phrase.",
    "es": "Así suena mi voz cuando leo una frase.",
    "it": "Ecco la mia voce quando leggo una frase.",
}
"""What a voice says to be heard, in its own language."""


class VoiceDesk:
    """``copies``: files that browsers fetch; they go with their voices."""

    def __init__(self, service: SynthesisService, dictionary: Dictionary, copies: VoiceCopies) -> None:
        self.voices = service.voices
        self._settings = service.settings
        self._dictionary = dictionary
        self._built_in = BuiltInVoices()
        self._copies = copies
        self.voices.on_remove = copies.drop

    def words(self, request: gr.Request) -> Words:
        return self._dictionary.of(request)

    @property
    def by(self) -> str:
        """Whoever opens the page is one client: with keys it changes what it made itself, and what nobody did."""
        return PAGE_MAKER if self._settings.api_key_digests else ""

    def locked(self, voice: Voice) -> bool:
        return bool(self.by and voice.maker and voice.maker != self.by)

    def choices(self, words: Words, chosen: str) -> list[tuple[str, str]]:
        """Of a dropdown: the own clip, the built-in voices, the saved ones; and ``chosen``, should it be gone."""
        saved = [(voice.name, voice.id) for voice in self.voices.all()]
        built_in = [(words(f"voice_built_{language}"), str(language)) for language in EXAMPLE_TRANSCRIPTS]
        choices = [(words("voice_own"), ""), *built_in, *saved]
        known = {value for _, value in choices}
        return choices if chosen in known else [*choices, (words("voice_lost"), chosen)]

    def name(self, chosen: str, words: Words) -> str:
        """As it stands in the dropdown."""
        return next(name for name, value in self.choices(words, chosen) if value == chosen)

    def look(self, chosen: str) -> Voice | VoiceData:
        """Raises MissingError ``voice_not_found``."""
        return self._built_in.find(chosen) or self.voices.get(chosen)

    async def source(self, chosen: str) -> VoiceData:
        """Clip and transcript of a chosen voice. Raises MissingError ``voice_not_found`` or ``voice_broken``."""
        found = await asyncio.to_thread(self.voices.find, chosen)
        if found is None:
            message = "There is no voice like this any more; perhaps it was deleted. Choose another."
            raise MissingError("voice_not_found", message, "voice")
        return found

    async def save(self, form: VoiceForm) -> Voice:
        """Raises as `SavedVoices.add`."""
        return await asyncio.to_thread(self.voices.add, form)

    async def change(self, voice_id: str, name: str, transcript: str, language: str, consent: str) -> Voice:
        """Raises as `SavedVoices.change`."""
        words = {"name": name, "transcript": transcript, "language": language, "consent": consent}
        return await asyncio.to_thread(self.voices.change, voice_id, **words, by=self.by)

    async def remove(self, voice_id: str) -> Voice:
        """What was deleted. Raises as `SavedVoices.remove`."""
        voice = self.voices.get(voice_id)
        await asyncio.to_thread(self.voices.remove, voice_id, self.by)
        return voice

    async def import_(self, files: Sequence[bytes], name: str) -> Voice:
        """Raises as `SavedVoices.import_`."""
        return await asyncio.to_thread(lambda: self.voices.import_(joined(files), name=name.strip(), maker=self.by))

    async def clip_file(self, voice_id: str) -> Path:
        """Raises as `SavedVoices.clip`, and CosyuiError ``voice_not_stored``."""
        return await asyncio.to_thread(lambda: self._copy(voice_id, "clip.wav", self.voices.clip(voice_id)))

    async def export_file(self, voice_id: str) -> Path:
        """Raises as `SavedVoices.export`, and CosyuiError ``voice_not_stored``."""
        return await asyncio.to_thread(lambda: self._copy(voice_id, f"{voice_id}.zip", self.voices.export(voice_id)))

    async def preview_form(self, voice_id: str, words: Words, client: str) -> TakeForm:
        """A short sentence in this voice. Raises as `source`."""
        voice = self.voices.get(voice_id)
        found = await self.source(voice_id)
        mode = Mode.ZERO_SHOT if found.transcript else Mode.CROSS_LINGUAL
        text = SENTENCES.get(voice.language or "", SENTENCES[words.language])
        return TakeForm(text, mode, found.clip, found.transcript, client=client)

    def _copy(self, voice_id: str, name: str, data: bytes) -> Path:
        try:
            path = self._copies.put(voice_id, name, data)
            self.voices.get(voice_id)
            return path
        except MissingError:  # removed meanwhile
            self._copies.drop(voice_id)
            raise
        except OSError as error:
            message = f"A copy of the voice for your browser could not be written ({error.strerror}): free some space."
            raise CosyuiError("voice_not_stored", message) from error
