"""A cleaned text in passages: stretches that are spoken without a longer pause inside, and the pause after each."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest

from cosyui.speech.text.markdown import Kind, Line
from cosyui.speech.text.tags import MAX_PAUSE, PAUSE, pause_of

# Seconds of silence between two segments, beside what the voice itself leaves at its ends.
SENTENCE_PAUSE = 0.3
CLAUSE_PAUSE = 0.2
HARD_CUT_PAUSE = 0.1
PARAGRAPH_PAUSE = 0.5
HEADING_PAUSE = 0.6

_END_MARKS = "。！？；，、：…!?;,:."
_PROSE_ENDS = "。！？，.!?,”…"
_NUMBER = r"[零〇一二三四五六七八九十百千\d]{1,7}"
_CHAPTER = re.compile(
    rf"(?i)第\s*{_NUMBER}\s*(?:章|[节節回卷部篇集幕讲講课課话話季](?!\w)).{{0,30}}|"
    r"(?:chapter|part|section|book|act|scene|episode|lesson|unit|volume)\s+(?:\d{1,4}|[ivxlc]{1,6}|one|two|three|four|"
    r"five|six|seven|eight|nine|ten)\b.{0,60}|"
    r"序章?|序言|楔子|前言|引言|引子|后记|後記|尾声|尾聲|番外|目录|目錄|摘要|附录|附錄|结语|"
    r"preface|prologue|epilogue|introduction|foreword|afterword|abstract|appendix|contents"
)
_LONGEST_TITLE = 24
_SHORT_PARAGRAPH = 5
_WIDE = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7a3]")


@dataclass(frozen=True)
class Passage:
    """``text`` may have several lines, each of which ends a sentence; ``pause`` seconds of silence follow it."""

    text: str
    pause: float


@dataclass(frozen=True)
class _Stop:
    """A wish for silence between two lines; an ``exact`` one is the user's own and has the last word."""

    seconds: float
    exact: bool = False


def passages(lines: list[Line]) -> list[Passage]:
    """Cut at headings, at blank lines and at the pauses that the text asks for; no passage is empty.

    A paragraph of a few words goes together with the next one: so short a segment comes out badly. A pause before or
    after the whole text is none.
    """
    found: list[Passage] = []
    block: list[str] = []
    stops: list[_Stop] = []
    for part in _parts(lines):
        if isinstance(part, _Stop):
            stops.append(part)
            continue
        if block and stops and not _goes_on(block, stops):
            found.append(Passage("\n".join(block), _pause(stops)))
            block = []
        stops = []
        block.append(part)
    return [*found, Passage("\n".join(block), 0.0)] if block else found


def _parts(lines: list[Line]) -> Iterator[str | _Stop]:
    """Lines of text and the stops between them, in order."""
    for index, line in enumerate(lines):
        if line.kind is Kind.GAP:
            yield _Stop(PARAGRAPH_PAUSE)
            continue
        is_heading = line.kind is Kind.HEADING or _is_title(lines, index)
        if is_heading:
            yield _Stop(PARAGRAPH_PAUSE)
        pauses = [_Stop(pause_of(char), exact=True) for char in PAUSE.findall(line.text)]
        for text, pause in zip_longest(PAUSE.split(line.text), pauses):
            if text.strip():
                yield text.strip()
            if pause:
                yield pause
        if is_heading:
            yield _Stop(HEADING_PAUSE)


def _goes_on(block: list[str], stops: list[_Stop]) -> bool:
    """Whether a block is too short a paragraph to stand alone."""
    is_paragraph = all(stop == _Stop(PARAGRAPH_PAUSE) for stop in stops)
    return is_paragraph and sum(map(_weight, block)) < _SHORT_PARAGRAPH


def _pause(stops: list[_Stop]) -> float:
    exact = [stop.seconds for stop in stops if stop.exact]
    return min(MAX_PAUSE, sum(exact)) if exact else max(stop.seconds for stop in stops)


def _is_title(lines: list[Line], index: int) -> bool:
    """Whether a line of plain text is a heading: a chapter's, or a short one without end mark over prose."""
    text = lines[index].text
    if not text or text[-1] in _END_MARKS or PAUSE.search(text):
        return False
    following = next((line for line in lines[index + 1 : index + 3] if line.text), None)
    if following is None:
        return False
    if _CHAPTER.fullmatch(text):
        return True
    opens = index == 0 or lines[index - 1].kind is Kind.GAP
    over_prose = following.kind is Kind.TEXT and following.text[-1] in _PROSE_ENDS
    weight = _weight(text)
    return opens and over_prose and weight <= _LONGEST_TITLE and _weight(following.text) > 1.5 * weight


def _weight(text: str) -> float:
    """Length of a text in Han characters; a letter of other scripts is a third of one."""
    wide = len(_WIDE.findall(text))
    return wide + (len(text) - wide) / 3
