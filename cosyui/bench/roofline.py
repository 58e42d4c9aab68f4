"""What the device can do at most, measured on the spot, and how much of it the engine's work needs."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch

from cosyui.engine.needs import Render
from cosyui.engine.render_queue import Rendered, RenderLane
from cosyui.model.config import FlowConfig
from cosyui.model.cosyvoice3 import CosyVoice3
from cosyui.model.dit import POSITION_GROUPS, POSITION_KERNEL

MATMUL_SIZE = {"cuda": 8192, "cpu": 1024}
COPY_BYTES = {"cuda": 1 << 30, "cpu": 1 << 27}
RUNS = 15


@dataclass(frozen=True)
class Ceilings:
    """``matmul``: FLOP/s of a large square product in ``dtype``; ``bandwidth``: bytes/s read and written by a copy."""

    matmul: float
    matmul_size: int
    dtype: str
    bandwidth: float


def measure(device: torch.device, dtype: torch.dtype) -> Ceilings:
    """The ceilings, with the memory for it given back."""
    ceilings = _measure(device, dtype)
    if device.type == "cuda":
        cast("Any", torch._C)._cuda_clearCublasWorkspaces()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)
    return ceilings


def usual_dtype(device: torch.device, precision: str) -> torch.dtype:
    """In which the ceiling of the products is taken; bfloat16 and float16 have the same."""
    if precision == "auto":
        precision = "bfloat16" if device.type == "cuda" else "float32"
    return cast("torch.dtype", getattr(torch, precision))


def _measure(device: torch.device, dtype: torch.dtype) -> Ceilings:
    """Medians over `RUNS`. The matrices are random: zeros let a GPU clock higher than real work does."""
    size = MATMUL_SIZE[device.type]
    left, right = (torch.randn(size, size, device=device).to(dtype) for _ in range(2))
    out = torch.empty(size, size, device=device, dtype=dtype)
    matmul = 2 * size**3 / _seconds(lambda: torch.mm(left, right, out=out), device)
    source = torch.randint(0, 255, (COPY_BYTES[device.type],), dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    bandwidth = 2 * source.numel() / _seconds(lambda: target.copy_(source), device)
    return Ceilings(matmul, size, str(dtype).removeprefix("torch."), bandwidth)


def _seconds(work: Callable[[], object], device: torch.device) -> float:
    for _ in range(3):
        work()
    times = []
    for _ in range(RUNS):
        if device.type == "cuda":
            first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
            first.record()
            work()
            last.record()
            last.synchronize()
            times.append(float(first.elapsed_time(last)) / 1000)
        else:
            began = time.perf_counter()
            work()
            times.append(time.perf_counter() - began)
    return statistics.median(times)


def decode_weight_bytes(model: CosyVoice3) -> int:
    """Weights that a decode step must read once, whatever its batch: all but the tables of which it takes rows."""
    llm = model.llm
    tables = {id(parameter) for name, parameter in llm.named_parameters() if "embed" in name}
    weights = [parameter for parameter in llm.parameters() if id(parameter) not in tables]
    return sum(parameter.numel() * parameter.element_size() for parameter in weights)


def flow_flops(config: FlowConfig, rows: int, keys: float) -> float:
    """Multiplications and additions (2 each) of the solver for ``rows`` mel frames that see ``keys`` frames each.

    With d = dim, h = heads * dim_head, f = ff_mult * d, m = mel_dim, a frame costs in one pass of the network

        input 2 * 4m * d, position convolutions 2 * 2 * 31 * d * d / 16, output 2 * d * m, and in each block
        q, k, v, out 2 * 4 * d * h, attention 2 * 2 * h * keys, feed-forward 2 * 2 * d * f

    times the Euler steps, times 2 for guidance. The modulation by the time step is constant and not counted, nor is
    anything elementwise.
    """
    dim, inner, wide = config.dim, config.heads * config.dim_head, config.ff_mult * config.dim
    block = 8 * dim * inner + 4 * inner * keys + 4 * dim * wide
    around = 8 * config.mel_dim * dim + 4 * POSITION_KERNEL * dim * dim / POSITION_GROUPS + 2 * dim * config.mel_dim
    return 2 * config.steps * rows * (config.depth * block + around)


def seen_keys(rows: int, past: int, block: int) -> float:
    """Frames that each of ``rows`` frames behind ``past`` others sees on average; ``block`` 0: all of them."""
    if not block:
        return past + rows
    ends = [min(past + rows, (past + row) // block * block + block) for row in range(rows)]
    return sum(ends) / max(1, rows)


class RenderMeter:
    """Counts what the engine's render lanes do: batches, their frames, their work, and how long they took."""

    def __init__(self, lanes: Sequence[RenderLane]) -> None:
        self.reset()
        for lane in lanes:
            self._watch(lane)

    def reset(self) -> None:
        self.batches = self.frames = 0
        self.flops = self.flow_seconds = self.vocoder_seconds = 0.0

    def _watch(self, lane: RenderLane) -> None:
        launch, collect = lane.launch, lane.collect
        pending = [0, 0.0]

        def counted_launch(renders: Sequence[Render]) -> None:
            work = [_work(lane, render) for render in renders]
            launch(renders)
            pending[:] = [sum(rows for rows, _ in work), sum(flops for _, flops in work)]

        def counted_collect() -> Iterator[Any]:
            done = list(collect())
            if done:
                rendered: Rendered = done[0][-1]  # the seconds of the batch stand with each of its pieces
                self.batches += 1
                self.frames += int(pending[0])
                self.flops += pending[1]
                self.flow_seconds += rendered.flow_seconds
                self.vocoder_seconds += rendered.vocoder_seconds
            return iter(done)

        watched = cast("Any", lane)
        watched.launch, watched.collect = counted_launch, counted_collect


def _work(lane: RenderLane, render: Render) -> tuple[int, float]:
    """Frames and FLOP of one render."""
    config, sequence = lane.flow.config, render.voice.sequence
    rows = lane.flow.frames_of(render.voice.piece(render.end, final=render.final))
    past = config.chunk_frames * len(sequence.pages)
    keys = seen_keys(rows, past, config.chunk_frames if sequence.stream else 0)
    return rows, flow_flops(config, rows, keys)
