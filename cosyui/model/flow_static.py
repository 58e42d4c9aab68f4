"""The packed flow on a GPU: fixed buffers, our kernels, and one CUDA graph for each size of batch.

A batch is rounded up to a size (`round_up`); its whole host side is one array of int32 that says where rows come from
and what attends to what (`Meta`). Two buffers serve all intermediate results of a block: queries, keys and values share
theirs with the feed-forward, and a block's input its with the attention's output.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from cosyui.model.config import FlowConfig
from cosyui.model.dit import NORM_EPS
from cosyui.model.flow_meta import PAGES, Meta, Size, fill_meta, round_up
from cosyui.model.flow_packed import PackedFlow, PageStore, Part, lay_out
from cosyui.model.flow_weights import SHRINK
from cosyui.model.kernels import flow as kernels

_FLOAT32_TILE = 32


@dataclass(frozen=True)
class Tuning:
    """Launch parameters in half precision. ``small``: up to this many frames tiles have 64 rows, from there on 128, and
    ``warps`` and ``conv_warps`` are for tiles of 64 and of 128; ``unroll``: Euler steps in one graph of up to
    ``unroll_up_to`` frames; ``pdl``: attention starts while the kernel before it ends (sm_90). Float32 has
    tiles of `_FLOAT32_TILE`, whose products fit in registers."""

    small: int = 4096
    block_n: int = 64
    warps: tuple[int, int] = (4, 8)
    stages: int = 3
    conv_warps: tuple[int, int] = (4, 8)
    conv_stages: int = 3
    norm_warps: int = 4
    unroll: int = 5
    unroll_up_to: int = 512
    pdl: bool = False


@dataclass
class Buffers:
    """Of the largest batch; smaller ones use the front. Frames with condition come first, then those without."""

    meta: Tensor
    zeros: Tensor
    known: Tensor
    speakers: Tensor
    step: Tensor
    constants: Tensor
    x: Tensor
    x_small: Tensor
    still: Tensor
    h: Tensor
    wide: Tensor
    narrow: Tensor
    added: Tensor
    velocity: Tensor


@dataclass
class _Graphs:
    start: torch.cuda.CUDAGraph
    steps: torch.cuda.CUDAGraph


@dataclass
class StaticFlow:
    """Solves packs of up to ``max_frames`` frames of a `PackedFlow`, and keeps pages in ``store``."""

    packed: PackedFlow
    max_frames: int
    store: PageStore | None = None
    graphs: bool = True
    tuning: Tuning = field(default_factory=Tuning)

    def __post_init__(self) -> None:
        packed = self.packed
        self.largest = self.size_of(self.max_frames, 1)
        self.buffers = self._allocate(self.largest)
        self.dts = torch.tensor(packed.dts, device=packed.device)
        self.conv_weights = [_conv_weight(conv) for conv in packed.convs]
        self._graphs: dict[tuple[int, bool], _Graphs] = {}
        self._pool: Any = None
        self._aside: torch.cuda.Stream | None = None

    def size_of(self, frames: int, pieces: int) -> Size:
        block_m = 64 if round_up(frames) <= self.tuning.small else 128
        if self.packed.dtype == torch.float32:
            block_m = _FLOAT32_TILE
        size = Size.of(frames, self.packed.config.token_mel_ratio, block_m)
        return size if pieces <= size.pieces else self.size_of(size.frames + 1, pieces)

    def fits(self, parts: Sequence[Part]) -> bool:
        size = self.size_of(sum(part.rows for part in parts), len(parts))
        return size.frames <= self.largest.frames and sum(len(part.pages) for part in parts) <= PAGES

    def solve(self, parts: Sequence[Part]) -> Tensor:
        """Mel (N, mel) float32 of the frames of ``parts``: a view that the next call overwrites. No waiting."""
        packed, buffers = self.packed, self.buffers
        rows = sum(part.rows for part in parts)
        size = self.size_of(rows, len(parts))
        meta = torch.from_numpy(fill_meta(size, lay_out(parts, packed.config), parts))
        if packed.device.type == "cuda":
            meta = meta.pin_memory()
        paged = self.store is not None and any(part.pages or part.keep for part in parts)
        graphs = self._captured(size, paged=paged) if self.graphs else None
        buffers.meta[: size.ints].copy_(meta, non_blocking=True)
        packed.known_mel(parts, buffers.zeros[: size.frames], out=buffers.known[: size.frames])
        torch.stack([part.speaker for part in parts], out=buffers.speakers[: len(parts)])
        if graphs is None:
            self._start(size)
            for _ in packed.dts:
                self._step(size, paged=paged)
        else:
            graphs.start.replay()
            for _ in range(len(packed.dts) // self._unroll(size)):
                graphs.steps.replay()
        return buffers.x[:rows]

    def warm(self, frames: int, *, pages: bool = True) -> None:
        """Captures the graphs for packs of ``frames`` frames now; with ``pages`` also those for kept streams."""
        if not self.graphs:
            return
        for paged in (False, True) if pages and self.store is not None else (False,):
            self._captured(self.size_of(frames, 1), paged=paged)

    def _unroll(self, size: Size) -> int:
        unroll = self.tuning.unroll if size.frames <= self.tuning.unroll_up_to else 1
        return unroll if len(self.packed.dts) % unroll == 0 else 1

    @staticmethod
    def nbytes(config: FlowConfig, dtype: torch.dtype, max_frames: int) -> int:
        """Bytes of the buffers, and of what a batch takes for a moment, about."""
        item = dtype.itemsize
        inner = config.heads * config.dim_head
        wide = max(3 * inner, config.ff_mult * config.dim)
        row = 2 * (4 * config.dim + item * (wide + max(inner, config.dim) + config.dim + config.mel_dim))
        row += item * (config.dim + 3 * config.mel_dim) + 4 * config.mel_dim
        # The convolutions over tokens, of which there are fewer than frames.
        row += item * (5 * config.pre_lookahead_channels + 12 * config.mel_dim)
        return round_up(max_frames) * row

    def _allocate(self, size: Size) -> Buffers:
        packed, config = self.packed, self.packed.config
        inner, n = config.heads * config.dim_head, size.frames

        def new(*shape: int, dtype: torch.dtype = packed.dtype) -> Tensor:
            return torch.zeros(shape, dtype=dtype, device=packed.device)

        return Buffers(
            meta=new(size.ints, dtype=torch.int32),
            zeros=new(n, config.mel_dim),
            known=new(n, config.mel_dim),
            speakers=new(size.pieces, config.mel_dim),
            step=new(1, dtype=torch.int32),
            constants=new(*packed.table.shape[1:], dtype=torch.float32),
            x=new(n, config.mel_dim, dtype=torch.float32),
            x_small=new(n, config.mel_dim),
            still=new(n, config.dim),
            h=new(2 * n, config.dim, dtype=torch.float32),
            wide=new(2 * n * max(3 * inner, config.ff_mult * config.dim)),
            narrow=new(2 * n * max(inner, config.dim)),
            added=new(2 * n, config.dim),
            velocity=new(2 * n, config.mel_dim),
        )

    def _captured(self, size: Size, *, paged: bool) -> _Graphs:
        """The graphs of a size: kernels that know of pages take half as long again, so that some do without."""
        found = self._graphs.get((size.frames, paged))
        if found is not None:
            return found
        # A first run outside of the graph: kernels are compiled and libraries set up. It must not keep anything. All
        # layers are alike, so that two of them will do.
        stream = torch.cuda.current_stream(self.packed.device)
        # Always on the same stream: libraries keep a workspace for each, and the graphs use this one's.
        if self._aside is None:
            self._aside = torch.cuda.Stream(self.packed.device)  # type: ignore[no-untyped-call]
        aside = self._aside
        aside.wait_stream(stream)
        with torch.cuda.stream(aside):
            self.buffers.meta.zero_()
            idle = Meta.views(self.buffers.meta, size)
            idle.keep.fill_(-1)
            idle.tokens.fill_(-1)
            self._start(size)
            self._step(size, paged=paged, layers=2)
            if self._pool is None:
                self._pool = torch.cuda.graph_pool_handle()
            twin = self._graphs.get((size.frames, not paged))
            start, steps = twin.start if twin else torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
            if twin is None:
                start.capture_begin(pool=self._pool, capture_error_mode="thread_local")
                self._start(size)
                start.capture_end()
            steps.capture_begin(pool=self._pool, capture_error_mode="thread_local")
            for _ in range(self._unroll(size)):
                self._step(size, paged=paged)
            steps.capture_end()
        stream.wait_stream(aside)
        self._graphs[size.frames, paged] = _Graphs(start, steps)
        return self._graphs[size.frames, paged]

    def _start(self, size: Size) -> None:
        """What is the same in every step, and the noise."""
        packed, buffers, meta = self.packed, self.buffers, Meta.views(self.buffers.meta, size)
        known = buffers.known[: size.frames]
        buffers.still[: size.frames] = packed.condition(meta.tokens, meta.token, known, buffers.speakers, meta.piece)
        torch.index_select(packed.noise, 0, meta.position, out=buffers.x[: size.frames])
        buffers.x_small[: size.frames] = buffers.x[: size.frames]
        buffers.step.zero_()

    def _step(self, size: Size, *, paged: bool, layers: int | None = None) -> None:
        """One Euler step; which one the buffer ``step`` says. ``layers``: only the first of them."""
        packed, buffers, config, meta = (
            self.packed,
            self.buffers,
            self.packed.config,
            Meta.views(self.buffers.meta, size),
        )
        tuning, constants, step = self.tuning, buffers.constants, buffers.step
        block_n = min(tuning.block_n, _FLOAT32_TILE) if packed.dtype == torch.float32 else tuning.block_n
        kv, tails = self.store if self.store is not None and paged else (None, None)
        large = size.block_m > 64
        rows, inner, page = 2 * size.frames, config.heads * config.dim_head, config.chunk_frames
        h, added = buffers.h[:rows], buffers.added[:rows]
        qkv = buffers.wide[: rows * 3 * inner].view(rows, -1)
        hidden = buffers.wide[: rows * config.ff_mult * config.dim].view(rows, -1)
        normed = buffers.narrow[: rows * config.dim].view(rows, -1)
        mixed = buffers.narrow[: rows * inner].view(rows, -1)
        x, x_small = buffers.x[: size.frames], buffers.x_small[: size.frames]

        torch.index_select(packed.table, 0, step, out=constants[None])
        y = torch.mm(x_small, packed.x_proj.t(), out=added[: size.frames])
        kernels.enter(y, buffers.still, packed.proj_bias, h, normed, meta.keep, tails, step, page)
        source, target = normed, added
        for conv, weight in zip(packed.convs, self.conv_weights, strict=True):
            assert conv.bias is not None
            kernels.convolve(
                source, weight, conv.bias, target, meta.tiles, meta.keep, tails, step, page, first=target is added,
                block_m=size.block_m, num_warps=tuning.conv_warps[large], num_stages=tuning.conv_stages,
            )  # fmt: skip
            source, target = added, h
        for layer, weights in enumerate(packed.blocks[:layers]):
            base = 6 * layer
            # The gate is the feed-forward's of the block before.
            kernels.normalise(h, added if layer else None, normed, constants, base - 1, base, base + 1, NORM_EPS,
                              num_warps=tuning.norm_warps)  # fmt: skip
            torch.addmm(weights.qkv_bias, normed, weights.qkv.t(), out=qkv)
            kernels.turn(qkv, packed.cos, packed.sin, meta.position, meta.keep, kv, step, layer, page,
                         pdl=tuning.pdl)  # fmt: skip
            kernels.attend(
                qkv, mixed, kv, meta.tiles, meta.pages, step, layer, config.dim_head, page, block_m=size.block_m,
                block_n=block_n, num_warps=tuning.warps[large], num_stages=tuning.stages, pdl=tuning.pdl,
            )  # fmt: skip
            torch.addmm(weights.out_bias, mixed, weights.out.t(), alpha=SHRINK, out=added)
            kernels.normalise(h, added, normed, constants, base + 2, base + 3, base + 4, NORM_EPS,
                              num_warps=tuning.norm_warps)  # fmt: skip
            _gelu_linear(normed, weights.up, weights.up_bias, hidden)
            torch.addmm(weights.down_bias, hidden, weights.down.t(), alpha=SHRINK, out=added)
        last = 6 * len(packed.blocks)
        kernels.normalise(h, added, normed, constants, last - 1, last + 1, last, NORM_EPS,
                          num_warps=tuning.norm_warps)  # fmt: skip
        out = packed.proj_out
        velocity = torch.addmm(out.bias, normed, out.weight.t(), out=buffers.velocity[:rows])
        kernels.euler(x, x_small, velocity, self.dts, step, config.cfg_rate)
        step += 1


def _gelu_linear(x: Tensor, weight: Tensor, bias: Tensor, out: Tensor) -> None:
    """``out`` = GELU (tanh) of a linear layer; in one call on CUDA, whose library knows no other GELU."""
    if x.is_cuda:
        torch._addmm_activation(bias, x, weight.t(), use_gelu=True, out=out)
    else:
        out.copy_(F.gelu(torch.addmm(bias, x, weight.t()), approximate="tanh"))


def _conv_weight(conv: torch.nn.Conv1d) -> Tensor:
    """(groups, taps, in, out), as the kernel reads it."""
    weight = conv.weight.view(conv.groups, -1, *conv.weight.shape[1:])
    return weight.permute(0, 3, 2, 1).contiguous()
