"""When to start a dead engine again, and when to give up."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass


@dataclass(frozen=True)
class RestartPolicy:
    """The first restart comes at once, each further one within ``window`` seconds after a doubled pause.

    More than ``max_deaths`` ends of the process within the window mean that starting again does not help.
    """

    max_deaths: int = 6
    window: float = 600.0
    first_pause: float = 1.0
    longest_pause: float = 30.0


class Deaths:
    """Remembers when the process died; ``now`` is any monotonic time in seconds."""

    def __init__(self, policy: RestartPolicy) -> None:
        self._policy = policy
        self._times: deque[float] = deque()

    def record(self, now: float) -> float | None:
        """Count a death; the pause in seconds before the next start, or None to give up."""
        self._times.append(now)
        while now - self._times[0] > self._policy.window:
            self._times.popleft()
        recent = len(self._times)
        if recent > self._policy.max_deaths:
            return None
        if recent == 1:
            return 0.0
        return min(self._policy.longest_pause, self._policy.first_pause * 2.0 ** (recent - 2))

    def forget(self) -> None:
        self._times.clear()
