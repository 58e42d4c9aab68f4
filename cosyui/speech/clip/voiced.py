"""Where someone speaks in a recording, told by energy against the recording's own noise floor.

Levels are of frames of 20 ms, ten milliseconds apart, in dBFS without what lies below 150 Hz (hum, rumble, handling).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from cosyui.speech.clip.mix import Samples

HOP = 0.01
"""Seconds from one frame to the next."""
CLICK_SECONDS = 0.08
"""What is heard for less, with nothing near it, is a click and no speech."""
APART_SECONDS = 0.15
"""A longer gap parts two sounds; the closure of a plosive is shorter."""
PAUSE_SECONDS = 0.3
"""A longer gap is a pause and not part of the speech."""

_FRAME = 0.02
_ANALYSIS_RATE = 16_000
_LOWEST_HZ = 150.0
_DIGITAL_SILENCE = -90.0
_LOUD_FRAMES = 50
"""The level of speech is that of this loudest frame (half a second is louder): some clicks do not matter."""
_STEADY_DB, _STEADY_DBFS = 12.0, -40.0
_BAND_DB = 50.0

Levels = NDArray[np.float64]
Span = tuple[int, int]


@dataclass(frozen=True)
class Speech:
    """``levels`` (F,) dBFS of the frames; ``runs`` are spans of frames with speech, ``clicks`` those with other sound.

    ``loud`` and ``floor`` are the levels of speech and of the noise around it in dBFS, ``bandwidth`` the highest
    frequency in Hz (up to 8 kHz) that the speech has.
    """

    levels: Levels
    runs: tuple[Span, ...]
    clicks: tuple[Span, ...]
    loud: float
    floor: float
    bandwidth: float

    @property
    def seconds(self) -> float:
        """Speech with its short gaps, without pauses."""
        return sum(end - start for start, end in _joined(self.runs, PAUSE_SECONDS)) * HOP

    @property
    def above_noise(self) -> float:
        """Signal to noise ratio, dB."""
        return self.loud - self.floor

    def within(self, span: Span) -> Speech:
        """The same with the runs inside ``span`` only."""
        first, last = span
        cut = [(max(start, first), min(end, last)) for start, end in self.runs]
        outside = [(start, first) for start, _ in self.runs if start < first]
        outside += [(last, end) for _, end in self.runs if end > last]
        return replace(
            self, runs=tuple((start, end) for start, end in cut if start < end), clicks=(*self.clicks, *outside)
        )

    def edges(self, margin: float) -> tuple[float, float]:
        """First and last second of the runs with up to ``margin`` around them, but no click; there must be runs."""
        first, last = self.runs[0][0], self.runs[-1][1]
        room = round(margin / HOP)
        start = max([0, first - room, *(end for _, end in self.clicks if end <= first)])
        end = min([len(self.levels), last + room, *(start for start, _ in self.clicks if start >= last)])
        return start * HOP, end * HOP


def find_speech(wave: Samples, rate: int) -> Speech:
    """Speech of a mono wave (S,) without DC; ``runs`` is empty when there is none."""
    if rate > _ANALYSIS_RATE:
        import soxr

        wave, rate = soxr.resample(wave, rate, _ANALYSIS_RATE), _ANALYSIS_RATE
    levels, spectra = _analysed(wave, rate)
    loud = float(np.sort(levels)[-min(_LOUD_FRAMES, len(levels))])
    floor = max(_noise_floor(levels), _DIGITAL_SILENCE)
    active = levels > _threshold(loud, floor)
    parts = _joined(_spans(active), APART_SECONDS)
    heard = [int(active[start:end].sum()) * HOP for start, end in parts]
    runs = tuple(part for part, seconds in zip(parts, heard, strict=True) if seconds >= CLICK_SECONDS)
    clicks = tuple(part for part in parts if part not in runs)
    spoken = np.zeros(len(levels), bool)
    for start, end in runs:
        spoken[start:end] = True
    return Speech(levels, runs, clicks, loud, floor, _bandwidth(spectra[spoken & active], rate))


def _analysed(wave: Samples, rate: int) -> tuple[Levels, NDArray[np.float32]]:
    """Levels (F,) and power spectra (F, B) of the frames; frame i is centred at i * HOP."""
    size, hop = round(_FRAME * rate), round(HOP * rate)
    frames = np.lib.stride_tricks.sliding_window_view(np.pad(wave, (size // 2, size)), size)[::hop]
    window = np.hanning(size).astype(np.float32)
    above = np.fft.rfftfreq(size, 1 / rate) >= _LOWEST_HZ
    spectra = np.empty((len(frames), size // 2 + 1), np.float32)
    for start in range(0, len(frames), 1000):  # a part at a time: the transform takes double precision
        spectra[start : start + 1000] = np.abs(np.fft.rfft(frames[start : start + 1000] * window, axis=1)) ** 2
    power = spectra[:, above].sum(axis=1, dtype=np.float64) * 2 / (size * float((window**2).sum()))
    return 10 * np.log10(power + 1e-12), spectra


def _noise_floor(levels: Levels) -> float:
    """The quietest tenth of a second of the recording, short of single quieter moments."""
    width = min(round(0.1 / HOP), len(levels))
    power = np.convolve(10 ** (levels / 10), np.ones(width) / width, mode="valid")
    return float(10 * np.log10(np.percentile(power, 2) + 1e-12))


def _threshold(loud: float, floor: float) -> float:
    """Between the floor and the level of speech; never so high that soft endings of words are lost in a good clip.

    In a loud recording without quiet moments everything counts: level alone cannot tell speech from noise there.
    """
    if loud - floor < _STEADY_DB and loud > _STEADY_DBFS:
        return -math.inf
    return max(floor + max(6.0, 0.2 * (loud - floor)), loud - 40.0)


def _spans(active: NDArray[np.bool_]) -> list[Span]:
    edges = np.flatnonzero(np.diff(active.astype(np.int8), prepend=0, append=0))
    return [(int(start), int(end)) for start, end in edges.reshape(-1, 2)]


def _joined(spans: list[Span] | tuple[Span, ...], gap: float) -> list[Span]:
    """Spans with gaps of up to ``gap`` seconds between them as one."""
    joined = list(spans[:1])
    for start, end in spans[1:]:
        if (start - joined[-1][1]) * HOP <= gap:
            joined[-1] = (joined[-1][0], end)
        else:
            joined.append((start, end))
    return joined


def _bandwidth(spectra: NDArray[np.float32], rate: int) -> float:
    """The highest frequency less than ``_BAND_DB`` below the strongest, in the mean of the frames; 0 of none."""
    if not len(spectra):
        return 0.0
    mean = spectra.mean(axis=0, dtype=np.float64)
    audible = np.flatnonzero(mean > mean.max() * 10 ** (-_BAND_DB / 10))
    return float(audible[-1]) * rate / (2 * (spectra.shape[1] - 1)) if len(audible) else 0.0
