"""Blocks of a recording to one mono wave, in two walks over the file: what is in its channels, then their mix.

Two walks, so that memory holds one channel and never all of them at the rate of the file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cosyui.errors import InputError

Samples = NDArray[np.float32]

MIN_RATE, MAX_RATE = 8_000, 192_000
MAX_CHANNELS = 8
DECODE_SECONDS = 120.0
"""Nothing after this is read, however long the file says it is."""
STORED_RATE = 48_000
"""Clips of a higher rate are brought down to it: the model's own is 24 kHz."""
_LARGEST = 1e6
"""No sample of a recording is larger, whatever its scale (float files may hold the range of 16-bit ones)."""


class Block(NamedTuple):
    """The next piece of a file: ``frames`` (S, C), full scale 1, at ``rate`` Hz."""

    frames: Samples
    rate: int


@dataclass(frozen=True)
class Sound:
    """A mono ``wave`` (S,) at ``rate`` Hz and what was seen in the file on the way.

    ``peak`` is the largest sample of any channel, ``clipped`` the share of samples at a flat top, ``repaired`` the
    number of samples that were no numbers. ``opposite``: the channels cancel each other, so one of them was taken.
    ``whole`` is False when the recording goes on after ``DECODE_SECONDS``.
    """

    wave: Samples
    rate: int
    file_rate: int
    channels: int
    peak: float
    clipped: float
    repaired: int
    opposite: bool
    whole: bool

    @property
    def seconds(self) -> float:
        return len(self.wave) / self.rate


@dataclass
class _Channels:
    """Sums over the first walk; one number a channel where it is an array."""

    rate: int
    energies: NDArray[np.float64]
    mean_energy: float = 0.0
    peak: float = 0.0
    frames: int = 0
    bad: int = 0

    @property
    def cancelled(self) -> bool:
        """The mean has lost the sound. Unrelated channels keep 1/n of their energy, a single filled one 1/n^2."""
        return self.mean_energy < float(self.energies.max()) / (2.0 * len(self.energies) ** 2)


def refused(code: str, message: str) -> InputError:
    return InputError(code, message, "clip")


def check_form(rate: int, channels: int) -> None:
    """Raises InputError ``clip_sample_rate`` or ``clip_channels``; readers ask before they decode."""
    if not MIN_RATE <= rate <= MAX_RATE:
        message = f"The clip has a sample rate of {rate} Hz; {MIN_RATE} to {MAX_RATE} Hz work."
        raise refused("clip_sample_rate", message)
    if not 1 <= channels <= MAX_CHANNELS:
        message = f"The clip has {channels} channels; at most {MAX_CHANNELS} work. Export it as mono or stereo."
        raise refused("clip_channels", message)


def mix(read: Callable[[], Iterator[Block]]) -> Sound:
    """One wave of what ``read`` yields (it is called twice).

    Raises InputError ``clip_empty_file`` when that is nothing.
    """
    found = _survey(_bounded(read()))
    loudest = int(found.energies.argmax()) if found.cancelled else None
    pieces, clipped = [], 0
    for frames, _ in _bounded(read()):
        clean, bad = _numbers(frames)
        clipped += _flat_tops(clean, found.peak)
        mono = _mean(clean) if loudest is None else clean[:, loudest].copy()
        pieces.append(mono if bad is None else _bridged(mono, bad))
    wave, rate = _stored(pieces, found.rate)
    channels = len(found.energies)
    return Sound(
        wave=wave,
        rate=rate,
        file_rate=found.rate,
        channels=channels,
        peak=found.peak,
        clipped=clipped / (found.frames * channels),
        repaired=found.bad,
        opposite=loudest is not None and channels > 1,
        whole=found.frames <= DECODE_SECONDS * found.rate,
    )


def _bounded(blocks: Iterator[Block]) -> Iterator[Block]:
    """End at the limit, and where rate or channels change: chained recordings are not one clip."""
    seconds, form = 0.0, None
    for block in blocks:
        now = (block.rate, block.frames.shape[1])
        if form not in (None, now) or seconds > DECODE_SECONDS:
            return
        form = now
        seconds += len(block.frames) / block.rate
        yield block


def _survey(blocks: Iterator[Block]) -> _Channels:
    found: _Channels | None = None
    for frames, rate in blocks:
        if found is None:
            found = _Channels(rate, np.zeros(frames.shape[1]))
        clean, bad = _numbers(frames)
        mean = _mean(clean)
        found.energies += np.einsum("sc,sc->c", clean, clean)
        found.mean_energy += float(mean @ mean)
        found.peak = max(found.peak, float(np.abs(clean).max(initial=0.0)))
        found.frames += len(frames)
        found.bad += 0 if bad is None else int(bad.sum())
    if found is None or found.frames == 0:
        raise refused("clip_empty_file", "The clip has no sound in it (0 seconds). Record or upload it again.")
    return found


def _mean(frames: Samples) -> Samples:
    channels = frames.shape[1]
    mean: Samples = frames @ np.full(channels, 1 / channels, np.float32)
    return mean


def _numbers(frames: Samples) -> tuple[Samples, NDArray[np.bool_] | None]:
    """The frames (S, C) with 0 for what is no sample of a recording, and where that was; None for nowhere."""
    if np.abs(frames).max(initial=0.0) < _LARGEST:  # not true of NaN
        return frames, None
    bad: NDArray[np.bool_] = np.logical_not(np.abs(frames) < _LARGEST)
    return np.where(bad, np.float32(0), frames), bad


def _bridged(mono: Samples, bad: NDArray[np.bool_]) -> Samples:
    """Straight lines over the places (S,) where one of the channels (S, C) was bad."""
    good = np.flatnonzero(~bad.any(axis=1))
    return np.interp(np.arange(len(mono)), good, mono[good]).astype(np.float32) if len(good) else mono


def _flat_tops(frames: Samples, peak: float) -> int:
    """How many samples are at full scale, or repeat the one before them close to the highest peak."""
    size = np.abs(frames)
    if size.max(initial=0.0) < 0.98 * min(peak, 1.0):
        return 0
    top = (size >= 0.999) & (peak < 2.0)  # above 2 the scale is another one
    top[1:] |= (size[1:] >= 0.98 * peak) & (frames[1:] == frames[:-1])
    return int(top.sum())


def _stored(pieces: list[Samples], rate: int) -> tuple[Samples, int]:
    """All pieces in one, at ``STORED_RATE`` at most."""
    if rate <= STORED_RATE:
        return np.concatenate(pieces), rate
    import soxr

    stream = soxr.ResampleStream(rate, STORED_RATE, 1, dtype="float32")
    ends = [False] * (len(pieces) - 1) + [True]
    return np.concatenate([stream.resample_chunk(*part) for part in zip(pieces, ends, strict=True)]), STORED_RATE
