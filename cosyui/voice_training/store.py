"""All training data of one process, flat on its device; batches are cut by index arithmetic.

A data file (`cosyui.voice_training.make_data`) is a dict of flat tensors over its utterances::

    wav int16 (samples) 24 kHz | f0 float16 (frames) Hz at 50/s, 0 unvoiced
    lab, tone uint8 (tokens)   the teacher's phoneme, and 1-4 Mandarin tone, 5/6 English stress, 0 none, at 25/s
    off, len, spk, lang, line int64 (utterances)   samples, samples, voice, 0 English 1 Mandarin, line of the text list
    style float16 (utterances, 256)   the teacher's voice vector;   ids: text ids of each utterance (lists)
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from cosyui.errors import SetupError
from cosyui.speech.features import mel_24k
from cosyui.voice_training.layout import FRAME_SAMPLES, SAMPLE_RATE, TOKEN_SAMPLES

PER_VOICE = 8
"""Columns of `Store.table`: utterances of a voice that batches are drawn from (repeated where it has fewer)."""


class Store:
    """The joined data files; voices are numbered through all of them."""

    def __init__(self, files: Sequence[Path], device: torch.device) -> None:
        """Read ``files`` to ``device``. Raises SetupError when there are none."""
        if not files:
            raise SetupError("training_data_missing", "There are no data files: run make_data first.")
        parts = [read_data(file) for file in files]
        self.device = device
        offsets, voices, samples, speakers = [], [], 0, 0
        for part in parts:
            offsets.append(part["off"] + samples)
            voices.append(part["spk"] + speakers)
            samples += len(part["wav"])
            speakers += int(part["spk"].max()) + 1

        def joined(key: str) -> Tensor:
            return torch.cat([part[key].to(device) for part in parts])

        self.wave, self.f0 = joined("wav"), joined("f0")
        self.phonemes, self.tones = joined("lab"), joined("tone")
        self.offsets, self.voices = torch.cat(offsets).to(device), torch.cat(voices).to(device)
        self.lengths, self.languages, self.styles = joined("len"), joined("lang"), joined("style")
        self.lines = joined("line")
        self.text_ids: list[list[int]] = [ids for part in parts for ids in part["ids"]]
        self.table = _table(self.voices.tolist()).to(device)

    def __len__(self) -> int:
        return len(self.offsets)

    @property
    def hours(self) -> float:
        return float(self.lengths.sum()) / SAMPLE_RATE / 3600

    def crop(self, utterances: Tensor, starts: Tensor, samples: int) -> tuple[Tensor, Tensor]:
        """Waves (B, samples) float32 from sample ``starts`` (B,) of ``utterances`` (B,), zeros behind their end.

        Also returns the valid samples (B,).
        """
        position = starts[:, None] + torch.arange(samples, device=self.device)
        inside = position < self.lengths[utterances][:, None]
        index = (self.offsets[utterances][:, None] + position).clamp(max=len(self.wave) - 1)
        return self.wave[index].float() / 32768 * inside, inside.sum(1)

    def equal_lengths(self, batch: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Whole utterances in batches of one length, without padding: indices (B,), waves (B, S)."""
        lengths = self.lengths.tolist()
        order = sorted(range(len(self)), key=lengths.__getitem__)
        begin = 0
        while begin < len(order):
            length, end = lengths[order[begin]], begin
            while end < len(order) and end - begin < batch and lengths[order[end]] == length:
                end += 1
            utterances = torch.tensor(order[begin:end], device=self.device)
            yield utterances, self.crop(utterances, torch.zeros_like(utterances), length)[0]
            begin = end

    def mels(self) -> Tensor:
        """Log-mel of everything, flat: float16 (frames, 80)."""
        flat = torch.empty(int(self.lengths.sum()) // FRAME_SAMPLES, 80, dtype=torch.float16, device=self.device)
        for utterances, waves in self.equal_lengths(256):
            mel = mel_24k(waves).transpose(1, 2).half()
            first = self.offsets[utterances] // FRAME_SAMPLES
            flat[first[:, None] + torch.arange(mel.shape[1], device=self.device)] = mel
        return flat


def read_data(file: Path) -> dict[str, Any]:
    """The dict of one data file, its tensors mapped from the disk."""
    data: dict[str, Any] = torch.load(file, map_location="cpu", mmap=True, weights_only=True)
    return data


def _table(voices: list[int]) -> Tensor:
    """(voices with two utterances or more, PER_VOICE) utterance numbers."""
    of_voice: dict[int, list[int]] = defaultdict(list)
    for utterance, voice in enumerate(voices):
        of_voice[voice].append(utterance)
    rows = [mine for mine in of_voice.values() if len(mine) >= 2]
    return torch.tensor([[mine[i % len(mine)] for i in range(PER_VOICE)] for mine in rows], dtype=torch.int64)


def timeline(store: Store, batch: int, tokens: int, through: int = 4) -> tuple[Tensor, Tensor]:
    """``batch`` random stretches of ``tokens`` tokens, each running through up to ``through`` utterances of one voice.

    Returns flat token indices (B, tokens), which start again when the utterances are used up, and those utterances
    (B, through).
    """
    device = store.device
    rows = store.table[torch.randint(len(store.table), (batch,), device=device)]
    chosen = torch.rand(batch, PER_VOICE, device=device).argsort(1)[:, :through]
    utterances = rows.gather(1, chosen)
    counts = store.lengths[utterances] // TOKEN_SAMPLES
    ends = counts.cumsum(1)
    total = ends[:, -1]
    start = (torch.rand(batch, device=device) * (total - tokens + 1).clamp(min=1)).long()
    position = (start[:, None] + torch.arange(tokens, device=device)) % total[:, None]
    which = torch.searchsorted(ends, position, right=True)
    inside = position - (ends - counts).gather(1, which)
    return store.offsets[utterances.gather(1, which)] // TOKEN_SAMPLES + inside, utterances
