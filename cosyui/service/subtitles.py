"""Subtitles in SRT and WebVTT, whose times are places in the sound."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from cosyui.engine.request import SAMPLE_RATE

_BORDERS = (
    (re.compile(r"[.!?…][\"'”’)\]]*(?=\s)|[。！？…]+[”’」』）]*"), 0.0),
    (re.compile(r"[,;:—–](?=\s)|[，；：、]"), 0.15),
    (re.compile(r"(?=\s)|(?<=[\u3040-\u30ff\u3400-\u9fff])"), 0.3),
)
"""Where a text may be cut, and what share of a piece a better place may be further away."""


@dataclass(frozen=True)
class Cue:
    """``begin`` and ``end`` in samples."""

    begin: int
    end: int
    speaker: str
    text: str


def cues(text: str, speaker: str, begin: int, samples: int, parts: Sequence[tuple[int, int]]) -> Iterator[Cue]:
    """Of one line, which begins at ``begin`` and has ``samples``. ``parts`` as in `RequestStats`: the line is cut where
    the sound of each ends; without them it is one cue.
    """
    ends = [end for end, _ in parts if 0 < end <= samples]
    if len(ends) != len(parts) or ends != sorted(set(ends)) or not ends:
        parts, ends = [(samples, 1)], [samples]
    ends[-1] = samples
    start, waiting = 0, 0
    for piece, end in zip(split_like(" ".join(text.split()), [size for _, size in parts]), ends, strict=True):
        if piece:
            yield Cue(begin + start, begin + end, speaker, piece)
            start = end
        waiting = end
    assert waiting == samples


def split_like(text: str, sizes: Sequence[int]) -> list[str]:
    """As many pieces as ``sizes``, about as long in proportion, cut at ends of sentences where one is near."""
    total, average = sum(sizes) or 1, len(text) / len(sizes)
    places = {match.end(): cost for pattern, cost in reversed(_BORDERS) for match in pattern.finditer(text)}
    pieces, last, done = [], 0, 0
    for size in sizes[:-1]:
        done += size
        wanted = len(text) * done / total
        open_places = [place for place in places if last < place < len(text)]
        cut = min(open_places, key=lambda place: abs(place - wanted) / average + places[place], default=last)
        pieces.append(text[last:cut].strip())
        last = cut
    return [*pieces, text[last:].strip()]


def srt(given: Iterable[Cue]) -> str:
    """Numbered blocks with a blank line between."""
    return "".join(
        f"{number}\n{_time(cue.begin, ',')} --> {_time(cue.end, ',')}\n{_named(cue)}\n\n"
        for number, cue in enumerate(given, 1)
    )


def vtt(given: Iterable[Cue]) -> str:
    """Who speaks stands in a voice tag."""
    return "WEBVTT\n\n" + "".join(
        f"{_time(cue.begin, '.')} --> {_time(cue.end, '.')}\n{_voiced(cue)}\n\n" for cue in given
    )


def _named(cue: Cue) -> str:
    text = cue.text.replace("-->", "→")
    return f"{cue.speaker}: {text}".replace("-->", "→") if cue.speaker else text


def _voiced(cue: Cue) -> str:
    text = html.escape(cue.text, quote=False)
    return f"<v {html.escape(cue.speaker, quote=False)}>{text}" if cue.speaker else text


def _time(samples: int, mark: str) -> str:
    milliseconds = round(1000 * samples / SAMPLE_RATE)
    seconds, rest = divmod(milliseconds, 1000)
    return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}{mark}{rest:03}"
