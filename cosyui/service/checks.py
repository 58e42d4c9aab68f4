"""What is wrong with a form, before it costs a place in the queue. Each problem names its field."""

from __future__ import annotations

from pathlib import Path

from cosyui.engine.request import Mode, PromptClip
from cosyui.errors import InputError
from cosyui.service.types import TakeForm
from cosyui.settings import Settings
from cosyui.speech.audio_in import ClipReport, load_clip
from cosyui.speech.text import has_speech, sanitise

SLOWEST, FASTEST = 0.5, 2.0
SEED_LIMIT = 1 << 31
"""Seeds are 0 <= seed < 2**31: what every random generator on the way takes."""


def text_problem(text: str, settings: Settings) -> InputError | None:
    """Empty, without anything to speak, or longer than ``max_chars``."""
    if not text.strip():
        return InputError("text_empty", "Type the text that should be spoken.", "text")
    length = len(text.strip())
    if length > settings.max_chars:
        message = f"The text has {length} characters; at most {settings.max_chars} are possible. Shorten or split it."
        return InputError("text_too_long", message, "text")
    if not has_speech(sanitise(text)):
        return InputError("text_nothing_to_speak", "The text has no letters or digits, so nothing to speak.", "text")
    return None


def transcript_problem(form: TakeForm, settings: Settings) -> InputError | None:
    """Only the 3-second clone mode reads the transcript."""
    if form.mode is not Mode.ZERO_SHOT:
        return None
    if not form.transcript.strip():
        message = "Type what is said in the clip, or choose the cross-lingual mode, which needs no transcript."
        return InputError("transcript_missing", message, "transcript")
    return _too_long("transcript", form.transcript, settings.max_transcript_chars)


def instruction_problem(form: TakeForm, settings: Settings) -> InputError | None:
    """Only the instruct mode reads the instruction."""
    if form.mode is not Mode.INSTRUCT:
        return None
    if not form.instruction.strip():
        message = "Say how it should be spoken, for example: speak happily. Or choose another mode."
        return InputError("instruction_missing", message, "instruction")
    return _too_long("instruction", form.instruction, settings.max_instruction_chars)


def number_problems(form: TakeForm) -> list[InputError]:
    problems = []
    if not SLOWEST <= form.speed <= FASTEST:
        message = f"The speed must be between {SLOWEST:g} and {FASTEST:g}; it is {form.speed:g}."
        problems.append(InputError("speed_out_of_range", message, "speed"))
    if form.seed is not None and not 0 <= form.seed < SEED_LIMIT:
        message = f"The seed must be a whole number from 0 to {SEED_LIMIT - 1}; it is {form.seed}."
        problems.append(InputError("seed_out_of_range", message, "seed"))
    return problems


def read_clip(clip: Path | bytes | None, settings: Settings) -> tuple[PromptClip, ClipReport]:
    """Decode and check a prompt clip. Blocks for some milliseconds.

    Raises:
        InputError: any of the ``clip_*`` codes, field ``clip``.
    """
    if clip is None:
        raise InputError("clip_missing", "Upload or record a clip of the voice, 3 to 30 seconds long.", "clip")
    return load_clip(
        clip,
        min_seconds=settings.clip_min_seconds,
        max_seconds=settings.clip_max_seconds,
        max_bytes=settings.clip_max_bytes,
    )


def form_problems(form: TakeForm, settings: Settings) -> list[InputError]:
    """Everything wrong with a form but its clip, in the order of the page."""
    found = [
        text_problem(form.text, settings),
        transcript_problem(form, settings),
        instruction_problem(form, settings),
    ]
    return [problem for problem in found if problem is not None] + number_problems(form)


def _too_long(field: str, text: str, limit: int) -> InputError | None:
    length = len(text.strip())
    if length <= limit:
        return None
    message = f"The {field} has {length} characters; at most {limit} are possible."
    return InputError(f"{field}_too_long", message, field)
