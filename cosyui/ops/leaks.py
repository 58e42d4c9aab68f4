"""Whether memory grows with every request, and with which kind of them: a verdict on the last rows of the journal."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cosyui.ops.journal_file import Row

MIB = 1 << 20
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Watch:
    """A column that must not grow: by ``slope`` bytes a request and ``growth`` bytes in all it may, that is noise.

    ``shared``: it is one figure for all engines; otherwise each engine has its own.
    """

    column: str
    name: str
    slope: float
    growth: float
    shared: bool = False


WATCHED = (
    Watch("allocated_after", "GPU memory that PyTorch has allocated", 16 << 10, 4 * MIB),
    Watch("reserved_after", "GPU memory that PyTorch has reserved", 256 << 10, 64 * MIB),
    Watch("engine_rss_after", "Memory of the engine's process", 100_000, 16 * MIB),
    Watch("page_rss_after", "Memory of the page's process", 100_000, 16 * MIB, shared=True),
)
LEAST, MOST = 40, 300
"""Rows that a verdict needs, and at most looks at: the last ones."""
PARTS = 4
"""A leak grows in each of so many parts of the time; a step, as of a warm-up, in one or two."""
PART_SHARE = 0.3
"""Of an even growth: what each part has to show of it."""
CERTAIN = 3.3
"""Standard deviations: one false alarm in some thousand verdicts on noise."""
COLLINEAR = 0.9
"""Correlation from which on load and time cannot be told apart: then there is no verdict."""
KINDS = ("mode", "stream", "long", "precision", "outcome", "code", "client", "engine")
AMOUNTS = {"retries": "segments made again", "redone": "pieces made again in float32"}
Kind = tuple[str, str, NDArray[np.bool_]]
"""The code of a kind of requests, its words, and which requests are of it."""
SUSPICIOUS = 4.0
"""Standard errors by which requests of a kind must grow memory more than the others."""


@dataclass(frozen=True)
class Suspect:
    """``what`` goes with the growth: requests of that kind add ``each`` bytes, the others ``otherwise``.

    ``code``: kind (``what`` is a column with its value), retries, redone, long_speech or new_prompt.
    """

    code: str
    what: str
    each: float
    otherwise: float

    def __str__(self) -> str:
        return f"{self.what} ({amount(self.each)} each, others {amount(self.otherwise)})"


@dataclass(frozen=True)
class Leak:
    """``slope`` bytes a request over ``rows`` requests, with near certainty at least ``at_least``; ``engine`` is the
    number of one among several.
    """

    column: str
    name: str
    slope: float
    at_least: float
    growth: float
    rows: int
    suspects: tuple[Suspect, ...] = ()
    engine: int | None = None

    @property
    def sentence(self) -> str:
        """How fast it grows."""
        where = "" if self.engine is None else f" (engine {self.engine})"
        return (
            f"{self.name}{where} grew by {amount(self.slope)} a request over the last {self.rows} requests, "
            f"{amount(self.growth)} in all (surely {amount(self.at_least)} a request or more)."
        )

    @property
    def reason(self) -> str:
        """That, and what it goes with; for the log."""
        if not self.suspects:
            return f"{self.sentence} No kind of request stands out."
        return f"{self.sentence} It goes with {'; '.join(map(str, self.suspects))}."


@dataclass(frozen=True)
class Trend:
    """How a watched column moves, be it a leak or not: by ``slope`` bytes a request over the last ``rows``."""

    column: str
    slope: float
    rows: int
    engine: int | None = None


def find_leaks(rows: Sequence[Row], watched: Sequence[Watch] = WATCHED) -> tuple[Leak, ...]:
    """One for each watched column that grows steadily. ``rows`` in the order in which the requests ended.

    Noise, a step (warm-up, another model, a restarted engine) and memory that follows the load are no leak.
    """
    leaks = (_find(some, watch, engine) for watch, engine, some in _apart(rows, watched))
    return tuple(leak for leak in leaks if leak is not None)


def find_trends(rows: Sequence[Row], watched: Sequence[Watch] = WATCHED) -> tuple[Trend, ...]:
    """One for each watched column with `LEAST` rows or more, and for each engine of several; load is not taken off."""
    trends = []
    for watch, engine, some in _apart(rows, watched):
        known = _known(some, watch)
        if len(known) >= LEAST:
            trends.append(Trend(watch.column, theil_sen(_column(known, watch.column))[0], len(known), engine))
    return tuple(trends)


def theil_sen(values: Floats) -> tuple[float, float]:
    """Slope of ``values`` at even distances, the median over all pairs, and a lower bound that it surely has.

    The bound is Sen's: that of the rank correlation with time, corrected for ties.
    """
    count = len(values)
    first, second = np.triu_indices(count, 1)
    slopes = np.sort((values[second] - values[first]) / (second - first))
    ties = np.unique(values, return_counts=True)[1]
    spread = (count * (count - 1) * (2 * count + 5) - (ties * (ties - 1) * (2 * ties + 5)).sum()) / 18
    rank = int((len(slopes) - CERTAIN * math.sqrt(max(0.0, spread))) / 2)
    bound = float(slopes[rank]) if rank > 0 else -math.inf
    return float(np.median(slopes)), bound


def _apart(rows: Sequence[Row], watched: Sequence[Watch]) -> Iterator[tuple[Watch, int | None, Sequence[Row]]]:
    """Each watched column with the rows to look at: those of one engine, where each has its own memory."""
    engines = sorted({row.engine for row in rows if row.engine is not None})
    for watch in watched:
        if watch.shared or len(engines) < 2:
            yield watch, None, rows
        else:
            yield from ((watch, engine, [row for row in rows if row.engine == engine]) for engine in engines)


def _known(rows: Sequence[Row], watch: Watch) -> list[Row]:
    return [row for row in rows if getattr(row, watch.column) is not None][-MOST:]


def _find(rows: Sequence[Row], watch: Watch, engine: int | None = None) -> Leak | None:
    known = _known(rows, watch)
    if len(known) < LEAST:
        return None
    raw = np.array([getattr(row, watch.column) for row in known], np.float64)
    values = _without_load(raw, _column(known, "beside"))
    if values is None:
        return None
    slope, bound = theil_sen(values)
    growth = slope * len(values)
    if bound < watch.slope or growth < watch.growth or not _steady(values, slope):
        return None
    suspects = tuple(_suspects(known, raw))
    return Leak(watch.column, watch.name, slope, bound, growth, len(values), suspects, engine)


def _steady(values: Floats, slope: float) -> bool:
    """Whether each part of the time has its share of the growth."""
    medians = np.array([np.median(part) for part in np.array_split(values, PARTS + 1)])
    return bool((np.diff(medians) > PART_SHARE * slope * len(values) / (PARTS + 1)).all())


def _without_load(values: Floats, beside: Floats) -> Floats | None:
    """What is left when the share of other requests at work is taken off; None when that share cannot be told."""
    load = np.nan_to_num(beside)
    if np.ptp(load) == 0:
        return values
    time = np.arange(len(values), dtype=np.float64)
    if abs(np.corrcoef(time, load)[0, 1]) > COLLINEAR:
        return None
    table = np.stack([np.ones_like(time), time, load], 1)
    _, _, each = np.linalg.lstsq(table, values, rcond=None)[0]
    rest: Floats = values - max(0.0, float(each)) * (load - load.mean())
    return rest


def _suspects(rows: Sequence[Row], values: Floats) -> Iterator[Suspect]:
    """Kinds of requests that the growth goes with, the surest first."""
    steps = np.diff(values)
    judged = (_judge(kind, steps) for kind in _kinds(rows[1:]))
    found = [verdict for verdict in judged if verdict is not None]
    yield from (suspect for _, suspect in sorted(found, key=lambda pair: -pair[0])[:3])


def _kinds(rows: Sequence[Row]) -> Iterator[Kind]:
    for column in KINDS:
        given = [getattr(row, column) for row in rows]
        for kind in sorted({value for value in given if value is not None}, key=str):
            yield "kind", f"{column}={str(kind).lower()}", np.array([value == kind for value in given])
    for column, words in AMOUNTS.items():
        yield column, words, np.nan_to_num(_column(rows, column)) > 0
    lengths = _column(rows, "speech_seconds")
    if not np.isnan(lengths).all():
        yield "long_speech", "long speech", lengths > np.nanmedian(lengths)
    cached = np.diff(_column(rows, "cached_prompts"), prepend=np.nan)
    new = "a prompt that is new to the cache (it is bounded: no leak if it ends)"
    yield "new_prompt", new, np.nan_to_num(cached) > 0


def _judge(kind: Kind, steps: Floats) -> tuple[float, Suspect] | None:
    """How sure it is that requests of a kind add more than the others; None if it is not."""
    code, what, which = kind
    ours, others = steps[which], steps[~which]
    if min(len(ours), len(others)) < 5:
        return None
    error = math.sqrt(ours.var(ddof=1) / len(ours) + others.var(ddof=1) / len(others))
    difference = float(ours.mean() - others.mean())
    if difference <= 0 or difference < SUSPICIOUS * error:
        return None
    return difference / max(error, 1.0), Suspect(code, what, float(ours.mean()), float(others.mean()))


def _column(rows: Sequence[Row], name: str) -> Floats:
    return np.array([np.nan if (value := getattr(row, name)) is None else value for row in rows], np.float64)


def amount(size: float) -> str:
    """Bytes of memory in words."""
    return f"{size / MIB:.1f} MiB" if abs(size) >= MIB / 10 else f"{size / 1024:.1f} KiB"
