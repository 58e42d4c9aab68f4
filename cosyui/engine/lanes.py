"""Who is worked on next when long jobs must not hold up short takes, nor short takes starve long jobs.

One thing is in work at a time. A short take is done in one go. A long job is put aside at the border between two of its
segments when a short take waits, and gets one segment between two short takes. Within a lane it is first come, first
served.
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

    def __init__(self) -> None:
        self._short: deque[W] = deque()
        self._long: deque[W] = deque()
        self._current: W | None = None
        self._turn_of_long = False

    def __len__(self) -> int:
        return len(self._short) + len(self._long)

    def __iter__(self) -> Iterator[W]:
        yield from self._short
        yield from self._long

    def add(self, work: W) -> None:
        (self._long if work.request.long else self._short).append(work)

    def current(self) -> W | None:
        """What to go on with; None if there is nothing."""
        if self._current is None:
            long_first = self._long and (self._turn_of_long or not self._short)
            lane = self._long if long_first else self._short
            self._current = lane[0] if lane else None
        return self._current

    def border(self) -> None:
        """The current work has ended a segment and could be put aside."""
        if self._current is not None and self._current.request.long:
            self._turn_of_long = False
            self._current = None

    def remove(self, work: W) -> None:
        """It is done with, well or not."""
        if work is self._current:
            self._current = None
            self._turn_of_long = not work.request.long
        (self._long if work.request.long else self._short).remove(work)

    def find(self, request_id: str) -> W | None:
        return next((work for work in self if work.request.id == request_id), None)

    def clear(self) -> None:
        self._short.clear()
        self._long.clear()
        self._current = None
