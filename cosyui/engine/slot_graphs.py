"""The passes behind `cosyui.engine.slots` on CUDA: Triton kernels, recorded once and replayed as CUDA graphs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from cosyui.engine.decode import LengthRule
from cosyui.engine.slot_steps import Done
from cosyui.model.config import LLMConfig
from cosyui.model.llm_decode import GATE_SCALE, DecodeLLM, SlotState

if TYPE_CHECKING:
    from cosyui.model.kernels.llm_attention import AttentionScratch

PREFILL_LENGTHS = (64, 96, 128, 192, 256, 384, 512, 768, 1024)
"""Rows that a prefill is padded to, from its own length alone: what else runs cannot change its bits."""


class Coming(NamedTuple):
    """Codes on their way to pinned memory."""

    codes: Tensor
    event: torch.cuda.Event

    def ready(self) -> bool:
        return bool(self.event.query())  # type: ignore[no-untyped-call]

    def get(self) -> Tensor:
        self.event.synchronize()
        return self.codes


class Tuning(NamedTuple):
    """How the kernels are launched: ``split`` in positions, rows and columns of a program, programs for a tile of rows.

    Only ``split`` changes the bits of a result.
    """

    pdl: bool = False
    split: int = 128
    attention_warps: int = 4
    row_tile: int = 16
    gate_columns: int = 8
    gate_programs: int = 1 << 16
    project_columns: int = 8
    project_stages: int = 4
    logits_columns: int = 16
    logits_programs: int = 1 << 16


NARROW = Tuning()
"""For up to 16 rows: as many programs as there are tiles, all in flight at once."""
WIDE = Tuning(row_tile=32, gate_programs=132, logits_columns=8, logits_programs=132)
"""For more: what a program reads of the rows counts, so it does several tiles of columns."""


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
        narrow: Tuning = NARROW,
        wide: Tuning = WIDE,
    ) -> None:
        from cosyui.model.kernels.llm_attention import AttentionScratch

        self.model, self.state, self.group = model, state, group
        self.narrow, self.wide = narrow, wide
        config, device = model.config, model.device
        slots, capacity = state.keys.shape[1] - 1, state.keys.shape[3]
        self.padding = slots
        self.buckets = [b for b in (1 << i for i in range(20)) if b < slots] + [slots]
        self.lengths = [length for length in PREFILL_LENGTHS if length < capacity] + [capacity]
        width = config.heads * config.head_dim
        self.rows = torch.full((slots,), slots, dtype=torch.int32, device=device)
        self.x = torch.zeros(slots, config.hidden, device=device)
        self.q = torch.zeros(slots, config.heads, config.head_dim, device=device, dtype=model.dtype)
        self.mixed = torch.zeros(slots, width, device=device, dtype=model.dtype)
        self.product = torch.zeros(slots, config.mlp, device=device, dtype=model.dtype)
        self.logits = torch.zeros(slots, config.speech_vocab, device=device)
        self.codes = {b: torch.zeros(1 + group, b, dtype=torch.int32, device=device) for b in self.buckets}
        self.scratch: AttentionScratch = AttentionScratch(
            slots, config.heads, config.kv_heads, config.head_dim, capacity, narrow.split, device
        )
        self.prompt = torch.zeros(capacity, config.hidden, device=device, dtype=model.dtype)
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
            from cosyui.model.kernels.llm import LONGEST_INNER, inner_tile
        except ImportError:
            return False
        dim = config.head_dim
        power = dim >= 16 and dim & (dim - 1) == 0
        return inner_tile(config.hidden) <= LONGEST_INNER and power and config.heads // config.kv_heads <= 16

    @staticmethod
    def nbytes(config: LLMConfig, slots: int, capacity: int, dtype: torch.dtype) -> int:
        """Bytes of the static buffers and of the longest prefill's activations."""
        width, splits = config.heads * config.head_dim, -(-capacity // NARROW.split)
        row = 4 * (config.hidden + config.speech_vocab) + dtype.itemsize * (2 * width + config.mlp)
        scratch = 4 * config.heads * splits * (config.head_dim + 2)
        prefill = capacity * (16 * config.hidden + 12 * config.mlp + 16)
        return slots * (row + scratch) + prefill

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
        from cosyui.model.kernels import llm_sampler

        state, whole = self.state, self.facts[:4].long()
        slot = whole[:1]
        hidden = self.model.prefill(state, slot, self.prompt[:length])
        state.position.index_copy_(0, slot, whole[1:2].int() - 1)
        state.minimum.index_copy_(0, slot, whole[2:3].int())
        state.maximum.index_copy_(0, slot, whole[3:4].int())
        state.count.index_fill_(0, slot, 0)
        state.active.index_fill_(0, slot, 1)
        state.history.index_fill_(0, slot, -1)
        state.uniforms.index_copy_(0, slot, self.facts[4:].view(1, -1, 2))
        logits = self.model.logits(hidden.index_select(0, whole[1:2] - 1))
        scratch = torch.empty(1, self.model.config.hidden, device=logits.device)
        llm_sampler.sample(
            logits, slot.int(), state, self.model.config, state.pending, self.model.table, scratch, by_slot=True
        )

    def _steps(self, bucket: int) -> None:
        """A group of steps for the first ``bucket`` of ``rows``."""
        from cosyui.model.kernels import llm_sampler

        rows, x, codes, state, pdl = (
            self.rows[:bucket],
            self.x[:bucket],
            self.codes[bucket],
            self.state,
            self._tuning(bucket).pdl,
        )
        llm_sampler.embed(rows, state.token, state.pending, codes[0], self.model.table, x)
        for index in range(self.group):
            self._step(bucket)
            logits = self.logits[:bucket]
            llm_sampler.sample(logits, rows, state, self.model.config, codes[1 + index], self.model.table, x, pdl=pdl)

    def _tuning(self, bucket: int) -> Tuning:
        return self.narrow if bucket <= 16 else self.wide

    def _step(self, bucket: int) -> None:
        """From ``x`` to ``logits``."""
        from cosyui.model.kernels import llm as kernels
        from cosyui.model.kernels.llm_attention import attention

        model, state, tuning = self.model, self.state, self._tuning(bucket)
        rows, x, q, eps = self.rows[:bucket], self.x[:bucket], self.q[:bucket], model.eps
        mixed, product, turn = self.mixed[:bucket], self.product[:bucket], (model.cos, model.sin)
        pdl, tile, at = tuning.pdl, tuning.row_tile, state.position
        project = partial(
            kernels.project, pdl=pdl, row_tile=tile, columns=tuning.project_columns, stages=tuning.project_stages
        )
        for index, layer in enumerate(model.layers):
            keys, values = state.keys[index], state.values[index]
            kernels.qkv(x, layer.norm, eps, layer.qkv, layer.bias, turn, rows, at, q, keys, values, pdl, tile)
            attention(q, keys, values, rows, at, mixed.view_as(q), self.scratch, pdl, tuning.attention_warps)
            project(mixed, layer.out, x, 1.0)
            kernels.gate(
                x, layer.mlp_norm, eps, layer.gate_up, product, 1 / GATE_SCALE, pdl, tile, tuning.gate_columns,
                tuning.gate_programs,
            )  # fmt: skip
            project(product, layer.down, x, GATE_SCALE)
        kernels.logits(
            x, model.norm, eps, model.head, self.logits[:bucket], pdl, tile, tuning.logits_columns,
            tuning.logits_programs,
        )  # fmt: skip
