"""Speech tokens to mel: token embedding with look-ahead, then a flow solved by Euler steps.

Source: CosyVoice 2 and 3 (arXiv:2412.10117, arXiv:2505.17589), conditional flow matching section; classifier-free
guidance after Ho & Salimans (arXiv:2207.12598). Tensor names are those of a released ``flow.pt``.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cosyui.model.config import FlowConfig
from cosyui.model.dit import DiT, attention_mask

MAX_FRAMES = 15_000
"""Prompt and generated mel frames together (300 s): the length of the fixed noise that the model is used with."""


def fixed_noise(mel_dim: int, frames: int = MAX_FRAMES) -> Tensor:
    """The noise every utterance starts from, (1, mel_dim, frames) float32: a property of the model, never re-drawn."""
    generator = torch.Generator().manual_seed(0)
    return torch.randn(1, mel_dim, MAX_FRAMES, generator=generator)[:, :, :frames]


def time_steps(steps: int) -> list[tuple[float, float]]:
    """(t, dt) of each Euler step on the cosine schedule t_i = 1 - cos(pi/2 * i/steps), in float32 arithmetic."""
    span = 1 - torch.cos(torch.linspace(0, 1, steps + 1) * 0.5 * math.pi)
    t, plan = span[0], []
    for following in span[1:]:
        dt = following - t
        plan.append((float(t), float(dt)))
        t = t + dt
    return plan


class PreLookahead(nn.Module):
    """Two convolutions that let a token see the few that follow it."""

    def __init__(self, config: FlowConfig) -> None:
        super().__init__()
        self.lookahead = config.pre_lookahead_len
        self.conv1 = nn.Conv1d(config.mel_dim, config.pre_lookahead_channels, self.lookahead + 1)
        self.conv2 = nn.Conv1d(config.pre_lookahead_channels, config.mel_dim, 3)

    def forward(self, x: Tensor) -> Tensor:
        """(B, N, mel) -> (B, N, mel); behind the end there are zeros, so the last ``lookahead`` outputs see those."""
        y = x.transpose(1, 2)
        y = F.leaky_relu(self.conv1(F.pad(y, (0, self.lookahead))), 0.01)
        y = self.conv2(F.pad(y, (2, 0)))
        out: Tensor = y.transpose(1, 2) + x
        return out


class Flow(nn.Module):
    """Speech tokens, a speaker vector and the prompt's mel in; mel frames out. Batch-first, right-padded."""

    noise: Tensor

    def __init__(self, config: FlowConfig) -> None:
        super().__init__()
        self.config = config
        self.input_embedding = nn.Embedding(config.vocab_size, config.mel_dim)
        self.spk_embed_affine_layer = nn.Linear(config.spk_dim, config.mel_dim)
        self.pre_lookahead_layer = PreLookahead(config)
        self.decoder = nn.ModuleDict({"estimator": DiT(config)})
        self.register_buffer("noise", torch.empty(1, config.mel_dim, MAX_FRAMES), persistent=False)

    @property
    def estimator(self) -> DiT:
        estimator = self.decoder["estimator"]
        assert isinstance(estimator, DiT)
        return estimator

    def project_speaker(self, embedding: Tensor) -> Tensor:
        """Speaker vector (B, spk_dim) float32 -> (B, mel) in the weights' dtype."""
        unit = F.normalize(embedding.float(), dim=1).to(self.spk_embed_affine_layer.weight.dtype)
        out: Tensor = self.spk_embed_affine_layer(unit)
        return out

    def encode(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        """Tokens (B, N) int64, prompt first -> condition mu (B, mel, ratio * N).

        Tokens behind ``lengths`` (B,) count as absent (zeros). Where more tokens will follow, the frames of the last
        ``pre_lookahead_len`` tokens are not final: see `forward`.
        """
        valid = torch.arange(tokens.shape[1], device=tokens.device) < lengths[:, None]
        embedded = self.input_embedding(tokens.clamp(min=0)) * valid[:, :, None]
        y: Tensor = self.pre_lookahead_layer(embedded)
        return y.repeat_interleave(self.config.token_mel_ratio, dim=1).transpose(1, 2)

    def solve(
        self,
        mu: Tensor,
        spks: Tensor,
        cond: Tensor,
        lengths: Tensor | None = None,
        *,
        streaming: bool = False,
        steps: int | None = None,
    ) -> Tensor:
        """Euler solve from the fixed noise, with classifier-free guidance as a doubled batch.

        ``mu``, ``cond`` (B, mel, T), ``spks`` (B, mel), ``lengths`` (B,) valid frames -> (B, mel, T) float32.
        Raises ValueError when T exceeds the fixed noise.
        """
        batch, _, frames = mu.shape
        if frames > MAX_FRAMES:
            raise ValueError(f"{frames} mel frames asked for, at most {MAX_FRAMES} (300 s) are possible")
        block = self.config.chunk_frames if streaming else None
        both = None if lengths is None else torch.cat([lengths, lengths])
        mask = attention_mask(both, frames, block, mu.device)
        mu2, spks2, cond2 = (torch.cat([y, torch.zeros_like(y)]) for y in (mu, spks, cond))
        x = self.noise[:, :, :frames].expand(batch, -1, -1)
        guidance = self.config.cfg_rate
        for t, dt in time_steps(steps or self.config.steps):
            time = torch.full((1,), t, device=mu.device)
            velocity = self.estimator(torch.cat([x, x]), mu2, time, spks2, cond2, mask).float()
            conditional, unconditional = velocity.chunk(2)
            x = x + dt * ((1.0 + guidance) * conditional - guidance * unconditional)
        return x

    def forward(
        self,
        tokens: Tensor,
        lengths: Tensor,
        prompt_mel: Tensor,
        prompt_lengths: Tensor,
        embedding: Tensor,
        *,
        streaming: bool = False,
        finalize: bool = True,
        steps: int | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Mel of prompt and speech.

        ``tokens`` (B, N) int64: prompt tokens followed by generated ones, right-padded; ``lengths`` (B,) their count;
        ``prompt_mel`` (B, P, mel) float32 with ``prompt_lengths`` (B,) frames; ``embedding`` (B, spk_dim).
        Without ``finalize`` the last ``pre_lookahead_len`` tokens only serve as look-ahead.
        Returns mel (B, mel, ratio * N) float32 including the prompt's frames, and the valid frames (B,) of each row.
        """
        config = self.config
        given = lengths if finalize else lengths - config.pre_lookahead_len
        frames = given * config.token_mel_ratio
        mu = self.encode(tokens, lengths)[:, :, : int(frames.max())]
        cond = torch.zeros_like(mu)
        span = min(prompt_mel.shape[1], mu.shape[2])
        inside = torch.arange(span, device=mu.device) < prompt_lengths[:, None]
        cond[:, :, :span] = (prompt_mel[:, :span] * inside[:, :, None]).transpose(1, 2)
        spks = self.project_speaker(embedding)
        ragged = None if bool((frames == mu.shape[2]).all()) else frames
        return self.solve(mu, spks, cond, ragged, streaming=streaming, steps=steps), frames
