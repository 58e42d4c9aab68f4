"""The best part of a recording that is longer than a prompt clip should be."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cosyui.speech.clip.mix import Samples
from cosyui.speech.clip.voiced import HOP, Levels, Span, Speech

_CLIPPED_WEIGHT = 10.0
"""A second with clipping costs as much as this many seconds of speech bring."""
_NOISE_WEIGHT = 0.3
"""Seconds of speech that a decibel of noise costs..."""
_CLEAN_DB = 35.0
"""... where it is less than this below the speech."""


def best_window(speech: Speech, wave: Samples, rate: int, longest: float) -> Span:
    """Frames of the stretch of up to ``longest`` seconds with the most speech and the least clipping and noise.

    It begins and ends where a run of speech does. A run that is longer itself is parted at its quietest places.
    ``speech.runs`` is not empty.
    """
    limit = int(longest / HOP)
    runs = [part for run in speech.runs for part in _parted(run, speech.levels, limit)]
    clipped = _clipped_frames(wave, rate, len(speech.levels))
    best, best_score = runs[0], -np.inf
    for first, (start, _) in enumerate(runs):
        inside = [run for run in runs[first:] if run[1] - start <= limit]
        end = inside[-1][1]
        score = sum(stop - begin for begin, stop in inside) * HOP
        score -= _CLIPPED_WEIGHT * float(clipped[start:end].sum()) * HOP
        noise = float(np.percentile(speech.levels[start:end], 10))
        score -= _NOISE_WEIGHT * max(0.0, noise - (speech.loud - _CLEAN_DB))
        if score > best_score:
            best, best_score = (start, end), score
    return best


def _parted(run: Span, levels: Levels, limit: int) -> list[Span]:
    """The run in pieces of at most ``limit`` frames."""
    start, end = run
    parts = []
    while end - start > limit:
        middle = start + limit // 2
        cut = middle + int(levels[middle : start + limit].argmin())
        parts.append((start, cut))
        start = cut
    return [*parts, (start, end)]


def _clipped_frames(wave: Samples, rate: int, count: int) -> NDArray[np.bool_]:
    """Which frames (count,) have a sample at full scale."""
    clipped = np.zeros(count, bool)
    places = np.flatnonzero(np.abs(wave) >= 0.999) / rate / HOP
    clipped[np.minimum(places.astype(int), count - 1)] = True
    return clipped
