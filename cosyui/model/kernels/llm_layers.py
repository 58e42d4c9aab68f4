"""A decode step as Triton kernels, five a layer: for every GPU, type and size that `llm_whole` does not take."""

from __future__ import annotations

import torch
from torch import Tensor

from cosyui.model.kernels import llm as kernels
from cosyui.model.kernels.llm_attention import AttentionScratch, attention
from cosyui.model.kernels.llm_tuning import NARROW, ROW_TILE, WIDE, Tuning
from cosyui.model.llm_decode import GATE_SCALE, DecodeLLM, SlotState, StepRows


class LayeredStep:
    """Launches a step for the first rows of ``stream``; ``narrow`` and ``wide``: for up to 16 rows, and for more."""

    alone = False

    def __init__(
        self, model: DecodeLLM, state: SlotState, rows: int, narrow: Tuning = NARROW, wide: Tuning = WIDE
    ) -> None:
        config, device = model.config, model.device
        self.model, self.state, self.narrow, self.wide = model, state, narrow, wide
        self.parts = -(-config.hidden // narrow.down.columns), -(-config.hidden // narrow.out.columns)
        self.stream = StepRows.empty(config, rows, max(self.parts), device, model.dtype)
        self.q = torch.zeros(rows, config.heads, config.head_dim, device=device, dtype=model.dtype)
        self.mixed = torch.zeros(rows, config.heads * config.head_dim, device=device, dtype=model.dtype)
        self.product = torch.zeros(rows, config.mlp, device=device, dtype=model.dtype)
        self.split = kernels.SplitScratch(
            torch.empty(narrow.down.splits * rows * config.hidden, device=device),
            torch.zeros(rows * config.hidden, dtype=torch.int32, device=device),
        )
        self.scratch = AttentionScratch(
            rows, config.heads, config.kv_heads, config.head_dim, state.keys.shape[3], narrow.split, device
        )

    def launch(self, rows: int, logits: Tensor) -> None:
        """From the entered stream to ``logits`` (rows, vocabulary) float32."""
        model, state, tuning = self.model, self.state, self.narrow if rows <= ROW_TILE else self.wide
        stream, q, eps = self.stream.first(rows), self.q[:rows], model.eps
        mixed, product = self.mixed[:rows], self.product[:rows]
        after_down, after_out = self.parts
        for index, layer in enumerate(model.layers):
            keys, values = state.keys[index], state.values[index]
            kernels.qkv(stream, after_down, eps, layer.qkv, layer.bias, q, keys, values, tuning.qkv)
            attention(
                q, keys, values, stream, mixed.view_as(q), self.scratch, tuning.attention_warps,
                tuning.programs,
            )  # fmt: skip
            kernels.project(mixed, layer.out, stream, layer.mlp_norm, 1.0, self.split, tuning.out)
            kernels.gate(stream, after_out, eps, layer.gate_up, product, 1 / GATE_SCALE, tuning.gate)
            norm = model.norm_after(index)
            kernels.project(product, layer.down, stream, norm, GATE_SCALE, self.split, tuning.down)
        kernels.logits(stream, after_down, eps, model.head, logits, tuning.logits)
