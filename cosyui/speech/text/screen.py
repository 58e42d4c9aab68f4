"""The one gate for every text from outside, whatever field and route it comes by: cleaned, or refused with a code."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from cosyui.errors import InputError
from cosyui.notice import Notice
from cosyui.speech.text.language import KNOWN_LANGUAGES, LANGUAGE_NAMES, detect_language, language_code
from cosyui.speech.text.markdown import Kind, Line, plain_lines
from cosyui.speech.text.markup import ALL_MARKS, MARK_PATTERN, clean_marks, remarks
from cosyui.speech.text.passages import Passage, passages
from cosyui.speech.text.prefix import strip_prefix
from cosyui.speech.text.sanitise import sanitise
from cosyui.speech.text.tags import PAUSE, strip_tags

HARD_CHARS = 100_000
"""No text of more characters is looked at, whatever a field allows."""
MAX_TRANSCRIPT_CHARS = 600
"""30 s of fast English."""
MAX_INSTRUCTION_CHARS = 200
"""What the model was trained on is shorter; longer ones are spoken aloud."""

_SPEAKABLE = re.compile(r"[^\W_]")
# Two characters on their way to become a control token, should everything between them have gone.
_HALF_TOKEN = re.compile(r"<(?=\|)|\|(?=>)")


@dataclass(frozen=True)
class TextRules:
    """What the checkpoint and the field allow.

    ``field`` is the one that errors name: ``text``, ``transcript`` or ``instruction``. ``marks`` may stand in the text;
    ``languages`` None means any (an unusual one gives a warning), else others are refused; ``digits_language`` decides
    for a text without letters.
    """

    field: str = "text"
    max_chars: int = HARD_CHARS
    marks: frozenset[str] = ALL_MARKS
    languages: tuple[str, ...] | None = None
    digits_language: str = "zh"


@dataclass(frozen=True)
class Screened:
    """What is to be spoken, not yet in spoken form; ``asked`` is the language that the request names, if any."""

    passages: tuple[Passage, ...]
    language: str
    asked: str | None
    warnings: tuple[Notice, ...]


_WHAT_TO_DO = {
    "text": ("Type the text that should be spoken.", "Type words, not only signs."),
    "transcript": ("Type what is said in the clip, or choose the cross-lingual mode, which needs no transcript.",) * 2,
    "instruction": ("Say how it should be spoken, for example: speak happily. Or choose another mode.",) * 2,
}


def screen(text: str, rules: TextRules, language: str | None = None) -> Screened:
    """The passages of a text from outside. The same text has the same outcome wherever it is asked.

    ``language`` is what the request names, such as ``zh``; None or ``auto`` means by script and words. Raises
    InputError with ``rules.field``: ``text_empty``, ``text_nothing_to_speak``, ``text_too_long``,
    ``text_language_unsupported`` for a text; ``transcript_missing``, ``transcript_too_long``, ``instruction_missing``,
    ``instruction_too_long`` for the others; ``language_invalid`` with field ``language``.
    """
    asked = language_code(language)
    field = rules.field
    if len(text) > HARD_CHARS:
        raise _too_long(field, len(text), min(rules.max_chars, HARD_CHARS))
    clean, had_prefix = strip_prefix(sanitise(text), marked="<|" in text or "＜｜" in text)
    if len(clean) > rules.max_chars:
        raise _too_long(field, len(clean), rules.max_chars)
    if not clean:
        raise InputError("text_empty" if field == "text" else f"{field}_missing", _WHAT_TO_DO[field][0], field)
    lines, warnings = _clean_lines(clean, rules)
    found = tuple(passages(lines))
    if not any(has_speech(passage.text) for passage in found):
        code = "text_nothing_to_speak" if field == "text" else f"{field}_missing"
        raise InputError(code, f"There is nothing to speak in the {field}. {_WHAT_TO_DO[field][1]}", field)
    chosen, remark = _language("\n".join(passage.text for passage in found), asked, rules)
    if had_prefix and field == "text" and "<|" not in text:
        sentence = "Left out at the start: the words that the model itself puts before every text."
        warnings = (*warnings, Notice.of("prefix_left_out", sentence))
    return Screened(found, chosen, asked, (*warnings, *remark))


def has_speech(text: str) -> bool:
    """Whether a text has a letter, a digit or a mark such as ``[breath]``, which is all that makes sound."""
    return bool(_SPEAKABLE.search(MARK_PATTERN.sub(_sound_of, text)))


def _sound_of(mark: re.Match[str]) -> str:
    """``<strong>`` and its like change the sound of what stands between them and have none of their own."""
    return "" if mark.group()[0] == "<" else "x"


def _too_long(field: str, length: int, limit: int) -> InputError:
    advice = {"text": " Shorten or split it.", "transcript": " It must hold only what is said in the clip."}
    message = f"The {field} has {length} characters; at most {limit} are possible.{advice.get(field, '')}"
    return InputError(f"{field}_too_long", message, field)


def _clean_lines(text: str, rules: TextRules) -> tuple[list[Line], tuple[Notice, ...]]:
    removed: list[str] = []
    lines, dropped = plain_lines(strip_tags(text, removed))
    lines = lines or [Line(Kind.GAP)]
    # A pair of marks may span lines: they are judged on the whole text.
    cleaned = clean_marks("\n".join(line.text for line in lines), rules.marks, removed)
    cleaned = re.sub(" +", " ", _HALF_TOKEN.sub(" ", cleaned))
    texts = [row.strip() for row in cleaned.split("\n")]
    lines = [replace(line, text=row) for line, row in zip(lines, texts, strict=True)]
    warnings = remarks(removed)
    if dropped:
        sentence = "Left out {count} lines of program code."
        warnings = (*warnings, Notice.of("code_left_out", sentence, count=dropped))
    return lines, warnings


def _language(text: str, asked: str | None, rules: TextRules) -> tuple[str, tuple[Notice, ...]]:
    found = detect_language(PAUSE.sub("", text))
    chosen = asked or found or rules.digits_language
    if rules.languages is not None:
        # A declared language does not help if the script is one that the voice has no sounds for.
        for code in (chosen, found or chosen):
            if code not in rules.languages:
                able = " and ".join(LANGUAGE_NAMES[known] for known in rules.languages)
                message = f"This voice speaks {able}; the {rules.field} is in {LANGUAGE_NAMES.get(code, code)}."
                raise InputError("text_language_unsupported", message, rules.field)
    if chosen in KNOWN_LANGUAGES:
        return chosen, ()
    sentence = "The model was not trained on {language}; the result may not be understandable."
    return chosen, (Notice.of("language_unknown", sentence, language=LANGUAGE_NAMES.get(chosen, chosen)),)
