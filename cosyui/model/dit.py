"""The flow's velocity estimator: a diffusion transformer with adaptive layer norm.

Source: DiT (Peebles & Xie, 2023, arXiv:2212.09748), F5-TTS (Chen et al., 2024, arXiv:2410.06885, section 3) for the
speech variant; CosyVoice 3 (arXiv:2505.17589) for the conditioning and the block mask of streaming. Tensor names are
those of a released ``flow.pt``.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cosyui.model.config import FlowConfig

NORM_EPS = 1e-6
TIME_CHANNELS = 256
POSITION_KERNEL = 31
POSITION_GROUPS = 16


def attention_mask(lengths: Tensor | None, frames: int, block: int | None, device: torch.device) -> Tensor | None:
    """Which key frames a query frame sees: bool, broadcastable to (B, 1, frames, frames); None = all.

    ``lengths`` (B,) int64: valid frames; ``block``: frames of a streaming block: a query sees its own block and all
    earlier ones (None = not streaming).
    """
    mask: Tensor | None = None
    position = torch.arange(frames, device=device)
    if lengths is not None:
        mask = (position < lengths[:, None])[:, None, None, :]
    if block is not None:
        causal = position < ((position // block + 1) * block)[:, None]
        mask = causal[None, None] if mask is None else mask & causal
    return mask


def time_features(t: Tensor) -> Tensor:
    """Sinusoidal features of diffusion time: (B,) in [0, 1] -> (B, 256) float32."""
    half = TIME_CHANNELS // 2
    rate = torch.exp(torch.arange(half, device=t.device, dtype=torch.float32) * -(math.log(10000.0) / (half - 1)))
    angle = 1000.0 * t.float()[:, None] * rate
    return torch.cat([angle.sin(), angle.cos()], dim=-1)


def rotate_pairs(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary embedding on neighbouring pairs (2i, 2i+1) of the first head's channels; the other heads have none.

    ``x`` (B, T, heads * head_dim); ``cos``/``sin`` (T, head_dim / 2) float32.
    """
    width = 2 * cos.shape[-1]
    head = x[..., :width].float()
    even, odd = head[..., 0::2], head[..., 1::2]
    turned = torch.stack([even * cos - odd * sin, odd * cos + even * sin], dim=-1).flatten(-2)
    return torch.cat([turned.to(x.dtype), x[..., width:]], dim=-1)


class TimeEmbedding(nn.Module):
    def __init__(self, dim: int) -> None:
        super().__init__()
        self.time_mlp = nn.Sequential(nn.Linear(TIME_CHANNELS, dim), nn.SiLU(), nn.Linear(dim, dim))

    def forward(self, t: Tensor) -> Tensor:
        first = self.time_mlp[0]
        assert isinstance(first, nn.Linear)
        out: Tensor = self.time_mlp(time_features(t).to(first.weight.dtype))
        return out


