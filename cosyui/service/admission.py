"""Who is next: two bounded first-in, first-out lines, short takes and long jobs, each with its place in the engine.

The engine works on one of them at a time: a long job lets the waiting short takes go first at the border of each of its
segments, and gets one segment between two of them (`cosyui.engine.lanes`).
"""

from __future__ import annotations

import math

from cosyui.service.job import Job
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

    ``size`` bounds each line, ``places`` is how many of each may be in the engine.
    """

    def __init__(self, size: int, places: int = 1) -> None:
        self.size = size
        self.places = places
        self.rtf = MovingAverage()
        self.waiting: list[Job] = []
        self.running: list[Job] = []

    def line(self, long: bool) -> list[Job]:
        """Those who wait in one line."""
        return [job for job in self.waiting if job.request.long == long]

    def check(self, long: bool = False) -> None:
        """Raises QueueFullError if one more job would have to wait and there is no room to wait."""
        waiting = self.line(long)
        if self._has_place(long) or len(waiting) < self.size:
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
        self._fill()

    def position(self, job: Job) -> int:
        """1 for the next one in its line; 0 when it has its place."""
        return self.line(job.request.long).index(job) + 1 if job in self.waiting else 0

    def eta(self, job: Job) -> float | None:
        """Estimated seconds until a waiting job gets its place; None before any speed was measured."""
        line = self.line(job.request.long)
        before = line[: line.index(job)] if job in line else []
        own = self._in_place(job.request.long)
        speech = sum(other.ahead_seconds for other in own) + sum(other.expected_seconds for other in before)
        return self.work_seconds(speech + self._others_seconds(job.request.long, len(own) + len(before)))

    def left(self, job: Job) -> float | None:
        """Estimated seconds until a running job is done; None before any speed was measured."""
        others = self._others_seconds(True, 1) if job.request.long else 0.0
        return self.work_seconds(job.ahead_seconds + others)

    def work_seconds(self, speech: float) -> float | None:
        """Seconds of work for ``speech`` seconds of speech at the measured RTF; None before the first measurement."""
        return None if self.rtf.value is None else speech * self.rtf.value / self.places

    def _others_seconds(self, long: bool, turns: int) -> float:
        """Speech of the other line that comes in between: short takes before a long job, or one segment a turn."""
        others = self._in_place(not long)
        if not long:
            return sum(min(other.ahead_seconds, turns * other.segment_seconds) for other in others)
        waiting = sum(other.expected_seconds for other in self.line(False))
        return sum(other.ahead_seconds for other in others) + waiting

    def _in_place(self, long: bool) -> list[Job]:
        return [job for job in self.running if job.request.long == long]

    def _has_place(self, long: bool) -> bool:
        return len(self._in_place(long)) < self.places

    def _retry_hint(self, long: bool) -> int:
        """Whole seconds until one more can wait: when the first running job of the line is done."""
        soonest = min((job.ahead_seconds for job in self._in_place(long)), default=0.0)
        seconds = self.work_seconds(soonest + self._others_seconds(long, 1))
        return max(1, math.ceil(seconds if seconds is not None else soonest))

    def _fill(self) -> None:
        for job in list(self.waiting):
            if self._has_place(job.request.long):
                self.waiting.remove(job)
                self.running.append(job)
                job.turn.set()
