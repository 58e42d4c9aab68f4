"""A prompt clip from outside: decoded within bounds, checked, made mono and level, with a report in plain words."""

from __future__ import annotations

import io
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cosyui.engine.request import PromptClip
from cosyui.errors import InputError

Samples = NDArray[np.float32]

MIN_RATE, MAX_RATE = 8_000, 192_000
GOOD_RATE = 16_000
MAX_CHANNELS = 8
DEFAULT_MAX_BYTES = 32 << 20
FORMATS = "WAV, FLAC, MP3, OGG, Opus, AIFF"

SILENT_DBFS = -65.0
"""The loudest half second below this: nothing was recorded."""
QUIET_DBFS = -42.0
"""RMS below this is raised to ``TARGET_DBFS``; the model copies the level of its prompt."""
TARGET_DBFS = -25.0
PEAK_LIMIT = 0.95
CLIPPING_SHARE = 1e-3
GOOD_SECONDS = (5.0, 13.0)


@dataclass(frozen=True)
class ClipReport:
    """What was found in the file (before any change of level); ``warnings`` are advice in plain words."""

    seconds: float
    sample_rate: int
    channels: int
    peak_dbfs: float
    rms_dbfs: float
    warnings: tuple[str, ...]


def load_clip(
    source: Path | bytes | None,
    *,
    min_seconds: float = 3.0,
    max_seconds: float = 30.0,
    max_bytes: int = DEFAULT_MAX_BYTES,
    transcript: str = "",
) -> tuple[PromptClip, ClipReport]:
    """Decode and check a clip: mono float32 in [-1, 1], DC removed, too quiet ones raised; the rate stays.

    At most ``max_bytes`` are read and at most ``max_seconds`` + 1 s decoded, whatever the header says. Raises
    InputError (field ``clip``): ``clip_missing``, ``clip_empty_file``, ``clip_too_large``, ``clip_unreadable``,
    ``clip_sample_rate``, ``clip_not_finite``, ``clip_too_short``, ``clip_too_long``, ``clip_silent``.
    """
    _check_size(source, max_bytes)
    assert source is not None
    frames, rate = _decode(source, max_seconds + 1.0)
    if not np.isfinite(frames).all():
        raise _error("clip_not_finite", "The clip contains invalid samples (NaN or infinity). Export it again as WAV.")
    seconds = len(frames) / rate
    _check_length(seconds, min_seconds, max_seconds)
    wave = _to_mono(frames)
    wave -= wave.mean(dtype=np.float64).astype(np.float32)
    _check_loud_enough(wave, rate)
    peak, rms = _dbfs(float(np.abs(wave).max())), _rms_dbfs(wave)
    clipped = float((np.abs(frames) >= 0.999).mean())
    warnings = _warnings(seconds, rate, rms, clipped)
    report = ClipReport(seconds, rate, frames.shape[1], peak, rms, warnings)
    return PromptClip(samples=_level(wave, rms), sample_rate=rate, transcript=transcript), report


def _error(code: str, message: str) -> InputError:
    return InputError(code, message, "clip")


def _check_size(source: Path | bytes | None, max_bytes: int) -> None:
    if source is None:
        raise _error("clip_missing", "Upload or record a prompt clip of 3 to 30 seconds.")
    try:
        size = len(source) if isinstance(source, bytes) else source.stat().st_size
        regular = isinstance(source, bytes) or source.is_file()
    except OSError:
        raise _error("clip_missing", "The prompt clip is no longer there. Upload it again.") from None
    if not regular:
        raise _error("clip_unreadable", "The prompt clip is not a file. Upload an audio file.")
    if size == 0:
        raise _error("clip_empty_file", "The file of the prompt clip is empty (0 bytes). Upload it again.")
    if size > max_bytes:
        raise _error(
            "clip_too_large", f"The clip's file has {size / 2**20:.1f} MB; {max_bytes / 2**20:.0f} MB are allowed."
        )


@contextmanager
def _opened(source: Path | bytes) -> Iterator[Any]:
    """The file as soundfile opens it; whatever the decoder says becomes one clear error."""
    import soundfile

    try:
        with soundfile.SoundFile(io.BytesIO(source) if isinstance(source, bytes) else str(source)) as file:
            yield file
    except (soundfile.SoundFileError, OSError, TypeError, ValueError):
        # TypeError: soundfile takes a file named .raw for headerless audio and asks for its parameters.
        raise _error("clip_unreadable", f"The clip cannot be read as audio. These formats work: {FORMATS}.") from None


