"""How old files are, by evidence that a wall clock which jumps cannot forge.

A file's own time is only believed as far as it agrees with what this process has seen: one that was not there at the
last look is no older than that look, and one that was has aged since as the monotonic clock says.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import PurePath


def steady_clock() -> float:
    """Seconds that no setting of the time changes; goes on while the machine sleeps, where the system can say so."""
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic()


@dataclass(frozen=True)
class _Sighting:
    """``mark`` tells whether it is still the same content; ``age`` in seconds when it was first seen, ``at`` then."""

    mark: tuple[int, int]
    age: float
    at: float


class Sightings:
    """Of the files below one folder. `look`, then `age` for each file there, then `looked`; on one thread at a time.

    ``clock`` gives steady seconds, ``wall`` seconds since the epoch.
    """

    def __init__(self, clock: Callable[[], float] = steady_clock, wall: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._wall = wall
        self._since = clock()
        self._offset = wall() - self._since
        self._last_look: float | None = None
        self._look = self._since
        self._now = wall()
        self._seen: dict[PurePath, _Sighting] = {}
        self._missed: dict[PurePath, _Sighting] = {}

    @property
    def watched(self) -> float:
        """Seconds since this was made."""
        return self._clock() - self._since

    def __len__(self) -> int:
        """How many files are remembered."""
        return len(self._seen)

    def look(self) -> None:
        """Begin to look at all files."""
        self._look = self._clock()
        # Set forward since the start: the steady clock is right. Set back: then it was ahead before.
        self._now = min(self._wall(), self._look + self._offset)
        self._missed, self._seen = self._seen, {}

    def age(self, path: PurePath, stat: os.stat_result) -> float:
        """Seconds that a file surely has not been changed for; never more than its own time says.

        A time in the future says nothing: such a file is new when it is first seen and ages from then on.
        """
        mark, told = (stat.st_ino, stat.st_mtime_ns), self._now - stat.st_mtime
        sighting = self._missed.get(path)
        if sighting is None or sighting.mark != mark:
            age = max(0.0, told)
            if self._last_look is not None:
                age = min(age, self._look - self._last_look)
            sighting = _Sighting(mark, age, self._look)
        self._seen[path] = sighting
        known = sighting.age + self._look - sighting.at
        return known if told < 0 else min(known, told)

    def looked(self) -> None:
        """All files have been looked at: those that were not there are forgotten."""
        self._missed = {}
        self._last_look = self._look