class ConvPositionEmbedding(nn.Module):
    """Two causal grouped convolutions that tell a frame where it is; nothing to the right is seen."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.conv1 = nn.Sequential(nn.Conv1d(dim, dim, POSITION_KERNEL, groups=POSITION_GROUPS), nn.Mish())
        self.conv2 = nn.Sequential(nn.Conv1d(dim, dim, POSITION_KERNEL, groups=POSITION_GROUPS), nn.Mish())

    def forward(self, x: Tensor) -> Tensor:
        x = x.transpose(1, 2)
        for conv in (self.conv1, self.conv2):
            x = conv(F.pad(x, (POSITION_KERNEL - 1, 0)))
        return x.transpose(1, 2)


class InputEmbedding(nn.Module):
    def __init__(self, config: FlowConfig) -> None:
        super().__init__()
        self.proj = nn.Linear(4 * config.mel_dim, config.dim)
        self.conv_pos_embed = ConvPositionEmbedding(config.dim)

    def forward(self, x: Tensor, cond: Tensor, mu: Tensor, spks: Tensor) -> Tensor:
        """``x``, ``cond``, ``mu`` (B, T, mel), ``spks`` (B, mel) -> (B, T, dim)."""
        joined = torch.cat([x, cond, mu, spks[:, None].expand(-1, x.shape[1], -1)], dim=-1)
        h: Tensor = self.proj(joined)
        out: Tensor = h + self.conv_pos_embed(h)
        return out


class AdaLayerNorm(nn.Module):
    """Holds the linear layer whose chunks shift, scale and gate a block; see `Block` and `DiT.forward`."""

    def __init__(self, dim: int, chunks: int) -> None:
        super().__init__()
        self.linear = nn.Linear(dim, chunks * dim)
        self.chunks = chunks

    def forward(self, time: Tensor) -> tuple[Tensor, ...]:
        """SiLU of the time embedding (B, dim) -> ``chunks`` tensors (B, 1, dim)."""
        out: Tensor = self.linear(time)
        return out[:, None].chunk(self.chunks, dim=-1)


def modulate(x: Tensor, shift: Tensor, scale: Tensor) -> Tensor:
    return F.layer_norm(x, (x.shape[-1],), eps=NORM_EPS) * (1 + scale) + shift


class Attention(nn.Module):
    def __init__(self, config: FlowConfig) -> None:
        super().__init__()
        inner = config.heads * config.dim_head
        self.heads = config.heads
        self.to_q = nn.Linear(config.dim, inner)
        self.to_k = nn.Linear(config.dim, inner)
        self.to_v = nn.Linear(config.dim, inner)
        self.to_out = nn.ModuleList([nn.Linear(inner, config.dim)])

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor | None) -> Tensor:
        q, k, v = rotate_pairs(self.to_q(x), cos, sin), rotate_pairs(self.to_k(x), cos, sin), self.to_v(x)
        q, k, v = (y.view(*y.shape[:2], self.heads, -1).transpose(1, 2) for y in (q, k, v))
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        out: Tensor = self.to_out[0](mixed.transpose(1, 2).flatten(-2))
        return out


class FeedForward(nn.Module):
    def __init__(self, dim: int, mult: int) -> None:
        super().__init__()
        inner = nn.Sequential(nn.Linear(dim, mult * dim), nn.GELU(approximate="tanh"))
        self.ff = nn.Sequential(inner, nn.Identity(), nn.Linear(mult * dim, dim))

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.ff(x)
        return out


class Block(nn.Module):
    def __init__(self, config: FlowConfig) -> None:
        super().__init__()
        self.attn_norm = AdaLayerNorm(config.dim, 6)
        self.attn = Attention(config)
        self.ff = FeedForward(config.dim, config.ff_mult)

    def forward(self, x: Tensor, time: Tensor, cos: Tensor, sin: Tensor, mask: Tensor | None) -> Tensor:
        shift, scale, gate, ff_shift, ff_scale, ff_gate = self.attn_norm(time)
        x = x + gate * self.attn(modulate(x, shift, scale), cos, sin, mask)
        out: Tensor = x + ff_gate * self.ff(modulate(x, ff_shift, ff_scale))
        return out


class Rotary(nn.Module):
    inv_freq: Tensor

    def __init__(self, dim_head: int) -> None:
        super().__init__()
        exponent = torch.arange(0, dim_head, 2, dtype=torch.float32) / dim_head
        self.register_buffer("inv_freq", 10000.0**-exponent)

    def forward(self, frames: int) -> tuple[Tensor, Tensor]:
        position = torch.arange(frames, device=self.inv_freq.device, dtype=torch.float32)
        angle = torch.outer(position, self.inv_freq.float())
        return angle.cos(), angle.sin()


class DiT(nn.Module):
    """Velocity of the flow at time t."""

    def __init__(self, config: FlowConfig) -> None:
        super().__init__()
        self.time_embed = TimeEmbedding(config.dim)
        self.input_embed = InputEmbedding(config)
        self.rotary_embed = Rotary(config.dim_head)
        self.transformer_blocks = nn.ModuleList([Block(config) for _ in range(config.depth)])
        self.norm_out = AdaLayerNorm(config.dim, 2)
        self.proj_out = nn.Linear(config.dim, config.mel_dim)

    @property
    def blocks(self) -> list[Block]:
        return [block for block in self.transformer_blocks if isinstance(block, Block)]

    def forward(
        self, x: Tensor, mu: Tensor, t: Tensor, spks: Tensor, cond: Tensor, mask: Tensor | None = None
    ) -> Tensor:
        """One evaluation.

        ``x`` (noisy mel), ``mu`` (token condition), ``cond`` (prompt mel): (B, mel, T); ``spks`` (B, mel);
        ``t`` (B,) or (1,) in [0, 1]; ``mask`` as `attention_mask` makes it. Returns (B, mel, T) in the weights' dtype.
        Every layer but attention is causal or framewise, so frames behind ``lengths`` never change a valid one.
        """
        dtype = self.proj_out.weight.dtype
        x, cond, mu = (y.transpose(1, 2).to(dtype) for y in (x, cond, mu))
        time = F.silu(self.time_embed(t))
        h = self.input_embed(x, cond, mu, spks.to(dtype))
        cos, sin = self.rotary_embed(h.shape[1])
        for block in self.transformer_blocks:
            h = block(h, time, cos, sin, mask)
        scale, shift = self.norm_out(time)
        out: Tensor = self.proj_out(modulate(h, shift, scale))
        return out.transpose(1, 2)
