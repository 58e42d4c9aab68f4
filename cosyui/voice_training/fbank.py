"""Kaldi's filter bank in torch, batched on any device; equal to `cosyui.speech.features.kaldi_fbank` (tested)."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

RATE = 16_000
WINDOW, HOP, FFT = 400, 160, 512
BINS = 80
LOW, HIGH = 20.0, 8_000.0


def _mel(hz: Tensor) -> Tensor:
    return 1127.0 * torch.log(1 + hz / 700.0)


def filters(device: torch.device) -> Tensor:
    """Triangles on Kaldi's mel scale, (BINS, FFT / 2) float32; the Nyquist bin has no weight."""
    low, high = (float(_mel(torch.tensor(hz))) for hz in (LOW, HIGH))
    step = (high - low) / (BINS + 1)
    left = low + step * torch.arange(BINS, device=device)[:, None]
    mel = _mel(RATE / FFT * torch.arange(FFT // 2, device=device, dtype=torch.float32))[None]
    return torch.minimum((mel - left) / step, (left + 2 * step - mel) / step).clamp(min=0)


def fbank(wave: Tensor) -> Tensor:
    """16 kHz sound (B, S) float32 in [-1, 1] -> (B, T, 80), 100 frames/s, each bin's mean over time removed."""
    frames = wave.unfold(1, WINDOW, HOP)
    frames = frames - frames.mean(-1, keepdim=True)
    frames = frames - 0.97 * torch.cat([frames[..., :1], frames[..., :-1]], -1)
    position = torch.arange(WINDOW, device=wave.device) * (2 * math.pi / (WINDOW - 1))
    povey = (0.5 - 0.5 * torch.cos(position)) ** 0.85
    power = torch.fft.rfft(F.pad(frames * povey, (0, FFT - WINDOW))).abs() ** 2
    energy = power[..., : FFT // 2] @ filters(wave.device).T
    log = torch.log(energy.clamp(min=torch.finfo(torch.float32).eps))
    return log - log.mean(1, keepdim=True)
