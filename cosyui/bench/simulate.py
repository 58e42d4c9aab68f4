"""The queue of a service take by take, in simulated time: one line for all replicas, bounded, first come first served.

A take goes to the replica with the fewest at work. All takes in a replica advance alike, at a speed that changes with
each that comes or goes; so each replica counts the seconds of speech that a take in it would have made since the start,
and a take ends when that count has grown by its length.
"""

from __future__ import annotations

import heapq
import math
import random
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from cosyui.bench.queueing import NEVER, Bound, Curve, Load, Outlook
from cosyui.bench.sentences import percentile

WARM_UP = 0.1
"""Share of the takes that come before the queue is as full as it gets on average."""


@dataclass(frozen=True)
class Arrival:
    """``moment`` in seconds, ``seconds`` of speech."""

    moment: float
    seconds: float


def arrivals(load: Load, takes: int, seed: int = 0) -> Iterator[Arrival]:
    """Poisson, with lengths of a gamma distribution; all equal for a spread of 0, exponential for 1."""
    chance, now = random.Random(seed), 0.0
    for _ in range(takes):
        now += chance.expovariate(load.per_second)
        if load.spread:
            shape = load.spread**-2
            yield Arrival(now, chance.gammavariate(shape, load.seconds / shape))
        else:
            yield Arrival(now, load.seconds)


@dataclass
class Replica:
    """``spoken``: seconds of speech of a take that would have been in it all the time, up to ``now``."""

    curve: Curve
    now: float = 0.0
    spoken: float = 0.0
    ends: list[float] = field(default_factory=list)
    """Of the takes in it, by that count; a heap."""

    def advance(self, now: float) -> None:
        if self.ends:
            self.spoken += (now - self.now) / self.curve.slowness(len(self.ends))
        self.now = now

    def next_end(self) -> float:
        """The moment when the first of its takes will have ended, if none comes before."""
        if not self.ends:
            return math.inf
        return self.now + (self.ends[0] - self.spoken) * self.curve.slowness(len(self.ends))


@dataclass
class Run:
    """What came of the takes, in the order of their coming; ``at_work``: takes in the replica of each, itself too."""

    waits: list[float] = field(default_factory=list)
    firsts: list[float] = field(default_factory=list)
    at_work: list[int] = field(default_factory=list)
    refused: int = 0
    speech: float = 0.0
    ended: float = 0.0
    """The moment of the last end."""

    def outlook(self, busy: float, warm_up: float = WARM_UP) -> Outlook:
        kept = slice(round(warm_up * len(self.waits)), None)
        waits, firsts, crowd = sorted(self.waits[kept]), sorted(self.firsts[kept]), self.at_work[kept]
        if not waits:
            return NEVER
        return Outlook(
            busy=busy,
            waiting=sum(wait > 0 for wait in waits) / len(waits),
            wait_mean=sum(waits) / len(waits),
            wait_p50=percentile(waits, 0.5),
            wait_p95=percentile(waits, 0.95),
            first_p95=percentile(firsts, 0.95),
            refused=self.refused / (self.refused + len(self.waits)),
            takes=sum(crowd) / len(crowd),
        )


def run(curve: Curve, coming: Iterable[Arrival], replicas: int = 1, queue: int = 1000) -> Run:
    """All that come, until the last has ended."""
    nodes = [Replica(curve) for _ in range(replicas)]
    ends = [math.inf] * replicas
    waiting: deque[Arrival] = deque()
    done = Run()

    def begin(take: Arrival, now: float) -> None:
        number = min(range(replicas), key=lambda number: len(nodes[number].ends))
        node = nodes[number]
        node.advance(now)
        heapq.heappush(node.ends, node.spoken + take.seconds + curve.extra)
        ends[number] = node.next_end()
        done.waits.append(now - take.moment)
        done.at_work.append(len(node.ends))
        done.firsts.append(now - take.moment + curve.first_chunk(len(node.ends)))
        done.speech += take.seconds

    def end_until(moment: float) -> None:
        while (now := min(ends)) <= moment and now < math.inf:
            number = ends.index(now)
            node = nodes[number]
            node.advance(now)
            heapq.heappop(node.ends)
            ends[number] = node.next_end()
            done.ended = now
            if waiting:
                begin(waiting.popleft(), now)

    for take in coming:
        end_until(take.moment)
        if sum(len(node.ends) for node in nodes) < replicas * curve.places:
            begin(take, take.moment)
        elif len(waiting) < queue:
            waiting.append(take)
        else:
            done.refused += 1
    end_until(math.inf)
    return done


def simulated(
    curve: Curve, load: Load, replicas: int = 1, bound: Bound | None = None, takes: int = 20_000, seed: int = 0
) -> Outlook:
    """As `queueing.computed`, by a run of so many takes."""
    busy = load.on(curve).speech / (replicas * curve.speed(curve.places))
    queue = (bound or Bound()).queue
    return run(curve, arrivals(load, takes, seed), replicas, queue).outlook(busy)


def closed(curve: Curve, lengths: Sequence[float], clients: int) -> float:
    """Seconds until all are made by one replica, where each client sends its next take when one has ended."""
    node, left = Replica(curve), list(reversed(lengths))
    while left or node.ends:
        while left and len(node.ends) < min(curve.places, clients):
            heapq.heappush(node.ends, node.spoken + left.pop() + curve.extra)
        node.advance(node.next_end())
        heapq.heappop(node.ends)
    return node.now


def replicas_for(
    curve: Curve, load: Load, bound: Bound, spare: int = 0, takes: int = 20_000, seed: int = 0, most: int = 10_000
) -> int | None:
    """The smallest number that keeps the bound in the simulation, and ``spare`` more; None if none does."""
    fewest = max(1, math.floor(load.on(curve).speech / curve.speed(curve.places)))
    if curve.first_chunk(1) > bound.first:
        return None
    for count in range(fewest, most + 1):
        if simulated(curve, load, count, bound, takes, seed).holds(bound):
            return count + spare
    return None
