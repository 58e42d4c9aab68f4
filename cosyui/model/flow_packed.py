"""The flow on packed frames: the pieces of many utterances in one matrix, without padding.

Everything in the estimator is framewise but attention and the two causal convolutions; these look at each piece by
itself. A piece may go on where an earlier one of its utterance ended: keys, values and the last inputs of the
convolutions of finished mask blocks are kept in pages (`PageStore`). Time takes the same few values always, so the
scale, shift and gate of every layer are constants of the checkpoint, computed once in float32. The residual stream is
float32, and what is added to it passes through half precision divided by 16, so that float16 does not overflow there.

Source: `cosyui.model.flow` and `cosyui.model.dit`, whose results these are (docs/parity.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from cosyui.model.config import FlowConfig
from cosyui.model.dit import NORM_EPS, POSITION_KERNEL, Block
from cosyui.model.flow import MAX_FRAMES, Flow, time_steps
from cosyui.model.flow_weights import SHRINK, Modulation, dispose, fuse, modulation_table

HALO = POSITION_KERNEL - 1
"""Frames that a convolution sees before the first one."""


class Part(NamedTuple):
    """One piece of a pack: ``rows`` frames of an utterance from frame ``past`` on.

    ``tokens`` (int64): prompt and generated ids from token ``first_token`` on, look-ahead included; ``block``: frames
    of the streaming mask, 0 if every frame sees all; ``pages``: where the ``past`` frames are kept; ``keep``: pages for
    the first blocks of the rows; ``known`` (at most rows, mel): the prompt's mel of the rows; ``speaker`` (mel,).
    """

    tokens: NDArray[np.int64]
    first_token: int
    past: int
    rows: int
    block: int
    pages: Sequence[int]
    keep: Sequence[int]
    known: Tensor
    speaker: Tensor


class PageStore(NamedTuple):
    """Kept state. A page is one mask block of one utterance.

    ``kv`` (pages, steps, layers, key/value, with/without condition, block, heads * dim_head), ``tails`` (pages, steps,
    convolution, with/without condition, 30, dim), both in the weights' dtype.
    """

    kv: Tensor
    tails: Tensor

    @staticmethod
    def shapes(config: FlowConfig) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Of one page of ``kv`` and of ``tails``."""
        kv = (config.steps, config.depth, 2, 2, config.chunk_frames, config.heads * config.dim_head)
        return kv, (config.steps, 2, 2, HALO, config.dim)


class Rows(NamedTuple):
    """Where the frames of a pack come from: arrays of int64.

    Per frame ``position`` in its utterance, ``token`` row in the packed tokens, ``piece`` and ``keep`` (page * block +
    place in the page, or -1); ``tokens``: all pieces' ids, with rows of -1 behind each piece.
    """

    position: NDArray[np.int64]
    token: NDArray[np.int64]
    piece: NDArray[np.int64]
    keep: NDArray[np.int64]
    tokens: NDArray[np.int64]


