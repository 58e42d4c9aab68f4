"""How loud speech is, and evening it out between the segments of one recording without touching the speech inside."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from cosyui.engine.request import SAMPLE_RATE

Samples = NDArray[np.float32]

FRAME_SECONDS = 0.01
SILENCE_DBFS = -60.0
GATE_DB = 10.0
"""Frames this far below the mean of the others are pauses, not speech (as in ITU-R BS.1770)."""
FIRST_TOLERANCE_DB = 4.0
"""The first segment sets the level of a recording, but no further than this from the level of the clip."""
REFERENCE_DBFS = (-32.0, -14.0)
"""Bounds of the clip's level as a reference: never whisper-quiet, never at the limit all the time."""
MOST_GAIN_DB = 6.0
SLOPE_DB_PER_SECOND = 3.0
"""A gain that moves slower than this is not heard as pumping."""
KNEE, CEILING = 0.75, 0.89
"""Peaks above the knee are rounded so that none passes the ceiling (-1 dBFS)."""


def frame_powers(wave: Samples, rate: int = SAMPLE_RATE) -> NDArray[np.float64]:
    """Mean square of each whole frame of ``wave`` (S,)."""
    size = round(FRAME_SECONDS * rate)
    count = len(wave) // size
    frames = wave[: count * size].reshape(count, size)
    powers: NDArray[np.float64] = np.einsum("ij,ij->i", frames, frames).astype(np.float64) / size
    return powers


def gated_level(powers: NDArray[np.float64]) -> float | None:
    """Level in dBFS (RMS) of the frames that are speech; None if all are silent."""
    sound = powers[powers > 10 ** (SILENCE_DBFS / 10)]
    if not len(sound):
        return None
    speech = sound[sound > sound.mean() * 10 ** (-GATE_DB / 10)]
    return 10 * math.log10(speech.mean())


def speech_level(wave: Samples, rate: int = SAMPLE_RATE) -> float | None:
    """Level in dBFS of the speech in ``wave`` (S,), pauses left out; None for silence."""
    return gated_level(frame_powers(wave, rate))


def limit_peaks(wave: Samples) -> Samples:
    """``wave`` with its peaks rounded to stay below `CEILING`; what is below `KNEE` is unchanged."""
    size = np.abs(wave)
    if not len(wave) or size.max() <= KNEE:
        return wave
    over = np.maximum(size - KNEE, 0) / (CEILING - KNEE)
    rounded = np.where(size > KNEE, KNEE + (CEILING - KNEE) * np.tanh(over), size)
    return (np.sign(wave) * rounded).astype(np.float32)


class Leveller:
    """Brings all segments of a recording to the level of the first. ``clip_level``: of the prompt's speech, in dBFS."""

    def __init__(self, clip_level: float | None) -> None:
        low, high = REFERENCE_DBFS
        self.reference = min(high, max(low, clip_level if clip_level is not None else low))
        self.target: float | None = None

    def target_for(self, level: float) -> float:
        """The level that a segment of ``level`` dBFS is to get."""
        if self.target is not None:
            return self.target
        low, high = self.reference - FIRST_TOLERANCE_DB, self.reference + FIRST_TOLERANCE_DB
        return min(high, max(low, level))

    def segment(self) -> SegmentGain:
        """The gain of the next segment; one that is dropped before its end leaves no trace."""
        return SegmentGain(self)


class SegmentGain:
    """One gain for a segment that comes whole; for chunks a gain that moves slowly and goes on over their borders."""

    def __init__(self, leveller: Leveller) -> None:
        self.leveller = leveller
        self.powers: list[NDArray[np.float64]] = []
        self.gain: float | None = None

    @property
    def level(self) -> float | None:
        """Of the speech so far, before any gain."""
        return gated_level(np.concatenate(self.powers)) if self.powers else None

    def __call__(self, wave: Samples) -> Samples:
        """The next piece (S,), levelled, its peaks limited."""
        self.powers.append(frame_powers(wave))
        level = self.level
        gain = self.gain or 0.0
        if level is not None:
            wanted = min(MOST_GAIN_DB, max(-MOST_GAIN_DB, self.leveller.target_for(level) - level))
            step = SLOPE_DB_PER_SECOND * len(wave) / SAMPLE_RATE
            # Before the first piece nothing was heard, so its gain starts where it belongs.
            gain = wanted if self.gain is None else min(self.gain + step, max(self.gain - step, wanted))
        before, self.gain = gain if self.gain is None else self.gain, gain
        if before == gain:
            return limit_peaks(wave * np.float32(10 ** (gain / 20)))
        curve = np.linspace(before, gain, len(wave), dtype=np.float32)
        return limit_peaks((wave * 10 ** (curve / 20)).astype(np.float32))

    def close(self) -> None:
        """The segment is out: the first one sets the level of the others."""
        level = self.level
        if self.leveller.target is None and level is not None:
            self.leveller.target = self.leveller.target_for(level)
