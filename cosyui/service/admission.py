"""Who is next: two bounded first-in, first-out lines, short takes and long jobs, each with its places in the engine.

The engine works on as many requests at once as it has places: a long job lets the waiting short takes go first at the
border of each of its segments, and gets one segment between two of them (`cosyui.engine.lanes`).
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import math
from collections.abc import AsyncIterator

from cosyui.service.job import Job
from cosyui.service.speed import Speed
from cosyui.service.types import QueueFullError


class MovingAverage:
    """Exponentially weighted: the newest value has weight ``weight``; ``value`` is None before the first."""

    def __init__(self, weight: float = 0.3) -> None:
        self._weight = weight
        self.value: float | None = None

    def add(self, sample: float) -> None:
        self.value = sample if self.value is None else self.value + self._weight * (sample - self.value)


class AdmissionQueue:
    """Single-loop. A job is in it from `enter` to `leave`; its ``turn`` event is set when it gets a place.

    ``size`` bounds each line, ``places`` is how many of each may be in the engine. ``speed`` is that of the service,
    ``rtf`` that of the requests that finished lately, which grows with the load.
    """

    def __init__(self, size: int, places: int = 1) -> None:
        self.size = size
        self.places = places
        self.speed = Speed()
        self.rtf = MovingAverage()
        self.waiting: list[Job] = []
        self.running: list[Job] = []
        self.held = False
        """Nobody gets a place; who is in stays, and who waits keeps waiting."""
        self._left = asyncio.Event()
        self._pausing = asyncio.Lock()

    def set_places(self, places: int) -> None:
        """There are more places now, or fewer: then those who are in stay in."""
        self.places = max(1, places)
        self._fill()

    def line(self, long: bool) -> list[Job]:
        """Those who wait in one line."""
        return [job for job in self.waiting if job.request.long == long]

    def check(self, long: bool = False) -> None:
        """Raises QueueFullError if one more job would have to wait and there is no room to wait."""
        waiting = self.line(long)
        if (len(self._in_place(long)) < self.places and not self.held) or len(waiting) < self.size:
            return
        raise QueueFullError.make(len(waiting), self._retry_hint(long))

    def enter(self, job: Job) -> None:
        """Give it a place, or queue it.

        Raises:
            QueueFullError: there is no room; the job is not in.
        """
        self.check(job.request.long)
        self.waiting.append(job)
        self._fill()

    def leave(self, job: Job) -> None:
        """Free what it holds, in whatever state it is; a job that is not in is ignored."""
        for jobs in (self.waiting, self.running):
            if job in jobs:
                jobs.remove(job)
        self._left.set()
        self._fill()

    def hold(self) -> None:
        """Give no more places until `release`."""
        self.held = True

    def release(self) -> None:
        self.held = False
        self._fill()

    async def emptied(self) -> None:
        """Wait until nobody has a place."""
        while self.running:
            self._left.clear()
            await self._left.wait()

    @contextlib.asynccontextmanager
    async def paused(self, patience: float) -> AsyncIterator[None]:
        """Nobody gets a place meanwhile, who waits keeps his; one at a time.

        Begins when those who have a place are done, or after ``patience`` seconds: then they go on.
        """
        async with self._pausing:
            self.hold()
            try:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(patience):
                        await self.emptied()
                yield
            finally:
                self.release()

    def position(self, job: Job) -> int:
        """1 for the next one in its line; 0 when it has its place."""
        return self.line(job.request.long).index(job) + 1 if job in self.waiting else 0

    def outlook(self) -> dict[Job, tuple[int, float | None]]:
        """Position and estimated seconds until it gets its place, of each that waits; see `eta`."""
        found: dict[Job, tuple[int, float | None]] = {}
        for long in (False, True):
            line = self.line(long)
            starts = self._starts(long) if line else []
            for number, (job, start) in enumerate(zip(line, starts, strict=False), 1):
                found[job] = (number, self._seconds(start))
        return found

    def eta(self, job: Job) -> float | None:
        """Estimated seconds until a waiting job gets its place; None before any speed was measured."""
        return self.outlook()[job][1] if job in self.waiting else self._seconds(0.0)

    def left(self, job: Job) -> float | None:
        """Estimated seconds until a running job is done; None before any speed was measured.

        All that are at work advance alike. Where nobody waits for a place, those with less to do make room on the way.
        """
        ahead, long = job.ahead_seconds, job.request.long
        crowded = len(self.running) > self.places
        beside = self._in_place(long) if crowded else self.running
        work = sum(min(ahead, other.ahead_seconds) for other in beside if other is not job) + ahead
        if self.waiting or work > ahead * self.places:
            work = ahead * min(self.places, len(beside))
        if long and (crowded or self.waiting):
            work += self._short_work()
        return self.speed.seconds(work, self._load(len(self.running)))

    def _starts(self, long: bool) -> list[float]:
        """Seconds of speech that a place makes until each of a line has its own, in their order; and until one more.

        Each takes the place that is free first. After a short take comes one segment of a long job, if there is one;
        before a long job all short takes are made, by all places together.
        """
        own, line = self._in_place(long), self.line(long)
        places = [0.0] * self.places
        others = [] if long else self._in_place(True)
        between = max((other.segment_seconds for other in others), default=0.0)
        left = sum(other.ahead_seconds for other in others)
        starts = []
        for work in [*(job.ahead_seconds for job in own), *(job.expected_seconds for job in line)]:
            turn = min(between, left)
            left -= turn
            starts.append(places[0])
            heapq.heapreplace(places, places[0] + work + turn)
        starts.append(places[0])
        before = self._short_work() / self.places if long else 0.0
        return [start + before for start in starts[len(own) :]]

    def _seconds(self, speech: float) -> float | None:
        """For a place to make ``speech`` while all places are taken; None before any speed was measured."""
        return self.speed.seconds(speech * self.places, self.places)

    def _load(self, jobs: int) -> int:
        return max(1, min(self.places, jobs))

    def _short_work(self) -> float:
        """Speech of all short takes."""
        running = sum(job.ahead_seconds for job in self._in_place(False))
        return running + sum(job.expected_seconds for job in self.line(False))

    def _in_place(self, long: bool) -> list[Job]:
        return [job for job in self.running if job.request.long == long]

    def _retry_hint(self, long: bool) -> int:
        """Whole seconds until one more can wait: when the first of the line gets its place."""
        speech = self._starts(long)[0]
        seconds = self._seconds(speech)
        return max(1, math.ceil(speech if seconds is None else seconds))

    def _fill(self) -> None:
        if self.held:
            return
        for long in (False, True):
            free = max(0, self.places - len(self._in_place(long)))
            for job in self.line(long)[:free]:
                self.waiting.remove(job)
                self.running.append(job)
                job.turn.set()
