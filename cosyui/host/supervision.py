"""When to start a dead engine again, and when to give up."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass


@dataclass(frozen=True)
class RestartPolicy:
    """The first restart comes at once, each further one within ``window`` seconds after a doubled pause.

    Starting again does not help after ``max_failed_starts`` lives in a row that ended before the model was loaded, or
    after more than ``max_deaths`` within the window, whatever they died of.
    """

    max_failed_starts: int = 3
    max_deaths: int = 20
    window: float = 600.0
    first_pause: float = 1.0
    longest_pause: float = 30.0


class Deaths:
    """Remembers when the process died; ``now`` is any monotonic time in seconds."""

    def __init__(self, policy: RestartPolicy) -> None:
        self._policy = policy
        self._times: deque[float] = deque()
        self._failed_starts = 0

    def record(self, now: float, loaded: bool = True) -> float | None:
        """Count a death, ``loaded`` if the model was; the pause in seconds before the next start, None to give up."""
        self._failed_starts = 0 if loaded else self._failed_starts + 1
        if self._failed_starts >= self._policy.max_failed_starts:
            return None
        self._times.append(now)
        while now - self._times[0] > self._policy.window:
            self._times.popleft()
        recent = len(self._times)
        if recent > self._policy.max_deaths:
            return None
        if recent == 1:
            return 0.0
        return min(self._policy.longest_pause, self._policy.first_pause * 2.0 ** min(recent - 2, 100))

    def forget(self) -> None:
        self._times.clear()
        self._failed_starts = 0
