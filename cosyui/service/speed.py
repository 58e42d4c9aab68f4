"""How fast the service speaks: measured while it works, as seconds of speech a second of all requests together."""

from __future__ import annotations

import math
from dataclasses import dataclass

MEMORY_SECONDS = 30.0
"""Work that is longer ago counts less and less: some takes on a CPU, many on a GPU."""
PRIOR_SECONDS = 0.5
"""At a load that is new, what is known of another counts like this much work."""


@dataclass
class _Rate:
    """``speech`` seconds made in ``seconds`` of work, both fading."""

    speech: float = 0.0
    seconds: float = 0.0

    @property
    def value(self) -> float:
        return self.speech / max(self.seconds, 1e-6)


class Speed:
    """Each load (how many requests are at work, in powers of two) has a speed of its own.

    A request gets slower with each that is worked on beside it, and all together get faster, up to some point.
    """

    def __init__(self) -> None:
        self._rates: dict[int, _Rate] = {}
        self._load = 0
        self._since = 0.0
        self._known = False

    def work(self, now: float, load: int, speech: float = 0.0) -> None:
        """``speech`` seconds were made since the last call; from ``now`` on, ``load`` requests are at work."""
        if self._load:
            self._add(self._load, now - self._since, speech)
        self._load, self._since = load, now

    def finished(self) -> None:
        """A request is done: now the figures have all of the work in them, also what follows the last progress."""
        self._known = bool(self._rates)

    def measured(self, load: int, seconds: float, speech: float) -> None:
        """Take in a whole measurement at once."""
        self._add(load, seconds, speech)
        self._known = True

    def at(self, load: int) -> float | None:
        """Seconds of speech a second with ``load`` requests at work; None before the first was done.

        A load that was never seen is taken for as fast as the next lower one that was, or else the next higher.
        """
        if not self._known:
            return None
        level, measured = _level(load), sorted(self._rates)
        others = [other for other in measured if other < level][-1:] or [other for other in measured if other > level]
        rate = self._rates.get(level)
        if rate is None:
            return self._rates[others[0]].value
        if not others:
            return rate.value
        prior = self._rates[others[0]].value
        return (rate.speech + PRIOR_SECONDS * prior) / (rate.seconds + PRIOR_SECONDS)

    def seconds(self, speech: float, load: int) -> float | None:
        """Of work for ``speech`` seconds of all requests together; None before the first was done."""
        speed = self.at(load)
        return None if speed is None else speech / max(speed, 1e-6)

    def _add(self, load: int, seconds: float, speech: float) -> None:
        rate = self._rates.setdefault(_level(load), _Rate())
        fading = math.exp(-seconds / MEMORY_SECONDS)
        rate.speech = fading * rate.speech + speech
        rate.seconds = fading * rate.seconds + seconds


def _level(load: int) -> int:
    return max(1, load).bit_length()
