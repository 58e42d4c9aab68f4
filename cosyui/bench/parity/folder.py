"""A golden folder beside its checkpoint, and how found and expected tensors are compared."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cosyui.bench.parity.deviation import Deviation
from cosyui.model.cosyvoice3 import CosyVoice3, StagePrecision, load

HIDDEN, LOGITS, MEL, F0, WAVE, EXACT, PROBABILITY = 1e-4, 1e-3, 1e-3, 1e-6, 1e-3, 0.0, 1e-6
SPECTRA = 2e-2
"""Tolerances in float32: absolute, but F0 and the magnitudes of spectra relative."""


@dataclass
class Folder:
    """A checkpoint and the golden data made with it."""

    checkpoint: Path
    golden: Path
    device: torch.device
    precision: StagePrecision

    @cached_property
    def model(self) -> CosyVoice3:
        """The checkpoint, with the golden waveforms' source noise."""
        model = load(self.checkpoint, device=self.device, precision=self.precision)
        noise = self.golden / "noise_source.npz"
        if noise.is_file():
            model.vocoder.noise = self.arrays("noise_source.npz")["base"]
        return model

    def arrays(self, name: str) -> dict[str, Tensor]:
        """Arrays of a golden .npz on the device; integers as int64."""
        with np.load(self.golden / name) as file:
            tensors = {
                key: torch.from_numpy(np.asarray(file[key])) for key in file.files if file[key].dtype.kind != "U"
            }
        widened = {key: t if t.is_floating_point() else t.long() for key, t in tensors.items()}
        return {key: t.to(self.device) for key, t in widened.items()}

    def json(self, name: str) -> Any:
        """Content of a golden .json."""
        return json.loads((self.golden / name).read_text(encoding="utf-8"))

    def near(self, what: str, found: Tensor, expected: Tensor, tolerance: float) -> Deviation:
        """Largest absolute deviation; infinite when shapes differ."""
        if found.shape != expected.shape:
            return Deviation(
                f"{what} (shape {tuple(found.shape)}, expected {tuple(expected.shape)})", np.inf, tolerance
            )
        error = (found.double() - expected.double()).abs().max().item() if found.numel() else 0.0
        return Deviation(what, error, tolerance)

    def same(self, what: str, found: object, expected: object) -> Deviation:
        """0 when equal, else 1."""
        return Deviation(what, float(found != expected), EXACT)


Check = Callable[[Folder], Iterator[Deviation]]
