"""Passes of the vocoder over many utterances at once, on a GPU (`cosyui.engine.vocoder_runner` says what is in one)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from cosyui.model import vocoder_packed as layout
from cosyui.model.vocoder_packed import PackedVocoder, Workspace

if TYPE_CHECKING:
    from cosyui.engine.vocoder_runner import VocoderRunner, Window


def buckets(max_frames: int) -> list[int]:
    """Sizes of a pass: a graph each. Tiles without frames cost little, so they may be far apart."""
    sizes = [64]
    while sizes[-1] < max_frames:
        sizes.append(min(max_frames, sizes[-1] * 3 // 2 if len(sizes) % 2 else sizes[-2] * 2))
    return sizes


class PackedPasses:
    """Passes over packed windows for a runner: their memory, and a graph for each number of frames."""

    def __init__(self, runner: VocoderRunner, net: PackedVocoder, *, graphs: bool) -> None:
        self.runner, self.with_graphs = runner, graphs
        self.net = net
        self.space = Workspace(self.net, runner.max_frames)
        self.sizes = buckets(runner.max_frames)
        self.graphs: dict[int, torch.cuda.CUDAGraph] = {}
        self.done: torch.cuda.Event | None = None
        self.side: torch.cuda.Stream | None = None
        self.prepared: set[int] = set()

    @torch.inference_mode()
    def warm_up(self) -> None:
        self.space.meta.zero_()
        self._prepare(self.sizes)
        for size in reversed(self.sizes):
            self._run(size)

    def _prepare(self, sizes: Sequence[int]) -> None:
        """Compile on all cores what these sizes need, and never one kernel after the other in their first pass."""
        missing = [size for size in sizes if size not in self.prepared]
        if missing and self.runner.device.type == "cuda":
            self.net.compile(self.space, missing)
        self.prepared.update(missing)

    def render(self, windows: Sequence[Window]) -> None:
        """One pass: pack, run, cut out the new samples and what is kept."""
        runner, space = self.runner, self.space
        size, channels = runner.vocoder.frame_samples, runner.vocoder.config.in_channels
        frames = next(n for n in self.sizes if n >= windows[-1].at + windows[-1].length)
        stream = torch.cuda.current_stream(runner.device) if runner.device.type == "cuda" else None
        if stream is not None and self.done is not None:
            stream.wait_event(self.done)  # the memory of a pass is shared; the last may have been on another stream
        self._prepare([frames])
        meta, keep, phases = self._describe(windows, frames)
        space.meta[:, : frames + 1].copy_(meta, non_blocking=True)
        space.frames[:frames].zero_()
        for window in windows:
            job = window.job
            kept, fresh = job.kept.frames, job.piece.mel[:, job.taken : job.taken + window.fresh]
            middle = window.at + len(kept)
            if len(kept):
                space.frames[window.at : middle].copy_(kept)
            space.frames[middle : middle + window.fresh, :channels].copy_(fresh.T)
            if stream is not None:
                for tensor in (kept, job.kept.turns, fresh):
                    tensor.record_stream(stream)
        torch.stack([window.job.kept.turns for window in windows], out=space.offsets[: len(windows)])
        self._run(frames)
        wave = space.wave[: frames * size].clone()
        kept_frames, kept_turns = space.frames.index_select(0, keep), space.turns.index_select(0, phases)
        if stream is not None:
            self.done = stream.record_event(self.done)
        begin = 0
        for index, window in enumerate(windows):
            before = window.job.kept
            first, end = (window.at + n - before.start for n in (before.done, runner.ready(window)))
            count = runner.kept_after(window)
            moved = window.length > count
            turns = kept_turns[index] if moved else before.turns
            runner.advance(window, wave[first * size : end * size], kept_frames[begin : begin + count], turns)
            begin += count

    def _describe(self, windows: Sequence[Window], frames: int) -> tuple[Tensor, Tensor, Tensor]:
        """Metadata (7, frames + 1) of the pack, the frames to keep, and for each window the frame before them."""
        runner = self.runner
        period, size = runner.vocoder.noise.shape[0], runner.vocoder.frame_samples
        meta = np.zeros((layout.META_ROWS, frames + 1), np.int32)
        keep: list[np.ndarray] = []
        phases = []
        for index, window in enumerate(windows):
            kept, at, end = window.job.kept, window.at, window.at + window.length
            meta[layout.VALID, at:end] = 1
            meta[layout.FIRST, at:end], meta[layout.END, at:end], meta[layout.SLOT, at:end] = at, end, index
            meta[layout.PLACE, at:end] = np.arange(kept.start, kept.start + window.length) * size % period
            meta[layout.KNOWN, at : at + kept.known] = 1
            meta[layout.START, at] = 1
            count = runner.kept_after(window)
            keep.append(np.arange(end - count, end, dtype=np.int32))
            phases.append(max(end - count - 1, 0))
        flat = torch.from_numpy(np.concatenate([meta.ravel(), *keep, np.array(phases, np.int32)]))
        if runner.device.type == "cuda":
            flat = flat.pin_memory().to(runner.device, non_blocking=True)
        last = len(flat) - len(phases)
        return flat[: meta.size].view(meta.shape), flat[meta.size : last], flat[last:]

    def _run(self, frames: int) -> None:
        if not self.with_graphs:
            self.net.run(self.space, frames)
            return
        graph = self.graphs.get(frames)
        if graph is None:
            graph = self._record(frames)
        graph.replay()

    def _record(self, frames: int) -> torch.cuda.CUDAGraph:
        """Kernels are compiled and libraries set up in a first run: neither can be done while recording."""
        current = torch.cuda.current_stream(self.runner.device)
        if self.side is None:
            self.side = torch.cuda.Stream(self.runner.device)  # type: ignore[no-untyped-call]
        side = self.side
        side.wait_stream(current)
        with torch.cuda.stream(side):
            self.net.run(self.space, frames)
        pool = next(iter(self.graphs.values())).pool() if self.graphs else None
        graph = torch.cuda.CUDAGraph()
        side.synchronize()
        with torch.cuda.graph(graph, pool=pool, stream=side, capture_error_mode="thread_local"):
            self.net.run(self.space, frames)
        current.wait_stream(side)
        self.graphs[frames] = graph
        return graph
