"""How many replicas the speech that is to be made asks for."""

from __future__ import annotations

import math
from collections.abc import Iterable

SECONDS_PER_PLACE = 8.0
"""Seconds of speech to be made for each place: about one take at work and half of one that waits."""


def wanted_replicas(
    speech_seconds: Iterable[float], places: Iterable[float], seconds_per_place: float = SECONDS_PER_PLACE
) -> int:
    """So many that none has more than ``seconds_per_place`` of speech to make for each of its places, at least 1.

    One figure each for the replicas that there are: seconds of speech that are in it or wait for it, and its places.
    A count of requests would not do: a long job is one request, and may be half an hour of speech.
    """
    told = [count for count in places if count > 0]
    each = sum(told) / len(told) if told else 1.0
    return max(1, math.ceil(sum(speech_seconds) / (each * seconds_per_place) - 1e-9))
