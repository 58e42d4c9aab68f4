"""From a batch the teacher spoke to utterances: warp, cut to the speech, label every token, collect."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cosyui.speech.features import resample
from cosyui.voice_training.layout import FRAME_SAMPLES, SAMPLE_RATE, TOKEN_SAMPLES
from cosyui.voice_training.run import write_atomically
from cosyui.voice_training.teacher import FRAME_SAMPLES as TEACHER_SAMPLES
from cosyui.voice_training.voices import WARP

_BLOCK = 240
"""Samples (10 ms) that loudness is judged by."""
_LOUD, _PEAK = 0.006, 0.05
_BEFORE, _BEHIND = 12 * _BLOCK, 15 * _BLOCK
"""Silence kept before and behind the speech, samples."""
_SHORTEST = 0.8 * SAMPLE_RATE
_LOWEST_F0 = 35.0
_VOWELS = frozenset("aeiouɤəɛɨyʊɚɔ")
_STRESS = {"ˈ": 5, "ˌ": 6}
_TONES = {"→": 1, "↗": 2, "↓": 3, "↘": 4}


@dataclass(frozen=True)
class Job:
    """One utterance to speak: ``phonemes`` ids of the teacher, ``style`` (256,), ``line`` of the text list."""

    phonemes: list[int]
    style: NDArray[np.float32]
    speed: float
    line: int
    voice: int
    warp: int
    language: str


@dataclass(frozen=True)
class Cut:
    """``wave`` int16 (S,), S a multiple of 960; ``f0`` float16 (S/480,); ``phonemes``, ``tones`` uint8 (S/960,)."""

    wave: NDArray[np.int16]
    f0: NDArray[np.float16]
    phonemes: NDArray[np.uint8]
    tones: NDArray[np.uint8]


def symbol_labels(symbols: Sequence[str], ids: Sequence[int]) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Phoneme and tone label of each teacher symbol; silence stands at both ends, so two more than ``ids``.

    Stress marks take the sound behind them, tone and aspiration marks the one before; a tone reaches back over the
    vowels of its syllable.
    """
    signs, labels = ["", *symbols, ""], [0, *ids, 0]
    tones = [0] * len(labels)
    for at, sign in enumerate(signs):
        if sign in _STRESS and at + 1 < len(signs):
            labels[at] = labels[at + 1]
            tones[at] = tones[at + 1] = _STRESS[sign]
        elif sign in _TONES:
            labels[at], tones[at] = labels[at - 1], _TONES[sign]
            back = at - 1
            while back > 0 and signs[back] in _VOWELS:
                tones[back] = _TONES[sign]
                back -= 1
        elif sign == "ʰ":
            labels[at] = labels[at - 1]
    return np.array(labels, np.uint8), np.array(tones, np.uint8)


def cut_batch(
    jobs: Sequence[Job], ends: Sequence[int], spoken: tuple[Tensor, Tensor, Tensor], names: dict[int, str]
) -> list[tuple[Job, Cut]]:
    """Warp and cut what `Teacher.speak` returned for ``jobs``; what is too short or too quiet is left out.

    ``ends``: teacher frames of each utterance before its closing pause was stretched; ``names`` the symbol of an id.
    """
    waves, pitches, symbols = spoken
    found = []
    for warp in sorted({job.warp for job in jobs}):
        rows = [row for row, job in enumerate(jobs) if job.warp == warp]
        warped = resample(waves[rows].float(), warp, WARP, "sinc")
        last = torch.tensor([ends[row] * TEACHER_SAMPLES * WARP / warp / _BLOCK for row in rows], device=waves.device)
        begins, stops, peaks = _speech(warped, last)
        samples = (warped.clamp(-1, 1) * 32767).to(torch.int16).cpu().numpy()
        for k, row in enumerate(rows):
            begin = max(0, begins[k] - _BEFORE)
            whole = (min(stops[k] + _BEHIND, samples.shape[1]) - begin) // TOKEN_SAMPLES * TOKEN_SAMPLES
            if whole < _SHORTEST or peaks[k] < _PEAK:
                continue
            track, spelled = pitches[row].float().cpu().numpy(), symbols[row].cpu().numpy()
            labels = symbol_labels([names[i] for i in jobs[row].phonemes], jobs[row].phonemes)
            wave = samples[k, begin : begin + whole].copy()
            found.append((jobs[row], _labelled(wave, begin, warp / WARP, track, spelled, labels)))
    return found


