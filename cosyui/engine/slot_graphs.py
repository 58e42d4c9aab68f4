"""The passes behind `cosyui.engine.slots` on CUDA: Triton kernels, recorded once and replayed as CUDA graphs."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from cosyui.engine.decode import LengthRule
from cosyui.engine.slot_steps import Done
from cosyui.model.config import LLMConfig
from cosyui.model.kernels.llm_tuning import NARROW, WHOLE_ROWS, whole_mail
from cosyui.model.llm_decode import DecodeLLM, SlotState, StepRows

log = logging.getLogger(__name__)

PREFILL_LENGTHS = (64, 96, 128, 192, 256, 384, 512, 768, 1024)
"""Rows that a prefill is padded to, from its own length alone: what else runs cannot change its bits."""
LONGEST_PREFILL = 1536
"""30 s of prompt with its transcript and a long segment are about 1,200; its activations are what the graphs hold."""


class Coming(NamedTuple):
    """Codes on their way to pinned memory."""

    codes: Tensor
    event: torch.cuda.Event

    def ready(self) -> bool:
        return bool(self.event.query())  # type: ignore[no-untyped-call]

    def get(self) -> Tensor:
        self.event.synchronize()
        return self.codes


class Step(Protocol):
    """The kernels from the entered ``stream`` to the logits."""

    stream: StepRows
    alone: bool
    """Whether a step takes the whole device, so that nothing else goes on beside it."""

    def launch(self, rows: int, logits: Tensor) -> None: ...


def best_step(model: DecodeLLM, state: SlotState, rows: int) -> Step:
    """The whole step as one kernel where the device takes it, else kernel by kernel."""
    from cosyui.model.kernels.llm_layers import LayeredStep
    from cosyui.model.kernels.llm_whole import WholeStep
    from cosyui.model.kernels.nvrtc import CompileError

    layout = WholeStep.layout(model, state, rows)
    if layout is not None:
        try:
            return WholeStep(model, state, layout)
        except CompileError as error:
            log.warning("decode steps run kernel by kernel: %s", error)
    return LayeredStep(model, state, rows)


class KernelSteps:
    """Groups of steps as CUDA graphs, one graph for each size of batch; prefills as one graph for each length.

    Without ``graphs`` the same launches are made one by one; then tensors may be on the CPU under Triton's interpreter.
    """

    def __init__(
        self,
        model: DecodeLLM,
        state: SlotState,
        *,
        group: int = 4,
        graphs: bool = True,
        step: Step | None = None,
    ) -> None:
        from cosyui.model.kernels import llm_sampler

        self.model, self.state, self.group = model, state, group
        config, device = model.config, model.device
        slots, capacity = state.keys.shape[1] - 1, state.keys.shape[3]
        self.padding = slots
        self.buckets = [b for b in (1 << i for i in range(20)) if b < slots] + [slots]
        self.longest = min(capacity, LONGEST_PREFILL)
        self.lengths = [length for length in PREFILL_LENGTHS if length < self.longest] + [self.longest]
        self.step = step if step is not None else best_step(model, state, slots)
        self.alone = self.step.alone
        self.stream_rows = self.step.stream
        self.rows = self.stream_rows.slot
        self.rows.fill_(slots)
        self.first_row = StepRows.empty(config, 1, self.stream_rows.squares.shape[1], device, model.dtype)
        self.logits = torch.zeros(slots, config.speech_vocab, device=device)
        self.short = torch.zeros(slots, 2 * llm_sampler.SHORT, dtype=torch.int32, device=device)
        self.codes = {b: torch.zeros(1 + group, b, dtype=torch.int32, device=device) for b in self.buckets}
        self.entry = llm_sampler.Entry(model.table, model.layers[0].norm, model.cos, model.sin)
        self.prompt = torch.zeros(self.longest, config.hidden, device=device, dtype=model.dtype)
        self.facts = torch.zeros(4 + 2 * capacity, dtype=torch.float64, device=device)
        self.facts[0], self.facts[1] = slots, 1
        self.sent: list[int] = []
        self.stream = torch.cuda.Stream(device, priority=-1) if device.type == "cuda" else None  # type: ignore[no-untyped-call]
        self.graphs: dict[tuple[str, int], torch.cuda.CUDAGraph] = {}
        if self.stream is not None:
            self.stream.wait_stream(torch.cuda.current_stream(device))
            if graphs:
                self._record(device)

    @staticmethod
    def fits(config: LLMConfig) -> bool:
        """Whether the kernels can take these sizes; needs Triton."""
        try:
            import cosyui.model.kernels.llm  # noqa: F401
        except ImportError:
            return False
        dim = config.head_dim
        return dim >= 16 and dim & (dim - 1) == 0 and config.heads // config.kv_heads <= 16

    @staticmethod
    def nbytes(config: LLMConfig, slots: int, capacity: int, dtype: torch.dtype) -> int:
        """Bytes of the static buffers and of the longest prefill's activations."""
        width, splits = config.heads * config.head_dim, -(-capacity // NARROW.split)
        parts = -(-config.hidden // min(8, NARROW.down.columns, NARROW.out.columns))
        row = StepRows.nbytes(config, parts, dtype) + 4 * (
            config.speech_vocab + (1 + NARROW.down.splits) * config.hidden
        )
        row += dtype.itemsize * (2 * width + config.mlp) + 2048
        row += 8 * config.heads * splits * (config.head_dim + 2)
        if slots <= WHOLE_ROWS:
            row += 2 * config.layers * whole_mail(config, capacity)
        prefill = min(capacity, LONGEST_PREFILL) * (16 * config.hidden + 12 * config.mlp + 16)
        return slots * row + prefill

    def prefill(self, slot: int, rows: Tensor, rule: LengthRule, uniforms: Tensor) -> None:
        facts = torch.tensor([slot, len(rows), rule.minimum, rule.maximum], dtype=torch.float64)
        facts = torch.cat([facts, uniforms.flatten()])
        length = next(length for length in self.lengths if length >= len(rows))
        with torch.cuda.stream(self.stream):
            self._send(rows, self.prompt[: len(rows)])
            self._send(facts, self.facts[: len(facts)])
            self._play("prefill", length, self._prefill)

    def run(self, slots: Sequence[int]) -> Done | Coming:
        bucket = next(bucket for bucket in self.buckets if bucket >= len(slots))
        padded = [*slots, *[self.padding] * (bucket - len(slots))]
        with torch.cuda.stream(self.stream):
            if padded != self.sent:
                self._send(torch.tensor(padded, dtype=torch.int32), self.rows[:bucket])
                self.sent = padded
            self._play("steps", bucket, self._steps)
            codes = self.codes[bucket]
            if self.stream is None:
                return Done(codes.clone())
            host = torch.empty(codes.shape, dtype=torch.int32, pin_memory=True)
            host.copy_(codes, non_blocking=True)
            event = torch.cuda.Event()  # type: ignore[no-untyped-call]
            event.record()
            return Coming(host, event)

    def _send(self, source: Tensor, target: Tensor) -> None:
        if self.stream is not None:
            source = source.pin_memory()
        target.copy_(source, non_blocking=True)

    def _play(self, kind: str, size: int, launch: Callable[[int], None]) -> None:
        graph = self.graphs.get((kind, size))
        if graph is not None:
            graph.replay()
        else:
            launch(size)

    def _record(self, device: torch.device) -> None:
        """Record all graphs; they share one pool of memory, since only one runs at a time."""
        with torch.cuda.device(device):
            pool = torch.cuda.graph_pool_handle()
            kinds: list[tuple[str, int, Callable[[int], None]]] = []
            kinds += [("prefill", size, self._prefill) for size in reversed(self.lengths)]
            kinds += [("steps", size, self._steps) for size in reversed(self.buckets)]
            for kind, size, launch in kinds:
                # Once unrecorded: kernels are compiled and loaded, which a recording does not allow.
                with torch.cuda.stream(self.stream):
                    launch(size)
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph, pool, self.stream, capture_error_mode="thread_local"):
                    launch(size)
                self.graphs[kind, size] = graph

    def _prefill(self, length: int) -> None:
        """The rows in ``prompt`` into the slot of ``facts``, its state, and its first draw, left in ``pending``."""
        from cosyui.model.kernels import llm_prefill, llm_sampler

        llm_prefill.open_slot(self.facts, self.state, self.first_row.slot)
        logits = llm_prefill.prefill(self.model, self.state, self.facts, self.prompt[:length])
        llm_sampler.sample(
            logits, self.state, self.model.config, self.state.pending, self.short, self.entry, self.first_row,
            by_slot=True,
        )  # fmt: skip

    def _steps(self, bucket: int) -> None:
        """A group of steps for the first ``bucket`` of ``rows``."""
        from cosyui.model.kernels import llm_sampler

        stream, codes = self.stream_rows.first(bucket), self.codes[bucket]
        llm_sampler.embed(self.state, codes[0], self.entry, stream)
        for index in range(self.group):
            self.step.launch(bucket, self.logits[:bucket])
            llm_sampler.sample(
                self.logits[:bucket], self.state, self.model.config, codes[1 + index], self.short, self.entry, stream
            )
