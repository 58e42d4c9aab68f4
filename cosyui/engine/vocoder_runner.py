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

import torch
from torch import Tensor, nn

from cosyui.model.config import VocoderConfig
from cosyui.model.vocoder import CausalHiFT

if TYPE_CHECKING:
    from cosyui.engine.vocoder_passes import PackedPasses

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
class Window:
    """The part of a job that one pass renders: what it kept and ``fresh`` new frames, in slot ``at`` of the pack."""

    job: _Job
    fresh: int
    final: bool
    at: int = 0

    @property
    def total(self) -> int:
        """Frames of the utterance so far."""
        return self.job.kept.total + self.fresh

    @property
    def length(self) -> int:
        return len(self.job.kept.frames) + self.fresh


class VocoderRunner:
    """``max_frames``: packed frames of one pass on a GPU; more are done in several.

    A runner has memory for one pass, so a call waits on the device for the one before, whatever stream that was on: a
    stream that must not wait for another takes a runner of its own, ``beside`` the other whose weights it shares. An
    utterance may go from one to the other. ``fused``: with the kernels of `vocoder_packed` (None: on CUDA with Triton);
    ``precision`` as there. Raises ValueError for ``max_frames`` too few to get on.
    """

    def __init__(
        self,
        vocoder: CausalHiFT,
        *,
        max_frames: int,
        graphs: bool = True,
        fused: bool | None = None,
        precision: str = "tf32x3",
        beside: VocoderRunner | None = None,
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
        self.packed: PackedPasses | None = None
        if can_fuse(vocoder) if fused is None else fused:
            from cosyui.engine.vocoder_passes import PackedPasses
            from cosyui.model.vocoder_packed import PackedVocoder

            net = beside.packed.net if beside is not None and beside.packed is not None else None
            net = net or PackedVocoder(vocoder, precision)
            self.packed = PackedPasses(self, net, graphs=graphs and self.device.type == "cuda")
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

    def _next_pass(self, jobs: Sequence[_Job]) -> list[Window]:
        """The next windows, in the order of the pieces, as far as they fit."""
        windows: list[Window] = []
        used = 0
        for job in jobs:
            if job.finished:
                continue
            used += self.gap if windows else 0
            room = self.max_frames - used - len(job.kept.frames)
            fresh = min(room, job.left)
            if fresh < min(job.left, SHORTEST_CUT) or room < 0:
                break
            window = Window(job, fresh, job.piece.final and fresh == job.left, used)
            windows.append(window)
            used += window.length
        return windows

    def ready(self, window: Window) -> int:
        """Frames of the utterance whose samples are out after ``window``."""
        done = window.job.kept.done
        return window.total if window.final else max(done, window.total - self.lookahead)

    def advance(self, window: Window, wave: Tensor, frames: Tensor, turns: Tensor) -> None:
        """Give out ``wave`` and go on from ``frames``, the last ones of the window, with the phase before them."""
        job = window.job
        start = window.total - len(frames)
        known = max(0, len(frames) - self.pitch_ahead)
        job.kept = Kept(frames, turns, start, known, self.ready(window))
        job.taken += window.fresh
        job.waves.append(wave)

    def kept_after(self, window: Window) -> int:
        """Frames at the end of ``window`` that the next one needs."""
        if window.final:
            return 0
        return window.total - max(window.job.kept.start, self.ready(window) - self.context, 0)

    def _render(self, window: Window) -> None:
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


def can_fuse(vocoder: CausalHiFT) -> bool:
    """Whether the kernels can be used: a GPU that Triton compiles for (Ampere or later), and sizes that they know."""
    device = vocoder.conv_post.weight.device
    if device.type != "cuda" or importlib.util.find_spec("triton") is None:
        return False
    if torch.cuda.get_device_capability(device) < (8, 0):
        return False
    from cosyui.model.vocoder_layout import fits

    return fits(vocoder.config)


def nbytes(config: VocoderConfig, max_frames: int, dtype: torch.dtype) -> int:
    """Bytes of a runner's static memory on a GPU, without the weights."""
    size = torch.finfo(dtype).bits // 8
    rows, per_frame, width = 0, 1, config.base_channels
    for rate in config.upsample_rates:
        per_frame, width = per_frame * rate, width // 2
        rows = max(rows, per_frame * (-(-width // 32) * 32))
    pitch = 8 * 2 * config.f0_channels + 4 * 128 + size * 96
    return max_frames * (
        rows * (4 * 4 + 7 * size) + per_frame * 32 * size + 3 * 4 * per_frame * config.istft_hop + pitch
    )
