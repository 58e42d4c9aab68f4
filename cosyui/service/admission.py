"""Who is next: a bounded first-in, first-out queue in front of a fixed number of places in the engine."""

from __future__ import annotations

import math

from cosyui.service.estimate import MovingAverage
from cosyui.service.job import Job
from cosyui.service.types import QueueFullError


class AdmissionQueue:
    """Single-loop. A job is in it from `enter` to `leave`; its ``turn`` event is set when it gets a place."""

    def __init__(self, size: int, places: int = 1) -> None:
        self.size = size
        self.places = places
        self.rtf = MovingAverage()
        self.waiting: list[Job] = []
        self.running: list[Job] = []

    def check(self) -> None:
        """Raises QueueFullError if one more job would have to wait and there is no room to wait."""
        if len(self.running) < self.places or len(self.waiting) < self.size:
            return
        raise QueueFullError.make(len(self.waiting), self._retry_hint())

    def enter(self, job: Job) -> None:
        """Give it a place, or queue it.

        Raises:
            QueueFullError: there is no room; the job is not in.
        """
        self.check()
        self.waiting.append(job)
        self._fill()

    def leave(self, job: Job) -> None:
        """Free what it holds, in whatever state it is; a job that is not in is ignored."""
        for jobs in (self.waiting, self.running):
            if job in jobs:
                jobs.remove(job)
        self._fill()

    def position(self, job: Job) -> int:
        """1 for the next one; 0 when it has its place."""
        return self.waiting.index(job) + 1 if job in self.waiting else 0

    def eta(self, job: Job) -> float | None:
        """Estimated seconds until a waiting job gets its place; None before any speed was measured."""
        ahead = self.waiting[: self.waiting.index(job)] if job in self.waiting else []
        speech = sum(other.ahead_seconds for other in self.running) + sum(other.expected_seconds for other in ahead)
        return self.work_seconds(speech)

    def work_seconds(self, speech: float) -> float | None:
        """Seconds of work for ``speech`` seconds of speech at the measured RTF; None before the first measurement."""
        return None if self.rtf.value is None else speech * self.rtf.value / self.places

    def _retry_hint(self) -> int:
        """Whole seconds until one more can wait: when the first running job is done."""
        soonest = min((job.ahead_seconds for job in self.running), default=0.0)
        seconds = self.work_seconds(soonest)
        return max(1, math.ceil(seconds if seconds is not None else soonest))

    def _fill(self) -> None:
        while self.waiting and len(self.running) < self.places:
            job = self.waiting.pop(0)
            self.running.append(job)
            job.turn.set()
