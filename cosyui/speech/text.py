"""All of a text's way from the user to segments in spoken form: sanitise, clean mark-up, normalise, split, check."""

from __future__ import annotations

import re
from dataclasses import dataclass

from cosyui.errors import InputError
from cosyui.notice import Notice
from cosyui.speech.markup import ALL_MARKS, MARK_PATTERN, clean_markup
from cosyui.speech.normalise import normalise
from cosyui.speech.sanitise import LANGUAGE_NAMES, detect_language, sanitise
from cosyui.speech.split import Count, SplitLimits, split

__all__ = ["PreparedText", "SplitLimits", "TextRules", "detect_language", "normalise", "prepare", "sanitise", "split"]

KNOWN_LANGUAGES = frozenset(("zh", "en", "ja", "ko", "ru", "de", "fr", "es", "it"))
"""What the released CosyVoice3 was trained on."""

_SPEAKABLE = re.compile(r"[^\W_]")


@dataclass(frozen=True)
class PreparedText:
    """Segments in spoken form and in order, the language of the whole, and warnings in plain words."""

    segments: tuple[str, ...]
    language: str
    warnings: tuple[Notice, ...]


@dataclass(frozen=True)
class TextRules:
    """What the checkpoint and the field allow.

    ``marks`` may stand in the text; ``languages`` None means any (an unusual one gives a warning), else others are
    refused; ``digits_language`` decides for a text without letters; ``field`` is the one that errors name.
    """

    marks: frozenset[str] = ALL_MARKS
    languages: tuple[str, ...] | None = None
    digits_language: str = "zh"
    max_chars: int = 20_000
    field: str = "text"


def prepare(
    text: str,
    count: Count,
    language: str | None = None,
    limits: SplitLimits | None = None,
    *,
    rules: TextRules | None = None,
) -> PreparedText:
    """Segments of at most ``limits.max_tokens`` tokens as ``count`` counts them, ready for the tokenizer.

    ``language`` is a code such as ``zh``; None or ``auto`` means by script. Raises InputError with ``rules.field``:
    ``text_empty``, ``text_nothing_to_speak``, ``text_too_long``, ``text_language_unsupported``.
    """
    rules = rules or TextRules()
    name = rules.field
    if len(text) > rules.max_chars:
        raise InputError(
            "text_too_long", f"The {name} has {len(text)} characters; {rules.max_chars} are allowed. Split it up.", name
        )
    clean = sanitise(text)
    if not clean:
        raise InputError("text_empty", f"The {name} is empty. Type what should be spoken.", name)
    clean, warnings = clean_markup(clean, rules.marks)
    chosen, language_warnings = _language(clean, language, rules)
    segments = tuple(piece for piece in split(normalise(clean, chosen), count, limits) if has_speech(piece))
    if not segments:
        raise InputError(
            "text_nothing_to_speak", f"There is nothing to speak in the {name}: type words, not only signs.", name
        )
    return PreparedText(segments, chosen, (*warnings, *language_warnings))


def has_speech(text: str) -> bool:
    """Whether a normalised text has a letter, a digit or a mark of the model, which is all that makes sound."""
    return bool(_SPEAKABLE.search(text) or MARK_PATTERN.search(text))


def _language(text: str, language: str | None, rules: TextRules) -> tuple[str, tuple[Notice, ...]]:
    asked = None if language in (None, "", "auto") else language
    found = detect_language(MARK_PATTERN.sub("", text))
    chosen = asked or found or rules.digits_language
    if rules.languages is not None:
        # A declared language does not help if the script is one that the voice has no sounds for.
        for code in (chosen, found or chosen):
            if code not in rules.languages:
                able = " and ".join(LANGUAGE_NAMES[known] for known in rules.languages)
                raise InputError(
                    "text_language_unsupported",
                    f"This voice speaks {able}; the {rules.field} is in {LANGUAGE_NAMES.get(code, code)}.",
                    rules.field,
                )
    if chosen not in KNOWN_LANGUAGES:
        name = LANGUAGE_NAMES.get(chosen, chosen)
        sentence = "The model was not trained on {language}; the result may not be understandable."
        return chosen, (Notice.of("language_unknown", sentence, language=name),)
    return chosen, ()
