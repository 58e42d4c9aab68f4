"""Who is worked on when long jobs must not hold up short takes, nor short takes starve long jobs.

At most ``width`` things are in work at a time. A short take is done in one go. A long job is put aside at the border
between two of its segments when a short take waits for its place, and gets one segment between two short takes. Within
a lane it is first come, first served.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Generic, Protocol, TypeVar

from cosyui.engine.request import SynthesisRequest


class Work(Protocol):
    """Something to do for a request."""

    @property
    def request(self) -> SynthesisRequest: ...


W = TypeVar("W", bound=Work)


class Lanes(Generic[W]):
    """All work of an engine, begun or not; the lane is that of `SynthesisRequest.long`."""

    def __init__(self, width: int = 1) -> None:
        self.width = width
        self._short: deque[W] = deque()
        self._long: deque[W] = deque()
        self._running: list[W] = []
        self._at_border: list[W] = []
        self._turn_of_long = False

    def __len__(self) -> int:
        return len(self._running) + len(self._short) + len(self._long)

    def __iter__(self) -> Iterator[W]:
        """What is in work first, then what waits, short takes before long jobs."""
        yield from self._running
        yield from self._short
        yield from self._long

    def add(self, work: W) -> None:
        (self._long if work.request.long else self._short).append(work)

    def running(self) -> list[W]:
        """What to go on with, oldest first: long jobs at a border have made way, and free places are filled."""
        for work in self._at_border:
            if self._short and len(self._running) == self.width:
                self._running.remove(work)
                self._long.appendleft(work)
        self._at_border.clear()
        while len(self._running) < self.width and (self._short or self._long):
            long_first = self._long and (self._turn_of_long or not self._short)
            self._running.append((self._long if long_first else self._short).popleft())
        return list(self._running)

    def border(self, work: W) -> None:
        """``work`` has ended a segment and could be put aside."""
        if work.request.long and work in self._running:
            self._turn_of_long = False
            self._at_border.append(work)

    def remove(self, work: W) -> None:
        """It is done with, well or not."""
        if work in self._at_border:
            self._at_border.remove(work)
        if work in self._running:
            self._running.remove(work)
            self._turn_of_long = not work.request.long
        else:
            (self._long if work.request.long else self._short).remove(work)

    def find(self, request_id: str) -> W | None:
        return next((work for work in self if work.request.id == request_id), None)

    def clear(self) -> None:
        self._running.clear()
        self._at_border.clear()
        self._short.clear()
        self._long.clear()
