"""Whether two recordings are the same take, though their last bits may differ."""

from __future__ import annotations

from enum import StrEnum

import numpy as np
import torch
from numpy.typing import NDArray

from cosyui.speech.features import mel_24k

Audio = NDArray[np.int16]

SAME_SNR = 40.0
"""dB. With random weights of a steady pitch, a flow in bfloat16 stays above 50 against one in float32; two texts in one
voice come to 22."""
SAME_SPECTRUM = 0.9
"""Correlation of spectra: the phase of a voice sums up its pitch, so rounding moves the wave and not these. Two texts
in one voice come to 0.4."""
LENGTH_SLACK = 2400
"""Samples by which the trimmed edges may differ."""


class Verdict(StrEnum):
    EQUAL = "equal"
    CLOSE = "close"
    SPECTRUM = "same spectrum"
    OTHER = "other"


def compare(heard: Audio, expected: Audio) -> tuple[Verdict, float, float]:
    """The verdict, the signal to noise ratio in dB, and the correlation of the spectra (0 where it was not needed)."""
    if len(heard) == len(expected) and np.array_equal(heard, expected):
        return Verdict.EQUAL, np.inf, 1.0
    if abs(len(heard) - len(expected)) > LENGTH_SLACK or not len(heard) or not len(expected):
        return Verdict.OTHER, -np.inf, 0.0
    heard, expected = aligned(heard, expected)
    ratio = snr(heard, expected)
    if ratio >= SAME_SNR:
        return Verdict.CLOSE, ratio, 1.0
    alike = spectra_alike(heard, expected)
    return (Verdict.SPECTRUM if alike >= SAME_SPECTRUM else Verdict.OTHER), ratio, alike


def snr(heard: Audio, expected: Audio) -> float:
    """Signal to noise ratio in dB of equally long recordings."""
    signal = expected.astype(np.float64)
    noise = heard.astype(np.float64) - signal
    return float(10 * np.log10((np.square(signal).sum() + 1e-9) / (np.square(noise).sum() + 1e-9)))


def aligned(heard: Audio, expected: Audio) -> tuple[Audio, Audio]:
    """Both without what only one has at its edges: equally long, at the shift where they are most alike."""
    size = 1 << (len(heard) + len(expected) - 1).bit_length()
    product = np.fft.rfft(heard.astype(np.float64), size) * np.conj(np.fft.rfft(expected.astype(np.float64), size))
    likeness = np.fft.irfft(product, size)
    shifts = np.arange(-LENGTH_SLACK, LENGTH_SLACK + 1)
    shift = int(shifts[np.argmax(likeness[shifts])])
    heard, expected = heard[max(0, shift) :], expected[max(0, -shift) :]
    length = min(len(heard), len(expected))
    return heard[:length], expected[:length]


def spectra_alike(heard: Audio, expected: Audio) -> float:
    """Correlation of the log-mel spectra once each band's mean is taken off: what one take has of another voice's."""
    if len(heard) < 4800:
        return 0.0
    waves = torch.from_numpy(np.stack([heard, expected]).astype(np.float32) / 32768)
    mels = mel_24k(waves).clamp(min=-7.0)  # below is silence, whose detail is noise
    mels = mels - mels.mean(-1, keepdim=True)
    norms = mels.flatten(1).norm(dim=1)
    return float((mels[0] * mels[1]).sum() / (norms.prod() + 1e-9))
