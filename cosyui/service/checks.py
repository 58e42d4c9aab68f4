"""What is wrong with a form, before it costs a place in the queue. Each problem names its field."""

from __future__ import annotations

import math

from cosyui.engine.request import Mode
from cosyui.errors import InputError
from cosyui.notice import Notice
from cosyui.service.types import TakeForm
from cosyui.settings import Settings
from cosyui.speech.estimate import speech_seconds
from cosyui.speech.text.screen import TextRules, screen

SLOWEST, FASTEST = 0.5, 2.0
SEED_LIMIT = 1 << 31
"""Seeds are 0 <= seed < 2**31: what every random generator on the way takes."""
SLOWEST_SPEAKER, FASTEST_SPEAKER = 0.4, 2.0
"""How fast people speak against the usual rate; a transcript outside of this is not what the clip says."""


def text_problem(text: str, settings: Settings, language: str | None = None) -> InputError | None:
    """Empty, without anything to speak, longer than any text that is taken, or in a language that no model knows."""
    return _problem("text", text, settings.longest_text, language)


def transcript_problem(form: TakeForm, settings: Settings) -> InputError | None:
    """Only the 3-second clone mode reads the transcript."""
    if form.mode is not Mode.ZERO_SHOT:
        return None
    return _problem("transcript", form.transcript, settings.max_transcript_chars)


def instruction_problem(form: TakeForm, settings: Settings) -> InputError | None:
    """Only the instruct mode reads the instruction."""
    if form.mode is not Mode.INSTRUCT:
        return None
    return _problem("instruction", form.instruction, settings.max_instruction_chars)


def number_problems(form: TakeForm) -> list[InputError]:
    problems = []
    if not SLOWEST <= form.speed <= FASTEST:
        message = f"The speed must be between {SLOWEST:g} and {FASTEST:g}; it is {form.speed:g}."
        problems.append(InputError("speed_out_of_range", message, "speed"))
    if form.seed is not None and not 0 <= form.seed < SEED_LIMIT:
        message = f"The seed must be a whole number from 0 to {SEED_LIMIT - 1}; it is {form.seed}."
        problems.append(InputError("seed_out_of_range", message, "seed"))
    if form.deadline is not None and not 0 < form.deadline < math.inf:
        message = f"The deadline must be a number of seconds above 0; it is {form.deadline:g}."
        problems.append(InputError("deadline_invalid", message, "deadline"))
    return problems


def cut_over(mode: Mode, settings: Settings) -> float | None:
    """Seconds over which a clip is cut to its best part by itself: never where a transcript belongs to it."""
    return None if mode is Mode.ZERO_SHOT else settings.clip_max_seconds


def transcript_notice(transcript: str, spoken: float) -> Notice | None:
    """A remark when nobody could say the transcript in ``spoken`` seconds of speech, or would be done far sooner."""
    if not transcript.strip():
        return None
    expected = speech_seconds(transcript)
    if expected > FASTEST_SPEAKER * spoken:
        sentence = "The transcript takes about {expected:.0f} s to say, but the clip has {spoken:.1f} s of speech."
        code, hint = "transcript_too_much", "Leave out what is not said in the clip."
    elif expected < SLOWEST_SPEAKER * spoken:
        sentence = "The transcript takes only about {expected:.0f} s to say, but the clip has {spoken:.1f} s of speech."
        code, hint = "transcript_too_little", "Add what is missing."
    else:
        return None
    return Notice.of(code, f"{sentence} {hint}", expected=expected, spoken=spoken)


def form_problems(form: TakeForm, settings: Settings) -> list[InputError]:
    """Everything wrong with a form but its clip, in the order of the page."""
    found = [
        text_problem(form.text, settings, form.language),
        transcript_problem(form, settings),
        instruction_problem(form, settings),
    ]
    return [problem for problem in found if problem is not None] + number_problems(form)


def _problem(field: str, text: str, limit: int, language: str | None = None) -> InputError | None:
    """What the gate says that the engine passes every text through, too."""
    try:
        screen(text, TextRules(field=field, max_chars=limit), language)
    except InputError as problem:
        return problem
    return None
