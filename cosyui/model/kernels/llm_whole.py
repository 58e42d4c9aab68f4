"""A decode step as one CUDA kernel, whose blocks stay and meet between the phases (``decode/*.cu*``).

It takes half precision, heads of 64, and a GPU from sm_90 on whose multiprocessors have room for the weights that are
on their way: for the released sizes those of data centres. `LayeredStep` does the same anywhere.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from importlib.resources import files
from typing import NamedTuple

import torch
from torch import Tensor

from cosyui.model.config import LLMConfig
from cosyui.model.kernels.llm_tuning import WHOLE_LINE, WHOLE_ROWS, WHOLE_WARPS, whole_mail
from cosyui.model.kernels.nvrtc import Kernel, compile_source
from cosyui.model.llm_decode import GATE_SCALE, STREAM_SCALE, DecodeLLM, SlotState, StepRows

SOURCES = ("layout.cuh", "handover.cuh", "supply.cuh", "products.cuh", "attention.cuh", "step.cu")
THREADS = 32 * WHOLE_WARPS


class Layout(NamedTuple):
    """For up to ``rows`` in slots of ``capacity``: tiles of 8 columns that a block takes of gate/up and of the logits.

    ``shared``: bytes of shared memory of a block.
    """

    rows: int
    capacity: int
    gate_tiles: int
    logit_tiles: int
    shared: int

    @staticmethod
    def of(config: LLMConfig, rows: int, capacity: int, blocks: int, room: int) -> Layout | None:
        """The one that has work for ``blocks``, or the largest that fits into ``room`` bytes; None if nothing does."""
        for gate_tiles in range(-(-config.mlp // 8 // blocks), 0, -1):
            logit_tiles = min(2 * gate_tiles, -(-config.speech_vocab // 8 // blocks))
            shared = _shared(config, rows, gate_tiles, logit_tiles)
            if shared <= room:
                return Layout(rows, capacity, gate_tiles, logit_tiles, shared)
        return None

    def macros(self, config: LLMConfig, dtype: torch.dtype) -> dict[str, object]:
        return {
            "HIDDEN": config.hidden,
            "HEADS": config.heads,
            "KV": config.kv_heads,
            "MLP": config.mlp,
            "LAYERS": config.layers,
            "VOCABULARY": config.speech_vocab,
            "CAPACITY": self.capacity,
            "BFLOAT16": int(dtype is torch.bfloat16),
            "GATE_TILES": self.gate_tiles,
            "LOGIT_TILES": self.logit_tiles,
            "EPSILON": f"{config.rms_eps!r}f",
            "STREAM_SCALE": f"{STREAM_SCALE!r}f",
            "GATE_SCALE": f"{GATE_SCALE!r}f",
            "MOST_ROWS": self.rows,
            "SHARED_BYTES": self.shared,
        }


POINTERS = ("head", "slot", "at", "turn", "x", "h", "squares", "logits", "keys", "values", "mail", "meeting")


def step_argument(layers: Sequence[int], pointers: Sequence[int], rows: int, slots: int) -> ctypes.Structure:
    """``Step`` of ``layout.cuh``; ``layers``: the addresses of all layers' weights, one layer after another."""

    class Step(ctypes.Structure):
        _fields_ = (
            ("layers", ctypes.c_void_p * len(layers)),
            *((name, ctypes.c_void_p) for name in POINTERS),
            ("rows", ctypes.c_int),
            ("slots", ctypes.c_int),
        )

    return Step((ctypes.c_void_p * len(layers))(*layers), *pointers, rows, slots)


