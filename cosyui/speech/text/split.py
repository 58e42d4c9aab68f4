"""Cutting a normalised text into segments the model can speak in one go.

Breaks are looked for at sentence ends first, then at commas, then between words, and only inside a word when nothing
else is left. Segments are balanced: a long text gives pieces of similar length instead of full ones and a stub.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum

from cosyui.model.added_tokens import PHONES, PINYIN
from cosyui.speech.text.markup import FINALS, INITIALS, MARK_PATTERN

Count = Callable[[str], int]

_CLOSERS = "\"'”’」』）)】》"
# The lookbehinds keep a long row of the same sign from being looked at anew from each of them.
_SENTENCE_END = re.compile(rf"(?:[。！？!?；;…]++[{_CLOSERS}]*+|(?<!\.)\.++[{_CLOSERS}]*+(?=\s|$|[^\x00-\x7f]))\s*+")
_CLAUSE_END = re.compile(rf"(?:[，、：—]++[{_CLOSERS}]*+|(?<![,:])[,:]++[{_CLOSERS}]*+(?=\s|$|[^\x00-\x7f]))\s*+")
_MARK = MARK_PATTERN.pattern
_SPOKEN_MARK = (
    rf"\[(?:{'|'.join(re.escape(mark[1:-1]) for mark in sorted((*PHONES, *PINYIN), key=len, reverse=True))})\]"
)
# What a hard cut may not go through while there is another place: the marks of a word, a word of letters, a number.
_ATOM = re.compile(
    rf"(?:{_SPOKEN_MARK})+|{_MARK}|[^\W\d_\u3040-\u30ff\u3400-\u9fff]+(?:['’-][^\W\d_]+)*|\d+|.", re.DOTALL
)
_SYLLABLE = re.compile(
    rf"(?:{'|'.join(map(re.escape, INITIALS))})?(?:{'|'.join(map(re.escape, FINALS))})+|{_MARK}|.", re.DOTALL
)
_LONGEST_TOKEN = 12
_CLINGS = frozenset("的了着过吗呢吧啊呀们地得儿")


@dataclass(frozen=True)
class SplitLimits:
    """``max_tokens`` bounds every segment (as counted by the caller). The costs weigh one kind of break against another
    and against uneven lengths (the square of the relative difference from the mean).
    """

    max_tokens: int = 80
    segment_cost: float = 0.15
    clause_cost: float = 0.35
    word_cost: float = 1.5

    def __post_init__(self) -> None:
        if self.max_tokens < 1:
            raise ValueError("max_tokens must be at least 1")


class Cut(Enum):
    """What a segment ends with."""

    SENTENCE = "sentence"
    CLAUSE = "clause"
    HARD = "hard"


def last_cut(text: str) -> Cut:
    """The kind of place at which a segment was cut off, by its last sign."""
    last = MARK_PATTERN.sub("", text[-40:]).rstrip().rstrip(_CLOSERS)[-1:]
    if last and last in "。！？!?；;….":
        return Cut.SENTENCE
    return Cut.CLAUSE if last and last in "，、：—,:" else Cut.HARD


def sentence_ends(text: str) -> Iterator[int]:
    """Where its sentences end, behind the blanks that follow; not at the end of ``text``, for more of it may come."""
    return (match.end() for match in _SENTENCE_END.finditer(text) if match.end() < len(text))


@dataclass(frozen=True)
class _Unit:
    """A stretch that is not cut further; ``cost`` is that of a break after it."""

    text: str
    tokens: int
    cost: float


def split(text: str, count: Count, limits: SplitLimits | None = None) -> list[str]:
    """Segments of ``text`` in order, stripped of blanks at their ends; nothing else is lost or added.

    ``count`` gives the number of tokens of a text. Every segment has at most ``limits.max_tokens``, except that a
    single character or mark is never divided. ``count`` is called on O(n log n) characters in all.
    """
    limits = limits or SplitLimits()
    text = text.strip()
    if not text:
        return []
    if count(text) <= limits.max_tokens:
        return [text]
    units = _units(text, count, limits)
    segments: list[str] = []
    for first, last in _best_breaks(units, limits):
        segments.extend(_checked(units[first:last], count, limits))
    return [segment for segment in segments if segment]


def _checked(units: list[_Unit], count: Count, limits: SplitLimits) -> list[str]:
    """The joined units, halved again in the rare case that together they count more than one by one."""
    text = "".join(unit.text for unit in units).strip()
    if len(units) == 1 or count(text) <= limits.max_tokens:
        return [text]
    middle = len(units) // 2
    return _checked(units[:middle], count, limits) + _checked(units[middle:], count, limits)


def _units(text: str, count: Count, limits: SplitLimits) -> list[_Unit]:
    units: list[_Unit] = []
    for sentence in _cut_after(text, _SENTENCE_END):
        clauses = _cut_after(sentence, _CLAUSE_END)
        for index, clause in enumerate(clauses):
            end_cost = 0.0 if index == len(clauses) - 1 else limits.clause_cost
            pieces = _hard_cut(clause, count, limits.max_tokens)
            units.extend(_Unit(piece, size, limits.word_cost) for piece, size in pieces[:-1])
            units.append(_Unit(*pieces[-1], end_cost))
    return units


def _cut_after(text: str, pattern: re.Pattern[str]) -> list[str]:
    """``text`` cut after each match; a match at the very start joins what follows."""
    pieces: list[str] = []
    start = 0
    for match in pattern.finditer(text):
        if match.end() > start and match.start() > start:
            pieces.append(text[start : match.end()])
            start = match.end()
    if start < len(text):
        pieces.append(text[start:])
    return pieces


def _hard_cut(text: str, count: Count, limit: int) -> list[tuple[str, int]]:
    """Pieces of at most ``limit`` tokens with their sizes, by halving at the best place near the middle."""
    # So long a text is over the limit without counting: no token has that many letters, in the mean.
    size = max(1, count(text.strip())) if len(text) <= _LONGEST_TOKEN * limit else None
    if size is not None and size <= limit:
        return [(text, size)]
    place = _middle(text)
    if place is None:
        return [(text, size or max(1, count(text.strip())))]
    return _hard_cut(text[:place], count, limit) + _hard_cut(text[place:], count, limit)


def _middle(text: str) -> int | None:
    """Where to halve: at the blank nearest the middle if there is one in the middle half, else between two atoms."""
    half = len(text) / 2
    atoms = [match.start() for match in _ATOM.finditer(text)][1:]
    good = [place for place in atoms if text[place - 1].isspace() and abs(place - half) <= len(text) / 4]
    fair = [place for place in atoms if text[place] not in _CLINGS and not text[place].isspace()]
    inside = [] if atoms else [match.start() for match in _SYLLABLE.finditer(text)][1:]
    for places in (good, fair, atoms, inside):
        if places:
            return min(places, key=lambda place: abs(place - half))
    return None


def _best_breaks(units: list[_Unit], limits: SplitLimits) -> list[tuple[int, int]]:
    """Ranges of units that make up the segments, by dynamic programming over the units.

    A segment never exceeds the limit and every unit has at least one token, so at most ``max_tokens`` predecessors are
    looked at per unit.
    """
    total = sum(unit.tokens for unit in units)
    target = total / math.ceil(total / limits.max_tokens)
    best = [0.0] + [math.inf] * len(units)
    origin = [0] * (len(units) + 1)
    for end in range(1, len(units) + 1):
        size = 0
        break_cost = units[end - 1].cost if end < len(units) else 0.0
        for start in range(end - 1, -1, -1):
            size += units[start].tokens
            if size > limits.max_tokens and start < end - 1:
                break
            cost = best[start] + (size / target - 1.0) ** 2 + break_cost + limits.segment_cost
            if cost < best[end]:
                best[end], origin[end] = cost, start
    ranges: list[tuple[int, int]] = []
    end = len(units)
    while end > 0:
        ranges.append((origin[end], end))
        end = origin[end]
    return ranges[::-1]
