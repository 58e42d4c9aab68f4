"""Replicas as a queue that can be computed: places whose takes get slower the more of them are at work.

Takes come at random times (Poisson). Of C places n are taken; all takes at work advance alike, and one speaks
``1 / slowness(n)`` seconds of speech a second. Who finds all places taken waits, first come first served.
"""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Curve:
    """What one replica was measured to do.

    ``speeds``: seconds of speech a second of all takes together, by how many are at work; the largest number is that of
    its places. ``first_chunks``: seconds from the begin of the work to the first sound, p95, by how many are at work.
    ``extra``: each take costs as much as so many seconds of speech more, where the speeds are those of an engine alone.
    """

    speeds: Mapping[int, float]
    first_chunks: Mapping[int, float] = field(default_factory=dict)
    extra: float = 0.0

    @property
    def places(self) -> int:
        return max(self.speeds)

    def slowness(self, takes: int) -> float:
        """Seconds of work for a second of speech of one take beside others, ``takes`` in all.

        Linear between measurements: a step of the engine costs a fixed time, and some for each row.
        """
        return _between([(count, count / self.speeds[count]) for count in sorted(self.speeds)], takes)

    def speed(self, takes: int) -> float:
        """Of all takes together, seconds of speech a second."""
        return takes / self.slowness(takes) if takes else 0.0

    def first_chunk(self, takes: int) -> float:
        """0 where nothing was measured; beyond the measurements it grows on, as it did between the last two."""
        points = sorted(self.first_chunks.items())
        if len(points) > 1 and takes > points[-1][0]:
            (left, low), (right, high) = points[-2:]
            return high + max(0.0, high - low) * (takes - right) / (right - left)
        return _between(points, takes) if points else 0.0


@dataclass(frozen=True)
class Load:
    """``per_second`` takes of ``seconds`` of speech in the mean; ``spread``: standard deviation over mean."""

    per_second: float
    seconds: float
    spread: float = 0.5

    @property
    def speech(self) -> float:
        """Seconds of speech a second."""
        return self.per_second * self.seconds

    def on(self, curve: Curve) -> Load:
        """With what each take costs there."""
        whole = self.seconds + curve.extra
        return Load(self.per_second, whole, self.spread * self.seconds / whole)


@dataclass(frozen=True)
class Bound:
    """What nineteen of twenty takes shall not exceed, seconds: ``wait`` for a place, ``first`` until the first sound.

    ``queue``: how many may wait; ``refused``: the share of takes that may find no room.
    """

    wait: float = math.inf
    first: float = math.inf
    queue: int = 1000
    refused: float = 0.001


@dataclass(frozen=True)
class Outlook:
    """Of one load on some replicas, in seconds and shares.

    ``busy``: of their speed, what is used; ``waiting``: of the takes, those that wait at all; ``takes``: at work in a
    replica, in the mean.
    """

    busy: float
    waiting: float
    wait_mean: float
    wait_p50: float
    wait_p95: float
    first_p95: float
    refused: float
    takes: float

    def holds(self, bound: Bound) -> bool:
        kept = self.wait_p95 <= bound.wait and self.first_p95 <= bound.first and self.refused <= bound.refused
        return self.busy < 1 and kept


NEVER = Outlook(math.inf, 1.0, math.inf, math.inf, math.inf, math.inf, 1.0, math.inf)
"""More speech is asked for than can be made."""


def computed(curve: Curve, load: Load, replicas: int = 1) -> Outlook:
    """For a queue without end.

    How many are at work is that of a birth-death process, exact for one replica and any spread as long as a place is
    free (takes that share a speed care for the mean only). Waiting is exact for exponential lengths, and else scaled by
    (1 + spread²) / 2, as is exact for one place.
    """
    load = load.on(curve)
    total = curve.places * replicas
    rates = [_departures(curve, load, replicas, takes) for takes in range(1, total + 1)]
    if load.per_second >= rates[-1]:
        return NEVER
    logs = list(itertools.accumulate((math.log(load.per_second / rate) for rate in rates), initial=0.0))
    top = max(logs)
    weights = [math.exp(value - top) for value in logs]
    last = load.per_second / rates[-1]
    tail = weights[-1] / (1 - last)  # all places are taken, and any number waits
    whole = sum(weights[:-1]) + tail
    waiting = tail / whole
    rest = (1 + load.spread**2) / 2 / (rates[-1] - load.per_second)
    shares = [weight / whole for weight in weights[:-1]]
    reached = list(itertools.accumulate(shares))
    crowd = min(total, bisect.bisect_left(reached, 0.95))
    takes = sum(count * share for count, share in enumerate(shares)) + total * waiting
    wait_p95 = _quantile(waiting, rest, 0.95)
    return Outlook(
        busy=load.per_second / rates[-1],
        waiting=waiting,
        wait_mean=waiting * rest,
        wait_p50=_quantile(waiting, rest, 0.5),
        wait_p95=wait_p95,
        first_p95=wait_p95 + curve.first_chunk(max(1, math.ceil(crowd / replicas))),
        refused=0.0,
        takes=takes / replicas,
    )


def _departures(curve: Curve, load: Load, replicas: int, takes: int) -> float:
    """Takes a second that end, where ``takes`` are spread evenly."""
    each, more = divmod(takes, replicas)
    return (more * curve.speed(each + 1) + (replicas - more) * curve.speed(each)) / load.seconds


def _quantile(waiting: float, rest: float, share: float) -> float:
    """Of a wait that is 0 but for a share ``waiting``, and exponential with mean ``rest`` there."""
    return rest * math.log(waiting / (1 - share)) if waiting > 1 - share else 0.0


def _between(points: Sequence[tuple[int, float]], at: int) -> float:
    """Linear between points, and as at the nearest beyond them."""
    index = bisect.bisect_left(points, (at, -math.inf))
    if index == 0:
        return points[0][1]
    if index == len(points):
        return points[-1][1]
    (left, low), (right, high) = points[index - 1], points[index]
    return low + (high - low) * (at - left) / (right - left)
