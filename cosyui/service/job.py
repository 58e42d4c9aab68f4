"""One request on its way through the service: all of its state is here and goes with it."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field

from cosyui.engine.request import SAMPLE_RATE, RequestMemory, RequestStats, SynthesisRequest
from cosyui.notice import Notice
from cosyui.service.mailbox import Mailbox
from cosyui.service.recorder import Recorder
from cosyui.service.types import Done, JobState, Problem, Stopped

Clock = time.monotonic
SEGMENT_SECONDS = 12.0
"""Speech of a segment, before it is known how many there are."""


@dataclass(eq=False)
class Job:
    """``expected_seconds`` is the estimate of its speech, ``notices`` are remarks on its clip and transcript;
    ``stretch`` is in it: by how much takes were longer of late than their texts let expect;
    ``engine`` is the number of the one that works on it, ``attempts``: how many processes have had it. ``memory``: what
    the engine says of it at the end. ``due``: when it must be finished.

    Times are of the monotonic clock, but ``arrived`` is in seconds since the epoch.
    """

    request: SynthesisRequest
    client: str
    expected_seconds: float
    notices: tuple[Notice, ...] = ()
    stretch: float = 1.0
    recorder: Recorder = field(kw_only=True)
    due: float | None = None
    submitted: float = field(default_factory=Clock)
    arrived: float = field(default_factory=time.time)
    state: JobState = "waiting"
    mailbox: Mailbox = field(default_factory=Mailbox)
    turn: asyncio.Event = field(default_factory=asyncio.Event)
    samples: int = 0
    decoded_seconds: float = 0.0
    segments: int = 0
    retried: bool = False
    redone: bool = False
    engine: int = 0
    attempts: int = 0
    started: float | None = None
    first_chunk: float | None = None
    stats: RequestStats | None = None
    memory: RequestMemory | None = None
    final: Done | Problem | Stopped = field(default_factory=Stopped)
    closed: bool = False
    task: asyncio.Task[None] | None = None

    @property
    def id(self) -> str:
        return self.request.id

    @property
    def outcome(self) -> str:
        """``done``, ``failed`` or ``stopped``; of a closed job."""
        return {Done: "done", Problem: "failed", Stopped: "stopped"}[type(self.final)]

    @property
    def age(self) -> float:
        """Seconds since its submit."""
        return Clock() - self.submitted

    @property
    def sound_seconds(self) -> float:
        """Seconds of speech that have arrived."""
        return self.samples / SAMPLE_RATE

    @property
    def done_seconds(self) -> float:
        """Seconds of speech that are made; never less than before, also when a part is made again."""
        return max(self.decoded_seconds, self.sound_seconds)

    @property
    def ahead_seconds(self) -> float:
        """Estimated seconds of speech still to come."""
        return max(0.0, self.expected_seconds - self.done_seconds)

    @property
    def segment_seconds(self) -> float:
        """Estimated seconds of speech of one segment."""
        return self.expected_seconds / self.segments if self.segments else min(SEGMENT_SECONDS, self.expected_seconds)

    def add_progress(self, seconds: float, *, redone: bool) -> None:
        self.decoded_seconds = max(self.decoded_seconds, seconds)
        self.redone = redone

    def add_chunk(self, pcm: bytes) -> None:
        if self.first_chunk is None:
            self.first_chunk = Clock()
        self.redone = False
        self.recorder.add(pcm)
        self.samples += len(pcm) // 2

    def close(self) -> None:
        """Nothing more happens to it; figures stay for the log."""
        self.closed = True