def _decode(source: Path | bytes, max_seconds: float) -> tuple[Samples, int]:
    """Frames (S, C) of at most ``max_seconds`` and the sample rate; a file that is cut off gives what it has."""
    with _opened(source) as file:
        rate, channels = int(file.samplerate), int(file.channels)
        if not MIN_RATE <= rate <= MAX_RATE:
            raise _error(
                "clip_sample_rate", f"The clip has a sample rate of {rate} Hz; {MIN_RATE} to {MAX_RATE} Hz work."
            )
        if channels > MAX_CHANNELS:
            raise _error("clip_unreadable", f"The clip has {channels} channels; at most {MAX_CHANNELS} work.")
        blocks: list[Samples] = []
        left = math.ceil(max_seconds * rate)
        while left > 0:
            try:
                block = file.read(min(left, rate), dtype="float32", always_2d=True)
            except RuntimeError:  # soundfile's decoding errors
                if not blocks:
                    raise
                break  # damaged further on: what came before is good
            if not len(block):
                break
            blocks.append(block)
            left -= len(block)
    frames = np.concatenate(blocks) if blocks else np.zeros((0, channels), np.float32)
    return frames, rate


def _check_length(seconds: float, min_seconds: float, max_seconds: float) -> None:
    if seconds == 0:
        raise _error("clip_empty_file", "The clip has no sound in it (0 seconds). Record or upload it again.")
    if seconds < min_seconds:
        raise _error(
            "clip_too_short",
            f"The clip is {seconds:.1f} s long; at least {min_seconds:g} s are needed. 5-13 s work best.",
        )
    if seconds > max_seconds:
        raise _error(
            "clip_too_long",
            f"The clip is longer than {max_seconds:g} s. Cut out 5-13 s of clear speech, with its transcript.",
        )


def _to_mono(frames: Samples) -> Samples:
    """The mean of the channels; where they cancel (one is the other's negative), the loudest channel instead."""
    if frames.shape[1] == 1:
        return frames[:, 0].copy()
    mean = frames.mean(axis=1, dtype=np.float32)
    energies = np.square(frames, dtype=np.float64).mean(axis=0)
    loudest = int(energies.argmax())
    # Two unrelated channels of equal level keep half of their energy in the mean, a single filled one of n keeps 1/n^2.
    floor = energies[loudest] / (2.0 * frames.shape[1] ** 2)
    cancelled = np.square(mean, dtype=np.float64).mean() < floor
    return frames[:, loudest].copy() if cancelled else mean


def _check_loud_enough(wave: Samples, rate: int) -> None:
    half = max(1, rate // 2)
    padded = np.pad(wave, (0, -len(wave) % half)).reshape(-1, half)
    if max(_rms_dbfs(row) for row in padded) < SILENT_DBFS:
        raise _error("clip_silent", "No speech was found in the clip: it is silent. Check the microphone or the file.")


def _level(wave: Samples, rms_dbfs: float) -> Samples:
    """Raise a quiet clip to the target level without clipping; others only within [-1, 1]."""
    peak = float(np.abs(wave).max())
    gain = 1.0
    if rms_dbfs < QUIET_DBFS:
        gain = min(10 ** ((TARGET_DBFS - rms_dbfs) / 20), PEAK_LIMIT / peak)
    elif peak > 1.0:
        gain = PEAK_LIMIT / peak
    return (wave * np.float32(gain)).astype(np.float32)


def _dbfs(amplitude: float) -> float:
    return 20 * math.log10(max(amplitude, 1e-9))


def _rms_dbfs(wave: Samples) -> float:
    return _dbfs(math.sqrt(float(np.square(wave, dtype=np.float64).mean())))


def _warnings(seconds: float, rate: int, rms_dbfs: float, clipped: float) -> tuple[str, ...]:
    warnings = []
    if not GOOD_SECONDS[0] <= seconds <= GOOD_SECONDS[1]:
        warnings.append(f"The clip is {seconds:.1f} s long. 5-13 seconds work best.")
    if rate < GOOD_RATE:
        warnings.append(f"The clip has telephone quality ({rate} Hz): the voice will sound dull.")
    if rms_dbfs < QUIET_DBFS:
        warnings.append("The clip is very quiet; its level was raised, noise with it. Record closer to the microphone.")
    if clipped > CLIPPING_SHARE:
        warnings.append("The clip is overdriven (clipped); the voice will sound rough. Record with less gain.")
    return tuple(warnings)
