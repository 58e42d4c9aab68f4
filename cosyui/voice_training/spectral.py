"""Distance of two waves in spectra of several resolutions (Yamamoto et al., 2020, arXiv:1910.11480)."""

from __future__ import annotations

import torch
from torch import Tensor

from cosyui.speech.features import slaney_filters
from cosyui.voice_training.layout import SAMPLE_RATE

RESOLUTIONS = ((2048, 160), (1024, 80), (512, 40), (256, 20), (128, 10))
"""Window in samples, mel bins."""


def distance(made: Tensor, true: Tensor) -> tuple[Tensor, Tensor]:
    """Waves (B, S) at 24 kHz -> mean absolute log-mel difference, and spectral convergence + 0.3 log magnitude."""
    mels, spectra = [], []
    for size, bins in RESOLUTIONS:
        window = torch.hann_window(size, device=made.device)
        a, b = (
            torch.stft(wave, size, size // 4, window=window, return_complex=True).abs().clamp(min=1e-6)
            for wave in (made, true)
        )
        filters = slaney_filters(SAMPLE_RATE, size, bins).to(made.device)
        mels.append(((filters @ a).clamp(min=1e-5).log() - (filters @ b).clamp(min=1e-5).log()).abs().mean())
        log_difference = (a.clamp(min=1e-4).log() - b.clamp(min=1e-4).log()).abs().mean()
        spectra.append((a - b).norm() / b.norm().clamp(min=1e-3) + 0.3 * log_difference)
    return torch.stack(mels).mean(), torch.stack(spectra).mean()