def lay_out(parts: Sequence[Part], config: FlowConfig) -> Rows:
    """The rows of a pack. Gaps between the tokens are as long as the convolutions over them reach."""
    gap = np.full(max(config.pre_lookahead_len, 2), -1, dtype=np.int64)
    block, ratio = config.chunk_frames, config.token_mel_ratio
    positions, owners, sources, keeps, tokens, base = [], [], [], [], [], 0
    for index, part in enumerate(parts):
        position = np.arange(part.past, part.past + part.rows)
        keep = np.full(part.rows, -1)
        if part.keep:
            kept = np.asarray(part.keep)[:, None] * block + np.arange(block)
            keep[: kept.size] = kept.reshape(-1)
        positions.append(position)
        owners.append(np.full(part.rows, index))
        sources.append(position // ratio + (base - part.first_token))
        keeps.append(keep)
        tokens += [part.tokens, gap]
        base += len(part.tokens) + len(gap)
    return Rows(*(np.concatenate(column) for column in (positions, sources, owners, keeps, tokens)))


class PackedFlow:
    """Weights of a `Flow` made ready for packed frames, and the solver in plain torch operations.

    The module goes on working: where weights are fused, its own become views. With ``modulation`` other than "keep"
    it no longer does, but for "host" when moved back.
    """

    def __init__(self, flow: Flow, *, modulation: Modulation = "keep") -> None:
        estimator, config = flow.estimator, flow.config
        proj = estimator.input_embed.proj
        self.config = config
        self.flow = flow
        self.dtype = proj.weight.dtype
        self.device = proj.weight.device
        self.noise = flow.noise[0].t().contiguous()
        self.dts = [dt for _, dt in time_steps(config.steps)]
        self.table = modulation_table(estimator, config)
        dispose(estimator, modulation)
        self.blocks = [fuse(block) for block in estimator.transformer_blocks if isinstance(block, Block)]
        self.x_proj = proj.weight[:, : config.mel_dim].contiguous()
        self.rest_proj = proj.weight[:, config.mel_dim :].contiguous()
        self.proj_bias = proj.bias
        self.cos, self.sin = estimator.rotary_embed(MAX_FRAMES)
        embed = estimator.input_embed.conv_pos_embed
        self.convs: list[nn.Conv1d] = [c[0] for c in (embed.conv1, embed.conv2) if isinstance(c[0], nn.Conv1d)]
        self.proj_out = estimator.proj_out

    def condition(self, tokens: Tensor, source: Tensor, known: Tensor, speakers: Tensor, piece: Tensor) -> Tensor:
        """What the input projection makes of all but the noisy mel: (N, dim).

        ``tokens`` (T,) with -1 where there is none, ``known`` (N, mel), ``speakers`` (pieces, mel); the others (N,) as
        in `Rows`.
        """
        look = self.flow.pre_lookahead_layer
        assert look.conv1.bias is not None and look.conv2.bias is not None  # noqa: PT018
        present = (tokens >= 0)[:, None]
        x = self.flow.input_embedding(tokens.clamp(min=0)) * present
        ahead = F.pad(x, (0, 0, 0, look.lookahead)).unfold(0, look.lookahead + 1, 1).flatten(1)
        y = torch.addmm(look.conv1.bias, ahead, look.conv1.weight.flatten(1).t())
        y = F.leaky_relu(y, 0.01, inplace=True).mul_(present)
        behind = F.pad(y, (0, 0, 2, 0)).unfold(0, 3, 1).flatten(1)
        mu = torch.addmm(look.conv2.bias, behind, look.conv2.weight.flatten(1).t()).add_(x)
        joined = torch.cat([known, mu[source], speakers[piece]], dim=1)
        return torch.addmm(self.proj_bias, joined, self.rest_proj.t())

    @staticmethod
    def known_mel(parts: Sequence[Part], zeros: Tensor, out: Tensor | None = None) -> Tensor:
        """The prompts' mel in its frames, of the ``zeros`` in the others up to their length: (len(zeros), mel)."""
        pieces, missing = [], len(zeros)
        for part in parts:
            pieces += [part.known, zeros[: part.rows - len(part.known)]]
            missing -= part.rows
        return torch.cat([*pieces, zeros[:missing]], out=out)

    def solve(self, parts: Sequence[Part], store: PageStore | None) -> Tensor:
        """Mel (N, mel) float32 of the frames of ``parts``, one after the other, in plain torch operations."""
        rows = lay_out(parts, self.config)
        position, source, piece, _, tokens = (torch.from_numpy(y).to(self.device) for y in rows)
        speakers = torch.stack([part.speaker for part in parts])
        known = self.known_mel(parts, speakers.new_zeros(len(position), self.config.mel_dim))
        still = self.condition(tokens, source, known, speakers, piece)
        x, guidance = self.noise[position], self.config.cfg_rate
        turn = self.cos[position][:, None], self.sin[position][:, None]
        for step, dt in enumerate(self.dts):
            with_it, without = self._velocity(step, x, still, turn, parts, store).float().chunk(2)
            x = x + dt * ((1.0 + guidance) * with_it - guidance * without)
        return x

    def _velocity(
        self,
        step: int,
        x: Tensor,
        still: Tensor,
        turn: tuple[Tensor, Tensor],
        parts: Sequence[Part],
        store: PageStore | None,
    ) -> Tensor:
        """(2 * N, mel): with condition, then without."""
        y = x.to(self.dtype) @ self.x_proj.t()
        y = torch.cat([y + still, y + self.proj_bias])
        h = (y + self._convolve(step, y, parts, store)).float()
        for layer, weights in enumerate(self.blocks):
            shift, scale, gate, up_shift, up_scale, up_gate = self.table[step, 6 * layer : 6 * layer + 6]
            a = _modulate(h, scale, shift, self.dtype)
            a = self._attend(step, layer, torch.addmm(weights.qkv_bias, a, weights.qkv.t()), turn, parts, store)
            a = torch.addmm(weights.out_bias, a, weights.out.t(), alpha=SHRINK)
            h.addcmul_(a.float(), gate)
            a = torch.addmm(weights.up_bias, _modulate(h, up_scale, up_shift, self.dtype), weights.up.t())
            a = torch.addmm(weights.down_bias, F.gelu(a, approximate="tanh"), weights.down.t(), alpha=SHRINK)
            h.addcmul_(a.float(), up_gate)
        scale, shift = self.table[step, -2:]
        out: Tensor = self.proj_out(_modulate(h, scale, shift, self.dtype))
        return out

    def _convolve(self, step: int, y: Tensor, parts: Sequence[Part], store: PageStore | None) -> Tensor:
        """Both convolutions over (2 * N, dim), each piece behind its kept tail or zeros, in one call each."""
        block = self.config.chunk_frames
        y = y.view(2, -1, y.shape[1])
        for index, conv in enumerate(self.convs):
            pieces, start = [], 0
            for part in parts:
                own = y[:, start : start + part.rows]
                if part.past:
                    assert store is not None
                    pieces.append(store.tails[part.pages[-1], step, index])
                else:
                    pieces.append(y.new_zeros(2, HALO, y.shape[2]))
                pieces.append(own)
                for place, page in enumerate(part.keep, 1):
                    assert store is not None
                    store.tails[page, step, index] = own[:, place * block - HALO : place * block]
                start += part.rows
            out = F.mish(conv(torch.cat(pieces, dim=1).transpose(1, 2))).transpose(1, 2)
            taken, start = [], 0
            for part in parts:
                taken.append(out[:, start : start + part.rows])
                start += part.rows + HALO
            y = torch.cat(taken, dim=1)
        return y.flatten(0, 1)

    def _attend(
        self,
        step: int,
        layer: int,
        qkv: Tensor,
        turn: tuple[Tensor, Tensor],
        parts: Sequence[Part],
        store: PageStore | None,
    ) -> Tensor:
        """Attention of each piece over its past and itself: (2 * N, 3 * inner) -> (2 * N, inner)."""
        heads = self.config.heads
        qkv = qkv.view(2, qkv.shape[0] // 2, 3, heads, -1)
        _turn(qkv[:, :, :2, 0], *turn)
        out, start = torch.empty_like(qkv[:, :, 0]), 0
        for part in parts:
            stop = start + part.rows
            q, k, v = (qkv[:, start:stop, i] for i in range(3))
            for place, page in enumerate(part.keep):
                assert store is not None
                lo, hi = place * self.config.chunk_frames, (place + 1) * self.config.chunk_frames
                store.kv[page, step, layer, 0] = k[:, lo:hi].flatten(2)
                store.kv[page, step, layer, 1] = v[:, lo:hi].flatten(2)
            if part.past:
                assert store is not None
                past = store.kv[list(part.pages), step, layer].permute(1, 2, 0, 3, 4).flatten(2, 3)
                past = past.view(*past.shape[:-1], heads, -1)
                k, v = torch.cat([past[0], k], dim=1), torch.cat([past[1], v], dim=1)
            q, k, v = (y.transpose(1, 2) for y in (q, k, v))
            block = part.block or part.rows
            for lo in range(0, part.rows, block):
                hi = min(lo + block, part.rows)
                seen = part.past + hi
                mixed = F.scaled_dot_product_attention(q[:, :, lo:hi], k[:, :, :seen], v[:, :, :seen])
                out[:, start + lo : start + hi] = mixed.transpose(1, 2)
            start = stop
        return out.flatten(2).flatten(0, 1)


def _modulate(h: Tensor, scale: Tensor, shift: Tensor, dtype: torch.dtype) -> Tensor:
    return torch.addcmul(shift, F.layer_norm(h, (h.shape[-1],), eps=NORM_EPS), scale).to(dtype)


def _turn(x: Tensor, cos: Tensor, sin: Tensor) -> None:
    """Rotary embedding of neighbouring pairs, in place: ``x`` (2, N, 2, dim_head), the others (N, 1, dim_head / 2)."""
    even, odd = x[..., 0::2].float(), x[..., 1::2].float()
    turned = torch.stack([even * cos - odd * sin, odd * cos + even * sin], dim=-1)
    x.copy_(turned.flatten(-2))
