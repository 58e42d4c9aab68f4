"""Recordings one behind the other: their loudness evened out, pauses between, in blocks however long they are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cosyui.engine.request import SAMPLE_RATE
from cosyui.speech.sound.audio_out import HEADER_BYTES, to_pcm16
from cosyui.speech.sound.loudness import MOST_GAIN_DB, Leveller, frame_powers, gated_level, limit_peaks

_BLOCK = 60 * SAMPLE_RATE
"""Samples that are in memory at once."""


def blocks(path: Path) -> Iterator[NDArray[np.float32]]:
    """The samples of one of our own WAV files: mono int16 at 24 kHz. Raises OSError."""
    with path.open("rb") as file:
        file.seek(HEADER_BYTES)
        while data := file.read(2 * _BLOCK):
            yield np.frombuffer(data, "<i2").astype(np.float32) / np.float32(32767.0)


def level_of(path: Path) -> float | None:
    """Level of the speech in dBFS; None for silence. Raises OSError."""
    powers = [frame_powers(block) for block in blocks(path)]
    return gated_level(np.concatenate(powers)) if powers else None


def joined(paths: Sequence[Path], pause: int) -> Iterator[bytes]:
    """PCM of all, with ``pause`` samples of silence between two. Raises OSError.

    Each gets one gain that brings it to the level of the first, as segments of a take have; its length stays.
    """
    leveller: Leveller | None = None
    for number, path in enumerate(paths):
        if number and pause:
            yield bytes(2 * pause)
        level, gain = level_of(path), 0.0
        if level is not None:
            leveller = leveller or Leveller(level)
            leveller.target = leveller.target_for(level)
            gain = min(MOST_GAIN_DB, max(-MOST_GAIN_DB, leveller.target - level))
        for block in blocks(path):
            yield to_pcm16(limit_peaks(block * np.float32(10 ** (gain / 20))) if gain else block)
