"""What is known of a batch: what was asked for, which never changes, and how far it is."""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Sequence
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from cosyui.engine.request import SAMPLE_RATE
from cosyui.service.batch_lines import Line
from cosyui.service.checks import SEED_LIMIT
from cosyui.speech.estimate import speech_seconds

ID_PATTERN = r"^batch_[0-9a-f]{24}$"
BatchState = Literal["working", "stopped", "paused", "done"]
"""``paused``: by trouble that all lines would have; ``done``: every line was made, or has failed."""


class LineState(BaseModel):
    """``samples`` and ``parts`` (see `RequestStats`) once it is done; ``code`` and ``message`` once it has failed."""

    status: Literal["waiting", "done", "failed"] = "waiting"
    seed: int
    samples: int = 0
    parts: tuple[tuple[int, int], ...] = ()
    code: str | None = None
    message: str | None = None

    @property
    def seconds(self) -> float:
        return self.samples / SAMPLE_RATE


class Order(BaseModel):
    """``owner`` may see it, by the hash of a name or key; ``client`` is who it counts for in the queue.

    ``created``: seconds since 1970; ``pause``: seconds between two lines.
    """

    model_config = ConfigDict(frozen=True)

    id: str = Field(pattern=ID_PATTERN)
    owner: str
    client: str
    created: int
    pause: float
    lines: tuple[Line, ...]


class Progress(BaseModel):
    """``code`` and ``message``: why it is paused."""

    state: BatchState = "working"
    code: str | None = None
    message: str | None = None
    lines: list[LineState]


class Batch:
    """``revision`` grows with every change; ``changed``: when that was, on the monotonic clock, in this process."""

    def __init__(self, order: Order, progress: Progress) -> None:
        self.order = order
        self.progress = progress
        self.revision = 0
        self.changed = -math.inf

    @classmethod
    def new(cls, owner: str, client: str, lines: Sequence[Line], pause: float) -> Batch:
        """Seeds that nobody named are drawn here, once."""
        order = Order(
            id=f"batch_{secrets.token_hex(12)}",
            owner=owner,
            client=client,
            created=int(time.time()),
            pause=pause,
            lines=tuple(lines),
        )
        seeds = (secrets.randbelow(SEED_LIMIT) if line.seed is None else line.seed for line in lines)
        return cls(order, Progress(lines=[LineState(seed=seed) for seed in seeds]))

    @property
    def id(self) -> str:
        return self.order.id

    @property
    def state(self) -> BatchState:
        return self.progress.state

    def touch(self) -> None:
        self.revision += 1
        self.changed = time.monotonic()

    def counts(self) -> dict[str, int]:
        """Lines by status."""
        every = [line.status for line in self.progress.lines]
        return {status: every.count(status) for status in ("done", "failed", "waiting")}

    def left(self) -> list[int]:
        """Places in the batch of the lines that are not done."""
        return [index for index, line in enumerate(self.progress.lines) if line.status != "done"]

    def expected_left(self) -> float:
        """Estimated seconds of speech that are not made."""
        pairs = zip(self.order.lines, self.progress.lines, strict=True)
        return sum(speech_seconds(line.text, line.speed) for line, state in pairs if state.status == "waiting")

    @property
    def seconds(self) -> float:
        """Of speech that is made."""
        return sum(line.seconds for line in self.progress.lines)
