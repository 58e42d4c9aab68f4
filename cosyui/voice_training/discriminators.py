"""Discriminators of the vocoder: on the wave folded by a period, and on complex spectrograms.

Source: HiFi-GAN (Kong et al., 2020, arXiv:2010.05646) for periods and feature matching; EnCodec (Defossez et al., 2022,
arXiv:2210.13438) for the complex spectrogram; least-squares losses (Mao et al., 2017, arXiv:1611.04076).
"""

from __future__ import annotations

from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

PERIODS = (2, 3, 5, 7, 11)
WINDOWS = (2048, 1024, 512)
Judgement = tuple[Tensor, list[Tensor]]
"""Scores, and the activations on the way to them."""


def _through(layers: nn.ModuleList, last: nn.Module, x: Tensor) -> Judgement:
    features = []
    for layer in layers:
        x = F.leaky_relu(layer(x), 0.1)
        features.append(x)
    return last(x), features


class PeriodDiscriminator(nn.Module):
    def __init__(self, period: int, channels: tuple[int, ...] = (1, 24, 64, 128, 256)) -> None:
        super().__init__()
        self.period = period
        layers = [nn.Conv2d(inputs, outputs, (5, 1), (3, 1), (2, 0)) for inputs, outputs in pairwise(channels)]
        self.layers = nn.ModuleList([*layers, nn.Conv2d(channels[-1], channels[-1], (5, 1), 1, (2, 0))])
        self.last = nn.Conv2d(channels[-1], 1, (3, 1), 1, (1, 0))

    def forward(self, wave: Tensor) -> Judgement:
        whole = wave.shape[1] // self.period * self.period
        return _through(self.layers, self.last, wave[:, :whole].reshape(len(wave), 1, -1, self.period))


class SpectrumDiscriminator(nn.Module):
    window: Tensor

    def __init__(self, size: int, channels: int = 32) -> None:
        super().__init__()
        self.size = size
        layers = [
            nn.Conv2d(2 if index == 0 else channels, channels, (3, 9), (1, stride), (1, 4))
            for index, stride in enumerate((1, 2, 2, 2))
        ]
        self.layers = nn.ModuleList([*layers, nn.Conv2d(channels, channels, 3, 1, 1)])
        self.last = nn.Conv2d(channels, 1, 3, 1, 1)
        self.register_buffer("window", torch.hann_window(size))

    def forward(self, wave: Tensor) -> Judgement:
        spectrum = torch.stft(wave.float(), self.size, self.size // 4, window=self.window, return_complex=True)
        return _through(self.layers, self.last, torch.stack([spectrum.real, spectrum.imag], 1).transpose(2, 3))


class Discriminators(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        periods = [PeriodDiscriminator(period) for period in PERIODS]
        self.each = nn.ModuleList([*periods, *(SpectrumDiscriminator(size) for size in WINDOWS)])

    def forward(self, wave: Tensor) -> list[Judgement]:
        """Wave (B, S) -> the judgement of each."""
        return [one(wave) for one in self.each]


def judge_loss(each: Discriminators, true: Tensor, made: Tensor) -> tuple[Tensor, list[list[Tensor]]]:
    """Loss of the discriminators, both halves in one pass; and the activations of the true half."""
    judged, half = each(torch.cat([true, made.detach()])), len(true)
    losses = [((s[:half].float() - 1) ** 2).mean() + (s[half:].float() ** 2).mean() for s, _ in judged]
    return torch.stack(losses).mean(), [[f[:half].detach() for f in features] for _, features in judged]


def fool_loss(each: Discriminators, made: Tensor, true: list[list[Tensor]]) -> tuple[Tensor, Tensor]:
    """Adversarial loss of a made wave, and the distance of its activations from the ``true`` ones, relative."""
    each.requires_grad_(False)
    judged = each(made)
    each.requires_grad_(True)
    adversarial = torch.stack([((scores.float() - 1) ** 2).mean() for scores, _ in judged]).mean()
    distances = [
        (wanted.float() - found.float()).abs().mean() / (wanted.float().abs().mean() + 1e-4)
        for layers, (_, features) in zip(true, judged, strict=True)
        for wanted, found in zip(layers, features, strict=True)
    ]
    return adversarial, torch.stack(distances).mean()