class WholeStep:
    """Launches a step for the first rows of ``stream``; ``run`` runs the kernel on other devices than CUDA.

    Raises:
        CompileError
    """

    alone = True

    def __init__(
        self, model: DecodeLLM, state: SlotState, layout: Layout, run: Callable[[ctypes.Structure], None] | None = None
    ) -> None:
        config, device, dtype = model.config, model.device, model.dtype
        self.stream = StepRows.empty(config, layout.rows, config.hidden // 8, device, dtype)
        self.mail = torch.full(
            (config.layers, layout.rows, whole_mail(config, layout.capacity)), -1, dtype=torch.int16, device=device
        )
        self.meeting = torch.zeros(1, dtype=torch.int32, device=device)
        self.model, self.state = model, state
        self._run = run if run is not None else _on_device(config, dtype, device, layout)

    @staticmethod
    def layout(model: DecodeLLM, state: SlotState, rows: int) -> Layout | None:
        """None where the kernel does not run."""
        config, device = model.config, model.device
        if device.type != "cuda" or model.dtype not in (torch.float16, torch.bfloat16):
            return None
        from cosyui.model.kernels.launch import shared_memory  # needs Triton

        properties = torch.cuda.get_device_properties(device)
        if properties.major < 9 or rows > WHOLE_ROWS or not _sizes_fit(config):
            return None
        return Layout.of(
            config,
            rows,
            state.keys.shape[3],
            properties.multi_processor_count,
            shared_memory(device),
        )

    def launch(self, rows: int, logits: Tensor) -> None:
        """From the entered stream to ``logits`` (rows, vocabulary) float32."""
        tensors = (
            self.model.head, *self.stream, logits, self.state.keys, self.state.values, self.mail, self.meeting,
        )  # fmt: skip
        pointers = [tensor.data_ptr() for tensor in tensors]
        self._run(step_argument(_layers(self.model), pointers, rows, self.state.keys.shape[1]))


def kernel_source() -> str:
    folder = files("cosyui.model.kernels") / "decode"
    return "\n".join((folder / name).read_text() for name in SOURCES)


def _on_device(
    config: LLMConfig, dtype: torch.dtype, device: torch.device, layout: Layout
) -> Callable[[ctypes.Structure], None]:
    properties = torch.cuda.get_device_properties(device)
    primitives = (files("cosyui.model.kernels") / "decode" / "device.cuh").read_text()
    cubin = compile_source(
        primitives + kernel_source(),
        "decode_step.cu",
        f"sm_{properties.major}{properties.minor}",
        layout.macros(config, dtype),
    )
    with torch.cuda.device(device):
        kernel = Kernel(cubin, "decode_step", layout.shared)
    blocks = properties.multi_processor_count
    return lambda argument: kernel.launch_together(blocks, THREADS + 32, argument)


def _layers(model: DecodeLLM) -> list[int]:
    return [
        tensor.data_ptr()
        for index, layer in enumerate(model.layers)
        for tensor in (
            layer.qkv, layer.bias, layer.out, layer.mlp_norm, layer.gate_up, layer.down, model.norm_after(index),
        )
    ]  # fmt: skip


def _sizes_fit(config: LLMConfig) -> bool:
    group = config.heads // config.kv_heads
    whole = all(size % 64 == 0 for size in (config.hidden, config.mlp))
    return whole and config.head_dim == 64 and group * config.head_dim <= THREADS


def _sums(tiles: int) -> int:
    return WHOLE_WARPS * 16 * (tiles * 8 + (0 if tiles % 2 else 8)) * 4


def _shared(config: LLMConfig, rows: int, gate_tiles: int, logit_tiles: int) -> int:
    """SHARED_BYTES, as ``layout.cuh`` adds it up."""
    hidden, query, mlp = (16 * size for size in (config.hidden, config.heads * config.head_dim, config.mlp))
    mixed = max(WHOLE_WARPS * (config.heads // config.kv_heads) * WHOLE_LINE * 4, _sums(2))
    room_a = max(max(2 * gate_tiles, logit_tiles) * hidden, _sums(2 * gate_tiles))
    room_b = max(2 * hidden + query + mixed, mlp, _sums(logit_tiles))
    return room_a + room_b + _sums(1) + rows * 8 + 128
