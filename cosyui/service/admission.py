"""Who is next: two bounded lines, short takes and long jobs, each with its places in the engine and fair to clients.

The engine works on as many requests at once as it has places: a long job lets the waiting short takes go first at the
border of each of its segments, and gets one segment between two of them (`cosyui.engine.lanes`).
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import math
from collections.abc import AsyncIterator, Iterator

from cosyui.service.fairness import Line
from cosyui.service.job import Job
from cosyui.service.speed import Speed
from cosyui.service.types import ClientQueueFullError, QueueFullError


class MovingAverage:
    """Exponentially weighted: the newest value has weight ``weight``; ``value`` is None before the first."""

    def __init__(self, weight: float = 0.3) -> None:
        self._weight = weight
        self.value: float | None = None

    def add(self, sample: float) -> None:
        self.value = sample if self.value is None else self.value + self._weight * (sample - self.value)


class AdmissionQueue:
    """Single-loop. A job is in it from `enter` to `leave`; its ``turn`` event is set when it gets a place.

    ``size`` bounds each line, ``client_size`` what one client may have in each; ``places`` is how many of each may be
    in the engine. ``waiting`` and ``running`` are in the order of their coming. ``speed`` is that of the service,
    ``rtf`` that of the requests that finished lately, which grows with the load. ``stretch``: seconds of speech that
    came of late for each that a text let expect.
    """

    def __init__(self, size: int, places: int = 1, client_size: int | None = None) -> None:
        self.size = size
        self.places = places
        self.client_size = size if client_size is None else client_size
        self.speed = Speed()
        self.rtf = MovingAverage()
        self.stretch = MovingAverage(0.1)
        self.waiting: list[Job] = []
        self.running: list[Job] = []
        self.held = False
        """Nobody gets a place; who is in stays, and who waits keeps waiting."""
        self._lines = {False: Line(), True: Line()}
        self._left = asyncio.Event()
        self._pausing = asyncio.Lock()

    def set_places(self, places: int) -> None:
        """There are more places now, or fewer: then those who are in stay in."""
        self.places = max(1, places)
        self._fill()

    def check(self, client: str, long: bool = False) -> None:
        """Raises QueueFullError if one more job of a client would have to wait and there is no room to wait."""
        if len(self._in_place(long)) < self.places and not self.held:
            return
        waiting = len(self._line(long))
        if waiting >= self.size:
            raise QueueFullError.make(waiting, self._hint(self._plan(long)))
        own = self._lines[long].waiting_of(client)
        if own >= self.client_size:
            theirs = (step for step in self._plan(long) if step[0] is not None and step[0].client == client)
            raise ClientQueueFullError.make(own, self._hint(theirs))

    def enter(self, job: Job) -> None:
        """Give it a place, or queue it.

        Raises:
            QueueFullError: there is no room; the job is not in.
        """
        self.check(job.client, job.request.long)
        self.waiting.append(job)
        self._lines[job.request.long].add(job)
        self._fill()

    def leave(self, job: Job) -> None:
        """Free what it holds, in whatever state it is; a job that is not in is ignored."""
        line = self._lines[job.request.long]
        if job in self.waiting:
            self.waiting.remove(job)
            line.remove(job)
        elif job in self.running:
            self.running.remove(job)
            line.ended(job.client)
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
        return self.outlook()[job][0] if job in self.waiting else 0

    def outlook(self) -> dict[Job, tuple[int, float | None]]:
        """Position and estimated seconds until it gets its place, of each that waits, in the order of their turns.

        Position 1 is the next one of its line; see `eta`. Takes milliseconds for thousands.
        """
        found: dict[Job, tuple[int, float | None]] = {}
        second = self._seconds(1.0)
        for long in (False, True):
            for number, (job, start) in enumerate(self._plan(long), 1):
                if job is not None:
                    found[job] = (number, None if second is None else second * start)
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

    def _plan(self, long: bool) -> Iterator[tuple[Job | None, float]]:
        """Each of a line when its turn comes, with the seconds of speech that a place makes until then; and one more.

        Each takes the place that is free first. After a short take comes one segment of a long job, if there is one;
        before a long job all short takes are made, by all places together.
        """
        own, line = self._in_place(long), self._lines[long].copy()
        # When it will be free, a number that tells equal ones apart, and whose it is until then.
        places: list[tuple[float, int, str | None]] = [(0.0, number, None) for number in range(self.places)]
        others = [] if long else self._in_place(True)
        between = max((other.segment_seconds for other in others), default=0.0)
        left = sum(other.ahead_seconds for other in others)
        before = self._short_work() / self.places if long else 0.0
        taken = 0
        while True:
            start, _, client = places[0]
            if client is not None:
                line.ended(client)
            job = own[taken] if taken < len(own) else line.take()
            if taken >= len(own):
                yield job, start + before
            if job is None:
                return
            turn = min(between, left)
            left -= turn
            taken += 1
            heapq.heapreplace(places, (start + job.ahead_seconds + turn, self.places + taken, job.client))

    def _seconds(self, speech: float) -> float | None:
        """For a place to make ``speech`` while all places are taken; None before any speed was measured."""
        return self.speed.seconds(speech * self.places, self.places)

    def _load(self, jobs: int) -> int:
        return max(1, min(self.places, jobs))

    def _short_work(self) -> float:
        """Speech of all short takes."""
        running = sum(job.ahead_seconds for job in self._in_place(False))
        return running + sum(job.expected_seconds for job in self._line(False))

    def _line(self, long: bool) -> list[Job]:
        return [job for job in self.waiting if job.request.long == long]

    def _in_place(self, long: bool) -> list[Job]:
        return [job for job in self.running if job.request.long == long]

    def _hint(self, plan: Iterator[tuple[Job | None, float]]) -> int:
        """Whole seconds until one more can wait: when the first of a plan gets its place."""
        speech = next(plan)[1]
        seconds = self._seconds(speech)
        return max(1, math.ceil(speech if seconds is None else seconds))

    def _fill(self) -> None:
        if self.held:
            return
        for long, line in self._lines.items():
            for _ in range(self.places - len(self._in_place(long))):
                job = line.take()
                if job is None:
                    break
                self.waiting.remove(job)
                self.running.append(job)
                job.turn.set()
