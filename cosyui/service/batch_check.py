"""All lines of a batch are looked at before the first is made: voices, texts, options. Blocking."""

from __future__ import annotations

import re
from collections.abc import Mapping

from cosyui.engine.request import EngineFacts, Mode
from cosyui.errors import CosyuiError, InputError, MissingError
from cosyui.service import checks
from cosyui.service.batch_lines import BatchError, Line, LineError, Parsed
from cosyui.service.types import TakeForm
from cosyui.service.voice_names import VoiceData
from cosyui.service.voice_record import ID_PATTERN
from cosyui.service.voices import SavedVoices
from cosyui.settings import Settings


class Checker:
    """``facts``: of the loaded model, None while nothing is known of it."""

    def __init__(self, settings: Settings, voices: SavedVoices, facts: EngineFacts | None) -> None:
        self._settings = settings
        self._voices = voices
        self._facts = facts
        self._found: dict[str, tuple[str, str, VoiceData]] = {}

    def check(self, parsed: Parsed, cast: Mapping[str, str], default: str, *, script: bool) -> tuple[Line, ...]:
        """The lines, each with its voice: its own, that of its name in the ``cast``, or the ``default``.

        ``script``: whoever speaks in it must be in the cast. Raises BatchError with every problem, and InputError
        ``batch_empty`` or ``batch_too_long``.
        """
        most = self._settings.batch_lines
        if not parsed.lines and not parsed.problems:
            raise InputError("batch_empty", "There is no line to speak. Type a dialogue, or choose a file.", "lines")
        if len(parsed.lines) + len(parsed.problems) > most:
            message = f"The batch has more than {most} lines, which is the limit. Split it."
            raise InputError("batch_too_long", message, "lines")
        problems, lines = list(parsed.problems), []
        for line in parsed.lines:
            voiced, wrong = self._line(line, cast, default, script=script)
            lines.append(voiced)
            problems += wrong
        if problems:
            raise BatchError(problems)
        return tuple(lines)

    def _line(self, line: Line, cast: Mapping[str, str], default: str, *, script: bool) -> tuple[Line, list[LineError]]:
        if script and line.name and not cast.get(line.name):
            message = f"{line.name!r} has no voice. Choose one in the cast, or write the name as it stands there."
            return line, [LineError("speaker_unknown", message, "cast", line.number)]
        asked = line.voice or cast.get(line.name, "") or default
        problems: list[InputError] = []
        try:
            name, key, voice = self._voice(asked)
        except CosyuiError as error:
            problems.append(InputError(error.code, error.message, error.field))
            name, key, voice = asked, "", VoiceData(b"", "any")
        form = form_of(line, voice)
        problems += checks.form_problems(form, self._settings)
        if form.mode is Mode.INSTRUCT and self._facts is not None and not self._facts.instruct_supported:
            message = "The loaded model follows no instructions. Leave them away, or load the released model."
            problems.append(InputError("instruct_unsupported", message, "instruction"))
        wrong = [LineError(one.code, one.message, one.field, line.number) for one in problems]
        return line.model_copy(update={"voice": name, "voice_key": key}), wrong

    def _voice(self, name: str) -> tuple[str, str, VoiceData]:
        """Its name, what it goes by for good, and its data; looked up once.

        Raises InputError ``voice_missing`` and MissingError.
        """
        if not name:
            raise InputError("voice_missing", "The line has no voice. Name one, or choose a default voice.", "voice")
        if name not in self._found:
            key = self._voices.key(name)
            voice = find(self._voices, key or name)
            shown = self._voices.get(key).name if re.fullmatch(ID_PATTERN, key) else name
            self._found[name] = (shown, key, voice)
        return self._found[name]


def find(voices: SavedVoices, key: str) -> VoiceData:
    """Raises MissingError ``voice_not_found`` or ``voice_broken``; never gives another voice."""
    voice = voices.find(key)
    if voice is None:
        message = f"There is no voice {key[:80]!r} (any more); saved and built-in ones can be used."
        raise MissingError("voice_not_found", message, "voice")
    return voice


def form_of(line: Line, voice: VoiceData, seed: int | None = None, client: str = "") -> TakeForm:
    """Where an instruction is followed, the transcript of the clip is not read."""
    mode = Mode.ZERO_SHOT if voice.transcript.strip() else Mode.CROSS_LINGUAL
    if line.instruction:
        mode = Mode.INSTRUCT
    return TakeForm(
        text=line.text,
        mode=mode,
        clip=voice.clip,
        transcript=voice.transcript,
        instruction=line.instruction,
        speed=line.speed,
        seed=line.seed if seed is None else seed,
        language=line.language,
        client=client,
    )
