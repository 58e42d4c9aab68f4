"""The speech tokenizer and the speaker encoder of the embedded voice, and the heads they are trained with.

Blocks after ConvNeXt (Liu et al., 2022, arXiv:2201.03545); ternary digits after finite scalar quantisation (Mentzer et
al., 2023, arXiv:2309.15505); attentive statistics pooling (Okabe et al., 2018, arXiv:1803.10963).
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

DIGITS = 8
INSIDE = 0.999
"""Latents are scaled by this before rounding, so that +-1 itself never rounds outside the digits."""
PHONEMES, TONES = 180, 7
STYLE = 256
"""Width of the teacher's voice vector."""
SPEAKER = 192


class ConvNext(nn.Module):
    """Depthwise convolution, then two pointwise layers, as a residual."""

    def __init__(self, width: int, kernel: int = 7) -> None:
        super().__init__()
        self.dw = nn.Conv1d(width, width, kernel, padding=kernel // 2, groups=width)
        self.n = nn.LayerNorm(width)
        self.a = nn.Linear(width, 2 * width)
        self.b = nn.Linear(2 * width, width)
        self.g = nn.Parameter(torch.full((width,), 0.1))

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """``x`` (B, width, T), ``mask`` (B, 1, T) or None -> (B, width, T)."""
        y = self.b(F.gelu(self.a(self.n(self.dw(x).transpose(1, 2))))) * self.g
        out: Tensor = x + y.transpose(1, 2)
        return out if mask is None else out * mask


def _inside(lengths: Tensor, frames: int) -> Tensor:
    return (torch.arange(frames, device=lengths.device) < lengths[:, None])[:, None].float()


class Tokenizer(nn.Module):
    """Whisper log-mel -> 8 ternary digits, 25 a second; each utterance's mean spectrum (channel, timbre) is removed."""

    def __init__(self, width: int = 256, depth: int = 8) -> None:
        super().__init__()
        self.c1 = nn.Conv1d(128, width, 3, stride=2, padding=1)
        self.c2 = nn.Conv1d(width, width, 3, stride=2, padding=1)
        self.blocks = nn.ModuleList([ConvNext(width) for _ in range(depth)])
        self.n = nn.LayerNorm(width)
        self.out = nn.Linear(width, DIGITS)

    def latent(self, features: Tensor, lengths: Tensor | None = None) -> Tensor:
        """(B, 128, T) at 100 frames/s, valid frames ``lengths`` (B,) or None -> (B, N, 8) in (-1, 1) at 25/s."""
        if lengths is None:
            x, after1, after2 = features - features.mean(2, keepdim=True), None, None
        else:
            mask = _inside(lengths, features.shape[2])
            mean = (features * mask).sum(2, keepdim=True) / lengths[:, None, None]
            x = (features - mean) * mask
            halved = (lengths + 1) // 2
            after1 = _inside(halved, (features.shape[2] + 1) // 2)
            after2 = _inside((halved + 1) // 2, (after1.shape[2] + 1) // 2)
        x = F.gelu(self.c1(x))
        x = F.gelu(self.c2(x if after1 is None else x * after1))
        x = x if after2 is None else x * after2
        for block in self.blocks:
            x = block(x, after2)
        return torch.tanh(self.out(self.n(x.transpose(1, 2))))

    def indices(self, features: Tensor) -> Tensor:
        """(B, 128, T) -> speech tokens (B, N) int64 in 0 .. 6560."""
        digits = torch.round(self.latent(features).float() * INSIDE) + 1
        return (digits * 3.0 ** torch.arange(DIGITS, device=features.device)).sum(-1).long()


class TokenizerTrainer(nn.Module):
    """The tokenizer with its four heads: phoneme, tone, pitch and voicing, and mel GIVEN the teacher's voice.

    Since the voice is given to the mel head, the digits need not carry it.
    """

    def __init__(self, width: int = 256) -> None:
        super().__init__()
        self.tok = Tokenizer(width)
        self.inp = nn.Conv1d(DIGITS, width, 3, padding=1)
        self.b = nn.ModuleList([ConvNext(width) for _ in range(3)])
        self.ph = nn.Conv1d(width, PHONEMES, 1)
        self.tone = nn.Conv1d(width, TONES, 1)
        self.f0 = nn.Conv1d(width, 4, 1)
        self.style = nn.Linear(STYLE, width)
        self.c = nn.ModuleList([ConvNext(width) for _ in range(4)])
        self.mel = nn.Conv1d(width, 160, 1)

    def forward(self, features: Tensor, lengths: Tensor, style: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Log-mel (B, 128, T), frames (B,), style (B, 256) -> phoneme, tone (B, classes, N), pitch (B, 4, N) and mel
        (B, 160, N), the last two holding two frames a token. Rounding passes gradients straight through.
        """
        z = self.tok.latent(features, lengths).transpose(1, 2)
        h = self.inp(z + (torch.round(z.detach() * INSIDE) - z.detach()))
        for block in self.b:
            h = block(h)
        voiced = h + self.style(style)[:, :, None]
        for block in self.c:
            voiced = block(voiced)
        return self.ph(h), self.tone(h), self.f0(h), self.mel(voiced)


class Speaker(nn.Module):
    """Mean-free filter bank (B, T, 80) -> speaker vector (B, 192)."""

    def __init__(self, width: int = 192, depth: int = 5) -> None:
        super().__init__()
        self.inp = nn.Conv1d(80, width, 5, stride=2, padding=2)
        self.blocks = nn.ModuleList([ConvNext(width, 5 + 2 * (index % 2)) for index in range(depth)])
        self.att = nn.Sequential(nn.Conv1d(width, 64, 1), nn.Tanh(), nn.Conv1d(64, width, 1))
        self.out = nn.Linear(2 * width, SPEAKER)

    def forward(self, fbank: Tensor) -> Tensor:
        h = F.gelu(self.inp(fbank.transpose(1, 2)))
        for block in self.blocks:
            h = block(h)
        weight = self.att(h).softmax(2)
        mean = (h * weight).sum(2)
        deviation = torch.sqrt(((h * h * weight).sum(2) - mean * mean).clamp(min=1e-5))
        out: Tensor = self.out(torch.cat([mean, deviation], 1))
        return out


class SpeakerTrainer(nn.Module):
    """The speaker encoder with a head that reads the teacher's voice vector, and the temperature of InfoNCE."""

    def __init__(self) -> None:
        super().__init__()
        self.spk = Speaker()
        self.style = nn.Linear(SPEAKER, STYLE)
        self.t = nn.Parameter(torch.tensor(2.3))

    def forward(self, fbank: Tensor) -> tuple[Tensor, Tensor]:
        """(B, T, 80) -> unit vectors (B, 192), style (B, 256)."""
        unit = F.normalize(self.spk(fbank), dim=1)
        return unit, self.style(unit * 10)


def part_of(state: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """The float32 weights of one part of a saved trainer, without ``prefix``."""
    return {name[len(prefix) :]: value.float() for name, value in state.items() if name.startswith(prefix)}
