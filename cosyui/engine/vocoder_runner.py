"""Mel frames to samples for many utterances at once, each continued where it stopped.

The vocoder hears a finite number of frames to the left (`CausalHiFT.context`) and `CausalHiFT.lookahead` to the right.
So an utterance keeps that many frames, their pitch and the phase at their start, and nothing is done twice but these.
On a GPU with Triton all utterances of a call are packed into one pass (`cosyui.model.vocoder_packed`), a CUDA graph per
number of frames; elsewhere they are rendered one by one with the plain network.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from cosyui.model.config import VocoderConfig
from cosyui.model.vocoder import CausalHiFT

if TYPE_CHECKING:
    from cosyui.model.vocoder_packed import PackedVocoder, Workspace

SHORTEST_CUT = 64
"""New frames that a piece must get in a batch to be cut there."""
UNLIMITED = 1 << 30


@dataclass(frozen=True)
class Kept:
    """What an utterance goes on from; frames count from its first.

    ``frames`` (n, mel + 1) float32: mel frames from number ``start`` on and, in the last column, their pitch in Hz as
    far as it is ``known``; ``turns`` (H,) float64: phase before them. Samples of ``done`` frames were given out.
    """

    frames: Tensor
    turns: Tensor
    start: int = 0
    known: int = 0
    done: int = 0

    @property
    def total(self) -> int:
        return self.start + len(self.frames)


@dataclass(eq=False)
class VocoderState:
    """One utterance. ``ended``: its last piece was rendered."""

    kept: Kept
    ended: bool = False


class VocoderPiece(NamedTuple):
    """New frames (mel_dim, n) float32 of an utterance; none only if it is ``final``, its last piece."""

    state: VocoderState
    mel: Tensor
    final: bool


@dataclass
class _Job:
    """A piece on its way: frames up to ``taken`` are rendered."""

    piece: VocoderPiece
    kept: Kept
    taken: int = 0
    waves: list[Tensor] = field(default_factory=list)

    @property
    def left(self) -> int:
        return self.piece.mel.shape[1] - self.taken

    @property
    def finished(self) -> bool:
        return self.left == 0 and (not self.piece.final or self.kept.done == self.kept.total)


@dataclass
class _Window:
    """The part of a job that one pass renders: what it kept and ``fresh`` new frames, in slot ``at`` of the pack."""

    job: _Job
    fresh: int
    final: bool
    at: int = 0

    @property
    def length(self) -> int:
        return len(self.job.kept.frames) + self.fresh


class VocoderRunner:
    """``max_frames``: packed frames of one pass on a GPU; more are done in several. One call at a time is in work.

    ``fused``: with the kernels of `vocoder_packed` (None: on CUDA with Triton); ``precision`` as there. Raises
    ValueError for ``max_frames`` too few to get on.
    """

    def __init__(
        self,
        vocoder: CausalHiFT,
        *,
        max_frames: int,
        graphs: bool = True,
        fused: bool | None = None,
        precision: str = "tf32x3",
    ) -> None:
        self.vocoder = vocoder
        self.device = vocoder.conv_post.weight.device
        self.lookahead, self.context = vocoder.lookahead, vocoder.context
        layers = [layer for layer in vocoder.f0_predictor.condnet if isinstance(layer, nn.Conv1d)]
        self.pitch_ahead = layers[0].kernel_size[0] - 1
        self.pitch_back = sum(layer.kernel_size[0] - 1 for layer in layers[1:])
        self.max_frames = UNLIMITED if self.device.type == "cpu" and not fused else max_frames
        if max_frames < self.context + self.lookahead + SHORTEST_CUT:
            raise ValueError(f"max_frames: at least {self.context + self.lookahead + SHORTEST_CUT}")
        self.gap = 0
        self.packed: _Packed | None = None
        if can_fuse(vocoder) if fused is None else fused:
            self.packed = _Packed(self, precision, graphs=graphs and self.device.type == "cuda")
            self.gap = self.packed.net.gap

    def open(self) -> VocoderState:
        """A new utterance."""
        width, turns = self.vocoder.config.in_channels + 1, self.vocoder.harmonics
        frames = torch.empty(0, width, device=self.device)
        return VocoderState(Kept(frames, torch.zeros(turns, dtype=torch.float64, device=self.device)))

    def warm_up(self) -> None:
        """Compile all kernels and record the graph of every size, so that no request waits for it."""
        if self.packed is not None:
            self.packed.warm_up()

    @torch.inference_mode()
    def run(self, pieces: Sequence[VocoderPiece]) -> list[Tensor]:
        """New samples (S,) float32 of each piece, in order, on the device; nothing waits for them.

        The states are those from before if anything raises. Raises ValueError for two pieces of one utterance or a
        piece after the last.
        """
        if len({id(piece.state) for piece in pieces}) < len(pieces) or any(piece.state.ended for piece in pieces):
            raise ValueError("pieces: one for each utterance that has not ended")
        jobs = [_Job(piece, piece.state.kept) for piece in pieces]
        while windows := self._next_pass(jobs):
            if self.packed is not None:
                self.packed.render(windows)
            else:
                for window in windows:
                    self._render(window)
        for job in jobs:
            job.piece.state.kept, job.piece.state.ended = job.kept, job.piece.final
        nothing = torch.empty(0, device=self.device)
        return [(job.waves[0] if len(job.waves) == 1 else torch.cat([nothing, *job.waves])) for job in jobs]

    def _next_pass(self, jobs: Sequence[_Job]) -> list[_Window]:
        """The next windows, in the order of the pieces, as far as they fit."""
        windows: list[_Window] = []
        used = 0
        for job in jobs:
            if job.finished:
                continue
            used += self.gap if windows else 0
            room = self.max_frames - used - len(job.kept.frames)
            fresh = min(room, job.left)
            if fresh < min(job.left, SHORTEST_CUT) or room < 0:
                break
            window = _Window(job, fresh, job.piece.final and fresh == job.left, used)
            windows.append(window)
            used += window.length
        return windows

    def ready(self, window: _Window) -> int:
        """Frames of the utterance whose samples are out after ``window``."""
        kept = window.job.kept
        total = kept.total + window.fresh
        return total if window.final else max(kept.done, total - self.lookahead)

    def advance(self, window: _Window, wave: Tensor, frames: Tensor, turns: Tensor) -> None:
        """Give out ``wave`` and go on from ``frames``, the last ones of the window, with the phase before them."""
        job = window.job
        total, done = job.kept.total + window.fresh, self.ready(window)
        start = total - len(frames)
        known = max(0, total - self.pitch_ahead - start)
        job.kept = Kept(frames, turns, start, known, done)
        job.taken += window.fresh
        job.waves.append(wave)

    def kept_after(self, window: _Window) -> int:
        """Frames at the end of ``window`` that the next one needs."""
        if window.final:
            return 0
        return job_total(window) - max(window.job.kept.start, self.ready(window) - self.context, 0)

    def _render(self, window: _Window) -> None:
        """One window with the plain network."""
        job, vocoder = window.job, self.vocoder
        kept, channels = job.kept, vocoder.config.in_channels
        fresh = job.piece.mel[:, job.taken : job.taken + window.fresh]
        mel = torch.cat([kept.frames[:, :channels].T, fresh.float()], dim=1)[None]
        first = max(0, kept.known - self.pitch_back)
        pitch = vocoder.f0_predictor(mel[:, :, first:])[0, kept.known - first :].float()
        pitch = torch.cat([kept.frames[: kept.known, channels], pitch])
        turns = vocoder.turns(pitch[None]) + kept.turns
        source = vocoder.source(pitch[None], turns, kept.start)
        wave = vocoder.decode(mel, source, torch.tensor([window.length], device=self.device))[0]
        size = vocoder.frame_samples
        out = wave[(kept.done - kept.start) * size : (self.ready(window) - kept.start) * size]
        cut = window.length - self.kept_after(window)
        frames = torch.cat([mel[0], pitch[None]])[:, cut:].T.contiguous()
        self.advance(window, out, frames, turns[0, cut - 1].clone() if cut else kept.turns)


def job_total(window: _Window) -> int:
    return window.job.kept.total + window.fresh


def can_fuse(vocoder: CausalHiFT) -> bool:
    """Whether the kernels can be used: a GPU, Triton, and sizes that they know."""
    if vocoder.conv_post.weight.device.type != "cuda" or importlib.util.find_spec("triton") is None:
        return False
    from cosyui.model.vocoder_packed import fits

    return fits(vocoder.config)


def buckets(max_frames: int) -> list[int]:
    """Sizes of a pass: a graph each. Tiles without frames cost little, so they may be far apart."""
    sizes = [64]
    while sizes[-1] < max_frames:
        sizes.append(min(max_frames, sizes[-1] * 3 // 2 if len(sizes) % 2 else sizes[-2] * 2))
    return sizes


def nbytes(config: VocoderConfig, max_frames: int, dtype: torch.dtype) -> int:
    """Bytes of a runner's static memory on a GPU, without the weights; the pitch predictor's rows are float64."""
    size = torch.finfo(dtype).bits // 8
    rows, per_frame, width = 0, 1, config.base_channels
    for rate in config.upsample_rates:
        per_frame, width = per_frame * rate, width // 2
        rows = max(rows, per_frame * (-(-width // 32) * 32))
    pitch = 8 * (config.f0_channels * 8 + 4 * 96)
    return max_frames * (
        rows * (4 * 4 + 7 * size) + per_frame * 32 * size + 3 * 4 * per_frame * config.istft_hop + pitch
    )


class _Packed:
    """Passes over packed windows, and their graphs."""

    def __init__(self, runner: VocoderRunner, precision: str, *, graphs: bool) -> None:
        from cosyui.model.vocoder_packed import PackedVocoder, Workspace

        self.runner, self.with_graphs = runner, graphs
        self.net: PackedVocoder = PackedVocoder(runner.vocoder, precision)
        self.space: Workspace = Workspace(self.net, runner.max_frames)
        self.sizes = buckets(runner.max_frames)
        self.graphs: dict[int, torch.cuda.CUDAGraph] = {}
        self.done: torch.cuda.Event | None = None

    @torch.inference_mode()
    def warm_up(self) -> None:
        self.space.meta.zero_()
        self.net.compile(self.space, self.sizes)
        for size in reversed(self.sizes):
            self._run(size)

    def render(self, windows: Sequence[_Window]) -> None:
        """One pass: pack, run, cut out the new samples and what is kept."""
        runner, space = self.runner, self.space
        size, channels = runner.vocoder.frame_samples, runner.vocoder.config.in_channels
        frames = next(n for n in self.sizes if n >= windows[-1].at + windows[-1].length)
        stream = torch.cuda.current_stream(runner.device) if runner.device.type == "cuda" else None
        if stream is not None and self.done is not None:
            stream.wait_event(self.done)  # the memory of a pass is shared; the last may have been on another stream
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

    def _describe(self, windows: Sequence[_Window], frames: int) -> tuple[Tensor, Tensor, Tensor]:
        """Metadata (7, frames + 1) of the pack, the frames to keep, and for each window the frame before them."""
        from cosyui.model import vocoder_packed as rows

        runner = self.runner
        period, size = runner.vocoder.noise.shape[0], runner.vocoder.frame_samples
        meta = np.zeros((rows.META_ROWS, frames + 1), np.int32)
        keep: list[np.ndarray] = []
        phases = []
        for index, window in enumerate(windows):
            kept, at, end = window.job.kept, window.at, window.at + window.length
            meta[rows.VALID, at:end] = 1
            meta[rows.FIRST, at:end], meta[rows.END, at:end], meta[rows.SLOT, at:end] = at, end, index
            meta[rows.PLACE, at:end] = np.arange(kept.start, kept.start + window.length) * size % period
            meta[rows.KNOWN, at : at + kept.known] = 1
            meta[rows.START, at] = 1
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
        side = torch.cuda.Stream(self.runner.device)  # type: ignore[no-untyped-call]
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
