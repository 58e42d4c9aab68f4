"""What real clips have and the teacher's do not: noise and a channel."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def noisy(wave: Tensor) -> Tensor:
    """(B, S) -> the same with white or low-passed noise on half of the rows, 12 .. 60 dB below the speech."""
    batch, device = wave.shape[0], wave.device
    level = wave.pow(2).mean(1, keepdim=True).sqrt()
    ratio_db = torch.empty(batch, 1, device=device).uniform_(12, 60)
    chosen = (torch.rand(batch, 1, device=device) < 0.5).float()
    white = torch.randn_like(wave)
    low = F.avg_pool1d(white[:, None], 9, 1, 4)[:, 0] * 3
    noise = torch.where(torch.rand(batch, 1, device=device) < 0.5, low, white)
    return wave + chosen * noise * level * 10 ** (-ratio_db / 20)


def channel(batch: int, bins: int, device: torch.device, deviation: float) -> Tensor:
    """A random smooth curve over frequency for each row, (B, bins), to add to a log spectrum."""
    points = torch.randn(batch, 1, 6, device=device) * deviation
    return F.interpolate(points, size=bins, mode="linear", align_corners=True)[:, 0]
