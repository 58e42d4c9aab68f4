"""All of a text's way from the user to segments in spoken form: screen, lexicon, kana, normalise, split."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from cosyui.errors import InputError
from cosyui.notice import Notice
from cosyui.speech.reading.normalise import normalise
from cosyui.speech.text.kana import to_katakana
from cosyui.speech.text.language import language_spans
from cosyui.speech.text.lexicon import Lexicon
from cosyui.speech.text.markup import ALL_MARKS, join, map_between_marks
from cosyui.speech.text.passages import CLAUSE_PAUSE, HARD_CUT_PAUSE, SENTENCE_PAUSE, Passage
from cosyui.speech.text.screen import Screened, TextRules, has_speech, screen
from cosyui.speech.text.split import Count, Cut, SplitLimits, last_cut, split

__all__ = ["PreparedText", "Segment", "SplitLimits", "TextRules", "has_speech", "prepare", "spoken_line"]

PAUSES = {Cut.SENTENCE: SENTENCE_PAUSE, Cut.CLAUSE: CLAUSE_PAUSE, Cut.HARD: HARD_CUT_PAUSE}
"""Seconds of silence after a segment, by what it ends with."""
# What Chinese and English rules have words or pauses for; other languages have none for these signs.
_UNSPOKEN = re.compile(r"[*#`|\\^~<>{}_=\[\]]")
_SPAN_MARK = re.compile("|".join(mark for mark in ALL_MARKS if mark.startswith("<")))
_RESERVE = 4
"""Tokens of a segment that are kept free for marks which are closed and opened again at its ends."""


@dataclass(frozen=True)
class Segment:
    """A piece of text that is spoken in one go, and the seconds of silence wanted after it (0 after the last)."""

    text: str
    pause: float


@dataclass(frozen=True)
class PreparedText:
    """Segments in spoken form and in order, the language of the whole, and remarks for the user."""

    segments: tuple[Segment, ...]
    language: str
    warnings: tuple[Notice, ...]

    @property
    def text(self) -> str:
        """All that is spoken, on one line."""
        return join([segment.text for segment in self.segments])


def prepare(
    text: str,
    count: Count,
    language: str | None = None,
    limits: SplitLimits | None = None,
    *,
    rules: TextRules | None = None,
    lexicon: Lexicon | None = None,
) -> PreparedText:
    """Segments of at most ``limits.max_tokens`` tokens as ``count`` counts them, ready for the tokenizer.

    Raises InputError as `screen` does.
    """
    rules = rules or TextRules()
    screened = screen(text, rules, language)
    limits = limits or SplitLimits()
    remarks: list[Notice] = []
    segments: list[Segment] = []
    for passage in screened.passages:
        spoken = _spoken(passage, screened, lexicon, remarks)
        pieces = [piece for piece in _balanced(spoken, count, limits) if has_speech(piece)]
        segments += [Segment(piece, PAUSES[last_cut(piece)]) for piece in pieces]
        if segments:
            # A passage of signs alone leaves its pause to the one before it.
            segments[-1] = replace(segments[-1], pause=max(passage.pause, 0.0 if pieces else segments[-1].pause))
    if not segments:
        raise InputError(
            "text_nothing_to_speak" if rules.field == "text" else f"{rules.field}_missing",
            f"There is nothing to speak in the {rules.field}: type words, not only signs.",
            rules.field,
        )
    segments[-1] = replace(segments[-1], pause=0.0)
    return PreparedText(tuple(segments), screened.language, (*screened.warnings, *dict.fromkeys(remarks)))


def spoken_line(text: str, rules: TextRules, lexicon: Lexicon | None = None) -> PreparedText:
    """The whole text in spoken form as one segment, for a transcript. Raises InputError as `screen` does."""
    whole = prepare(text, len, None, SplitLimits(max_tokens=1 << 30), rules=rules, lexicon=lexicon)
    return replace(whole, segments=(Segment(whole.text, 0.0),))


def _spoken(passage: Passage, screened: Screened, lexicon: Lexicon | None, remarks: list[Notice]) -> str:
    """A passage in spoken form, each run of sentences in its own language."""
    text = lexicon.apply(passage.text) if lexicon else passage.text
    spoken: list[str] = []
    for span, language in language_spans(text, screened.language, screened.asked):
        if language == "ja":
            span = to_katakana(span, remarks)
        if language not in ("zh", "en"):
            span = map_between_marks(span, lambda part: _UNSPOKEN.sub(" ", part))
        if words := normalise(span, language).strip():
            spoken.append(words)
    return join(spoken)


def _balanced(text: str, count: Count, limits: SplitLimits) -> list[str]:
    """Segments in each of which ``<strong>`` and its like are closed, and opened again in the next."""
    if not _SPAN_MARK.search(text):
        return split(text, count, limits)
    limits = replace(limits, max_tokens=max(1, limits.max_tokens - _RESERVE))
    is_open: list[str] = []

    def follow(match: re.Match[str]) -> str:
        mark = match.group()
        if not mark.startswith("</"):
            is_open.append(mark)
        elif (partner := "<" + mark[2:]) in is_open:
            is_open.remove(partner)
        else:
            return ""  # it was opened before a pause
        return mark

    pieces: list[str] = []
    for piece in split(text, count, limits):
        head = "".join(is_open)
        piece = _SPAN_MARK.sub(follow, piece)
        pieces.append(f"{head}{piece}{''.join('</' + mark[1:] for mark in reversed(is_open))}")
    return pieces
