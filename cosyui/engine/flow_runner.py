"""Tokens to mel for many requests at once: whole segments and streams in one pack of frames.

A stream's frames see their own block of the flow's mask and earlier ones, so a chunk never changes what came before
it. While there are pages, finished blocks are kept and a chunk costs its own frames; without, the chunk is computed
from where the kept blocks end. The result is the same.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cosyui.engine.flow_cache import PagePool
from cosyui.engine.render import PromptFeatures
from cosyui.model.flow import MAX_FRAMES, Flow
from cosyui.model.flow_packed import PackedFlow, Part
from cosyui.model.flow_weights import Modulation

if TYPE_CHECKING:
    from cosyui.model.flow_static import StaticFlow, Tuning


@dataclass(eq=False)
class FlowSequence:
    """One segment of one request.

    ``given``: frames handed out, prompt included; ``pages``: of its first blocks, in order, while they are kept.
    """

    prompt: PromptFeatures
    stream: bool
    tokens: NDArray[np.int64]
    known: Tensor
    speaker: Tensor
    given: int
    pages: list[int] = field(default_factory=list)


class FlowPiece(NamedTuple):
    """What to render: ``tokens`` are all generated tokens of the segment so far; ``final``: there will be no more.

    The last ``pre_lookahead_len`` tokens of a piece that is not final only serve as look-ahead.
    """

    sequence: FlowSequence
    tokens: Sequence[int]
    final: bool


class _Span(NamedTuple):
    """Frames of an utterance: ``start`` to ``stop`` are computed, ``given`` to ``stop`` are new."""

    start: int
    stop: int
    given: int


class FlowRunner:
    """Renders batches of pieces. ``max_frames``: packed frames of a batch; ``cache_bytes``: for the pages of streams.

    ``modulation``: see `PackedFlow`. On CUDA batches run as graphs on fixed buffers (`StaticFlow`); on a CPU, without
    Triton, for packs of more than ``max_frames`` and for sizes that the kernels do not take, in plain torch operations.
    """

    def __init__(
        self,
        flow: Flow,
        *,
        max_frames: int,
        cache_bytes: int = 0,
        graphs: bool = True,
        modulation: Modulation = "keep",
        tuning: Tuning | None = None,
        kernels: bool | None = None,
    ) -> None:
        self.config = flow.config
        self.flow = flow
        self.packed = PackedFlow(flow, modulation=modulation)
        self.pool = PagePool(flow.config, cache_bytes, self.packed.dtype, self.packed.device)
        self._setup(max_frames, graphs, tuning, kernels)

    def _setup(self, max_frames: int, graphs: bool, tuning: Tuning | None, kernels: bool | None) -> None:
        self.max_frames = max_frames
        self.static: StaticFlow | None = None
        self._done: torch.cuda.Event | None = None
        head = self.config.dim_head
        if (_runs_triton(self.packed.device) if kernels is None else kernels) and head >= 16 and head & (head - 1) == 0:
            from cosyui.model.flow_static import StaticFlow, Tuning

            graphs = graphs and self.packed.device.type == "cuda"
            self.static = StaticFlow(self.packed, max_frames, self.pool.store, graphs, tuning or Tuning())

    def lane(self, max_frames: int, *, graphs: bool = True) -> FlowRunner:
        """A runner of the same weights and pages with buffers of its own, to be used on another CUDA stream.

        Sequences may move between lanes.
        """
        other = object.__new__(FlowRunner)
        other.config, other.flow, other.packed, other.pool = self.config, self.flow, self.packed, self.pool
        other._setup(max_frames, graphs, self.static.tuning if self.static else None, self.static is not None)
        return other

    def open(self, prompt: PromptFeatures, *, stream: bool, given: int = 0) -> FlowSequence:
        """Begin a segment. ``given``: generated frames that are not wanted again, for a segment taken over."""
        device, dtype = self.packed.device, self.packed.dtype
        return FlowSequence(
            prompt=prompt,
            stream=stream,
            tokens=prompt.speech_tokens.numpy(force=True),
            known=prompt.mel.to(device).to(dtype),
            speaker=self.flow.project_speaker(prompt.speaker.to(device)[None])[0],
            given=len(prompt.mel) + given,
            pages=self.pool.of_prompt(prompt) if stream else [],
        )

    def close(self, sequence: FlowSequence) -> None:
        """Gives its pages back; to be called once it is of no more use, also in the middle. Twice does no harm."""
        self.pool.give(sequence.pages)
        sequence.pages = []

    def frames_of(self, piece: FlowPiece) -> int:
        """Packed frames that this piece costs now; 0 if it has nothing new."""
        span = self._span(piece)
        return max(0, span.stop - span.start)

    def warm(self, frames: int, *, pages: bool = True) -> None:
        """Makes ready for packs of ``frames`` frames, so that the first of them need not; without a GPU nothing.

        ``pages``: also for streams that are kept; a runner of whole segments only can do without.
        """
        if self.static is not None:
            if self._done is not None:
                torch.cuda.current_stream(self.packed.device).wait_event(self._done)
            self.static.warm(frames, pages=pages)

    @torch.inference_mode()
    def run(self, pieces: Sequence[FlowPiece]) -> list[Tensor]:
        """Mel (mel_dim, new frames) float32 on the device of each piece, without the prompt's.

        Put on the current stream without waiting. A stream that is not final gives frames up to the end of its last
        complete mask block only. Raises ValueError for a piece longer than the model's noise, for a whole segment that
        is not final and for a sequence that is there twice.
        """
        spans = [self._span(piece) for piece in pieces]
        if len({id(piece.sequence) for piece in pieces}) < len(pieces):
            raise ValueError("a sequence may be in a batch only once")
        work = [index for index, span in enumerate(spans) if span.stop > span.start]
        taken: dict[int, list[int]] = {}
        try:
            for index in work:
                taken[index] = self._take(pieces[index], spans[index])
            parts = [self._part(pieces[index], spans[index], taken[index]) for index in work]
            mel = self._solve(parts)
        except BaseException:
            for pages in taken.values():
                self.pool.give(pages)
            raise
        results = [mel.new_empty(self.config.mel_dim, 0)] * len(pieces)
        row = 0
        for index in work:
            sequence, span = pieces[index].sequence, spans[index]
            row += span.stop - span.start
            results[index] = mel[:, row - (span.stop - span.given) : row]
            sequence.given = span.stop
            sequence.pages += taken[index]
            self.pool.remember(sequence.prompt, self._prompt_pages(sequence))
        return results

    def _span(self, piece: FlowPiece) -> _Span:
        sequence, ratio, block = piece.sequence, self.config.token_mel_ratio, self.config.chunk_frames
        tokens = len(sequence.tokens) + len(piece.tokens)
        if not piece.final:
            if not sequence.stream:
                raise ValueError("a whole segment is rendered when all of its tokens are there")
            tokens -= self.config.pre_lookahead_len
        stop = ratio * tokens
        if stop > MAX_FRAMES:
            raise ValueError(f"{stop} mel frames asked for, at most {MAX_FRAMES} (300 s) are possible")
        if not piece.final:
            stop = stop // block * block
        start = block * len(sequence.pages)
        return _Span(start, stop if stop > sequence.given else start, sequence.given)

    def _take(self, piece: FlowPiece, span: _Span) -> list[int]:
        """Pages for the blocks of this piece. After a final piece nobody would look at them."""
        if not piece.sequence.stream or piece.final:
            return []
        return self.pool.take((span.stop - span.start) // self.config.chunk_frames)

    def _part(self, piece: FlowPiece, span: _Span, keep: Sequence[int]) -> Part:
        sequence, ratio = piece.sequence, self.config.token_mel_ratio
        # The convolutions over tokens look two back.
        first = max(0, span.start // ratio - 2)
        stop = len(sequence.tokens) + len(piece.tokens)
        if not piece.final:
            stop = span.stop // ratio + self.config.pre_lookahead_len
        tokens = np.concatenate([sequence.tokens, np.asarray(piece.tokens, dtype=np.int64)])
        return Part(
            tokens=tokens[first:stop],
            first_token=first,
            past=span.start,
            rows=span.stop - span.start,
            block=self.config.chunk_frames if sequence.stream else 0,
            pages=list(sequence.pages),
            keep=keep,
            known=sequence.known[span.start : span.stop],
            speaker=sequence.speaker,
        )

    def _solve(self, parts: Sequence[Part]) -> Tensor:
        """(mel_dim, N) of all parts."""
        if not parts:
            return torch.empty(self.config.mel_dim, 0, device=self.packed.device)
        if self.packed.device.type != "cuda":
            return self._mel(parts)
        stream = torch.cuda.current_stream(self.packed.device)
        reading = [page for part in parts for page in part.pages]
        writing = [page for part in parts for page in part.keep]
        self.pool.wait(stream, reading, writing)
        if self._done is not None:
            # The buffers are in use until then, perhaps on another stream.
            stream.wait_event(self._done)
        for part in parts:
            part.known.record_stream(stream)
            part.speaker.record_stream(stream)
        mel = self._mel(parts)
        self.pool.note(stream, reading, writing)
        self._done = stream.record_event()
        return mel

    def _mel(self, parts: Sequence[Part]) -> Tensor:
        if self.static is not None and self.static.fits(parts):
            return self.static.solve(parts).t().contiguous()
        return self.packed.solve(parts, self.pool.store).t().contiguous()

    def _prompt_pages(self, sequence: FlowSequence) -> list[int]:
        """Of its pages those whose frames, and the tokens that these look ahead to, are the prompt's."""
        if not sequence.stream:
            return []
        tokens = max(0, len(sequence.tokens) - self.config.pre_lookahead_len)
        return sequence.pages[: self.config.token_mel_ratio * tokens // self.config.chunk_frames]


def _runs_triton(device: torch.device) -> bool:
    """Triton takes GPUs from Ampere on."""
    if device.type != "cuda" or importlib.util.find_spec("triton") is None:
        return False
    return torch.cuda.get_device_capability(device) >= (8, 0)