def _speech(waves: Tensor, last_block: Tensor) -> tuple[list[int], list[int], list[float]]:
    """First and last sample of what is loud, before ``last_block`` (B,), and the peak, of each row."""
    blocks = waves[:, : waves.shape[1] // _BLOCK * _BLOCK].reshape(len(waves), -1, _BLOCK)
    number = torch.arange(blocks.shape[1], device=waves.device)
    loud = (blocks.pow(2).mean(-1).sqrt() > _LOUD) & (number < last_block.long()[:, None])
    first = torch.where(loud, number, blocks.shape[1]).amin(1)
    last = torch.where(loud, number, -1).amax(1)
    peaks: list[float] = waves.abs().amax(1).tolist()
    return (first * _BLOCK).tolist(), ((last + 1) * _BLOCK).tolist(), peaks


def _labelled(
    wave: NDArray[np.int16],
    begin: int,
    ratio: float,
    pitch: NDArray[np.float32],
    symbols: NDArray[np.int64],
    labels: tuple[NDArray[np.uint8], NDArray[np.uint8]],
) -> Cut:
    """Labels at the middle of every token and frame; a warped voice runs ``ratio`` times as fast as the teacher."""

    def at(step: int, teacher_step: int, count: int) -> NDArray[np.int64]:
        middle = begin + (np.arange(len(wave) // step) + 0.5) * step
        return np.clip((middle * ratio / teacher_step).astype(np.int64), 0, count - 1)

    spoken = np.minimum(symbols[at(TOKEN_SAMPLES, TEACHER_SAMPLES, len(symbols))], len(labels[0]) - 1)
    f0 = pitch[at(FRAME_SAMPLES, TEACHER_SAMPLES // 2, len(pitch))] * ratio
    return Cut(wave, np.where(f0 > _LOWEST_F0, f0, 0).astype(np.float16), labels[0][spoken], labels[1][spoken])


@dataclass
class Collection:
    """Utterances that will become one data file; voices are numbered from 0 in each."""

    entries: list[tuple[Job, Cut, list[int]]] = field(default_factory=list)
    names: list[str] = field(default_factory=list)

    def write(self, file: Path) -> None:
        """The dict that `cosyui.voice_training.store` describes; nothing without utterances."""
        if not self.entries:
            return
        jobs, cuts = [job for job, _, _ in self.entries], [cut for _, cut, _ in self.entries]
        lengths = torch.tensor([len(cut.wave) for cut in cuts])
        data: dict[str, Any] = {
            "wav": torch.from_numpy(np.concatenate([cut.wave for cut in cuts])),
            "f0": torch.from_numpy(np.concatenate([cut.f0 for cut in cuts])),
            "lab": torch.from_numpy(np.concatenate([cut.phonemes for cut in cuts])),
            "tone": torch.from_numpy(np.concatenate([cut.tones for cut in cuts])),
            "off": lengths.cumsum(0) - lengths,
            "len": lengths,
            "spk": torch.tensor([job.voice for job in jobs]),
            "lang": torch.tensor([int(job.language == "zh") for job in jobs]),
            "line": torch.tensor([job.line for job in jobs]),
            "style": torch.from_numpy(np.stack([job.style for job in jobs]).astype(np.float16)),
            "ids": [ids for _, _, ids in self.entries],
            "names": self.names,
        }
        write_atomically(data, file)
        print(f"{file}: {len(jobs)} utterances, {float(lengths.sum()) / SAMPLE_RATE / 3600:.2f} h", flush=True)
