"""One segment on its way from speech tokens to sound: its place in the flow and in the vocoder, chunk by chunk.

Source of the chunk schedule: CosyVoice 2 (arXiv:2412.10117), chunk-aware flow matching, as released.
"""

from __future__ import annotations

from dataclasses import dataclass

from cosyui.engine.flow_runner import FlowPiece, FlowRunner
from cosyui.engine.render import ChunkSchedule, PromptFeatures
from cosyui.engine.vocoder_runner import Kept, VocoderRunner, VocoderState


@dataclass(frozen=True)
class Before:
    """A segment before a chunk: ``frames`` of speech were rendered, and the vocoder's tail was ``kept``."""

    frames: int
    kept: Kept


class Voice:
    """``tokens`` are all speech tokens of the segment so far; `due` says when a chunk of them can be rendered.

    ``stream``: chunks as early as possible, each depending on nothing that comes later; else one chunk at the end, in
    which every frame sees every other. ``speed`` stretches the mel of a whole segment. ``safe``: it is rendered in
    float32, because half precision failed it.
    """

    def __init__(
        self, flow: FlowRunner, vocoder: VocoderRunner, prompt: PromptFeatures, *, stream: bool, speed: float = 1.0
    ) -> None:
        self._flow = flow
        self._prompt = prompt
        self.sequence = flow.open(prompt, stream=stream)
        self.state = vocoder.open()
        self.safe = False
        self.schedule = ChunkSchedule.of(flow.config, len(prompt.speech_tokens)) if stream else None
        self.speed = speed
        self.tokens: list[int] = []
        self.in_flight = False
        self.closed = False

    @property
    def streams(self) -> bool:
        return self.schedule is not None

    def due(self) -> int | None:
        """How many tokens the next chunk ends at, if they and the look-ahead behind them are there."""
        return None if self.schedule is None else self.schedule.due(len(self.tokens))

    def piece(self, end: int, *, final: bool) -> FlowPiece:
        """The flow's work for the chunk that ends at ``end`` tokens."""
        lookahead = 0 if final else self._flow.config.pre_lookahead_len
        return FlowPiece(self.sequence, self.tokens[: end + lookahead], final)

    def rendered(self) -> None:
        """A chunk is done."""
        self.in_flight = False
        if self.closed:
            self._flow.close(self.sequence)

    def before(self) -> Before:
        """What `redo` needs to know of the moment before a chunk."""
        return Before(self.sequence.given - len(self._prompt.mel), self.state.kept)

    def redo(self, flow: FlowRunner, before: Before) -> None:
        """Go back to the moment before the chunk that was just rendered, and go on with ``flow``, a safer one."""
        self._flow.close(self.sequence)
        self._flow = flow
        self.sequence = flow.open(self._prompt, stream=self.streams, given=before.frames)
        self.state = VocoderState(before.kept)
        self.safe, self.in_flight = True, False

    def close(self) -> None:
        """Give back what the flow keeps for it; a chunk that is being rendered is finished first. Twice is fine."""
        if not self.closed and not self.in_flight:
            self._flow.close(self.sequence)
        self.closed = True
