"""Figures over time in a fixed amount of memory: fine for the last minutes, coarse for the last day; gaps stay gaps.

Inside counts monotonic time only, so that a wall clock that jumps moves nothing; labels are made when asked for.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Span = Literal["quarter", "hour", "day"]
SPANS: dict[Span, tuple[float, float]] = {"quarter": (900.0, 1.0), "hour": (3600.0, 5.0), "day": (86_400.0, 60.0)}
"""Seconds that are kept, and seconds of one bucket."""
MOST_SERIES = 256
"""About 37 KB each."""


@dataclass(frozen=True)
class Curve:
    """Figures of one span: ``times`` (n,) are the starts of the buckets in seconds since the epoch, ``step`` apart, as
    the wall clock counts now; ``mean`` and ``peak`` hold (n,) values by name. NaN where nothing was measured.
    """

    times: NDArray[np.float64]
    step: float
    mean: dict[str, NDArray[np.float32]]
    peak: dict[str, NDArray[np.float32]]


class _Ring:
    """Buckets of ``step`` seconds; each knows by its number whether it is of this round."""

    def __init__(self, seconds: float, step: float, series: int) -> None:
        self.step = step
        self.size = math.ceil(seconds / step)
        self._numbers = np.full(self.size, -1, np.int64)
        self._sum: NDArray[np.float32] = np.zeros((self.size, series), np.float32)
        self._count: NDArray[np.int32] = np.zeros((self.size, series), np.int32)
        self._peak: NDArray[np.float32] = np.zeros((self.size, series), np.float32)

    @property
    def nbytes(self) -> int:
        return self._numbers.nbytes + self._sum.nbytes + self._count.nbytes + self._peak.nbytes

    def widen(self, series: int) -> None:
        more = ((0, 0), (0, series - self._sum.shape[1]))
        self._sum = np.pad(self._sum, more)
        self._count = np.pad(self._count, more)
        self._peak = np.pad(self._peak, more)

    def add(self, now: float, columns: NDArray[np.intp], values: NDArray[np.float32]) -> None:
        number = int(now // self.step)
        slot = number % self.size
        if self._numbers[slot] != number:
            self._numbers[slot] = number
            self._sum[slot], self._count[slot], self._peak[slot] = 0, 0, -np.inf
        self._sum[slot, columns] += values
        self._count[slot, columns] += 1
        self._peak[slot, columns] = np.maximum(self._peak[slot, columns], values)

    def read(
        self, now: float, columns: Sequence[int]
    ) -> tuple[NDArray[np.float64], NDArray[np.float32], NDArray[np.float32]]:
        """Starts of all buckets up to ``now``, their means and peaks (n, columns)."""
        last = int(now // self.step)
        numbers = np.arange(last - self.size + 1, last + 1)
        slots = numbers % self.size
        here = np.ix_(slots, np.asarray(columns, np.intp))
        count = np.where((self._numbers[slots] == numbers)[:, None], self._count[here], 0)
        mean = np.where(count > 0, self._sum[here] / np.maximum(count, 1), np.nan).astype(np.float32)
        peak = np.where(count > 0, self._peak[here], np.nan).astype(np.float32)
        return (numbers * self.step).astype(np.float64), mean, peak


class History:
    """Up to ``MOST_SERIES`` named figures. ``interval`` is how far apart samples are: no bucket is shorter.

    One writer; its calls and those of readers take turns on one thread.
    """

    def __init__(self, interval: float = 1.0) -> None:
        self._names: dict[str, int] = {}
        self._width = 16
        self._rings = {
            span: _Ring(seconds, max(step, interval), self._width) for span, (seconds, step) in SPANS.items()
        }

    @property
    def names(self) -> tuple[str, ...]:
        """In the order of their first values."""
        return tuple(self._names)

    @property
    def nbytes(self) -> int:
        """Memory of all buckets."""
        return sum(ring.nbytes for ring in self._rings.values())

    def record(self, now: float, values: Mapping[str, float | None]) -> None:
        """Take figures in at the monotonic time ``now``, never earlier than the last; None and NaN are gaps.

        Names beyond ``MOST_SERIES`` are left out.
        """
        given = [(name, value) for name, value in values.items() if value is not None and math.isfinite(value)]
        kept = [(column, value) for name, value in given if (column := self._column(name)) is not None]
        columns = np.array([column for column, _ in kept], np.intp)
        numbers = np.array([value for _, value in kept], np.float32)
        for ring in self._rings.values():
            ring.add(now, columns, numbers)

    def read(self, span: Span, now: float, wall: float, names: Iterable[str] | None = None) -> Curve:
        """The curves of ``names`` (default: all) at the monotonic time ``now``, which is ``wall`` on the wall clock.

        A name that never had a value gives NaN.
        """
        wanted = list(self._names if names is None else names)
        ring = self._rings[span]
        known = [name for name in wanted if name in self._names]
        starts, mean, peak = ring.read(now, [self._names[name] for name in known])
        empty = np.full(ring.size, np.nan, np.float32)
        means, peaks = (dict(zip(known, table.T, strict=True)) for table in (mean, peak))
        return Curve(
            times=wall - now + starts,
            step=ring.step,
            mean={name: means.get(name, empty) for name in wanted},
            peak={name: peaks.get(name, empty) for name in wanted},
        )

    def _column(self, name: str) -> int | None:
        if name not in self._names:
            if len(self._names) == MOST_SERIES:
                return None
            if len(self._names) == self._width:
                self._width *= 2
                for ring in self._rings.values():
                    ring.widen(self._width)
            self._names[name] = len(self._names)
        return self._names[name]


class Recent:
    """The last figures of a kind, for their quantiles: those of ``seconds``, at most ``most`` of them."""

    def __init__(self, seconds: float = 300.0, most: int = 1024) -> None:
        self._seconds = seconds
        self._times = np.full(most, -np.inf)
        self._values = np.zeros(most)
        self._next = 0

    def add(self, now: float, value: float) -> None:
        """``now`` in monotonic seconds."""
        self._times[self._next], self._values[self._next] = now, value
        self._next = (self._next + 1) % len(self._times)

    def quantiles(self, now: float, *shares: float) -> tuple[float | None, ...]:
        """For each of ``shares`` (0 to 1); None when there was nothing of late."""
        values = self._values[self._times > now - self._seconds]
        if not len(values):
            return (None,) * len(shares)
        return tuple(float(value) for value in np.quantile(values, shares))
