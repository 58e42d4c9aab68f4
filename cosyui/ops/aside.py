"""Questions whose answers may be slow or never come, asked in a thread: whoever wants to know has the last answer."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")
Start = Callable[[Callable[[], None]], None]
"""Runs something, and returns before it is done."""


def in_thread(work: Callable[[], None]) -> None:
    """In a thread that keeps no process from ending: a driver may hang for ever."""
    threading.Thread(target=work, name="ops-aside", daemon=True).start()


class Aside(Generic[T]):
    """Asks at most every ``every`` seconds and never twice at once; ``clock`` gives monotonic seconds."""

    def __init__(
        self,
        question: Callable[[], T],
        every: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
        start: Start = in_thread,
    ) -> None:
        self._question = question
        self._every = every
        self._clock = clock
        self._start = start
        self._due = clock()
        self._asking = False
        self._answer: tuple[float, T] | None = None
        self.problem: str | None = None
        """Why the last question had no answer."""

    def poke(self) -> None:
        """Ask, if it is time to and no question is open."""
        now = self._clock()
        if self._asking or now < self._due:
            return
        self._asking, self._due = True, now + self._every
        try:
            self._start(lambda: self._ask(now))
        except RuntimeError as error:  # no thread to be had
            self._asking, self.problem = False, str(error)

    @property
    def age(self) -> float | None:
        """Seconds since the question was put that the last answer belongs to; None before the first answer."""
        return None if self._answer is None else self._clock() - self._answer[0]

    def get(self, limit: float = float("inf")) -> T | None:
        """The last answer, None when it is older than ``limit`` seconds or there was none."""
        answer = self._answer
        return None if answer is None or self._clock() - answer[0] > limit else answer[1]

    def _ask(self, asked: float) -> None:
        try:
            self._answer = asked, self._question()
            self.problem = None
        except Exception as error:  # noqa: BLE001  (whatever goes wrong, there is no answer, and that is told)
            self.problem = f"{type(error).__name__}: {error}"
        finally:
            self._asking = False
