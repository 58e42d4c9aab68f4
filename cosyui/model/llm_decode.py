"""The speech LLM laid out for decoding many requests side by side, each in its own slot.

`SlotState` holds what a slot knows between steps, `DecodeLLM` the weights as a decode step reads them: the query, key
and value projections of a layer in one matrix, gate and up in another. The modules' own weights become views of these.

The residual stream is float32 and the MLP's product is kept scaled by ``1 / GATE_SCALE``, so that float16 cannot
overflow where this model's activations are largest; for other types the scaling changes no bit.

Source of the network: see `cosyui.model.llm`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cosyui.model.config import LLMConfig
from cosyui.model.llm import MLP, Attention, DecoderLayer, SpeechLM

NOTHING, BAD, ENDED = -1, -2, -3
"""Codes in place of a token: the row did not run; a logit was not finite; a stop id was drawn."""
GATE_SCALE = 16.0
STREAM_SCALE = 64.0
"""By which the residual stream is divided where the kernels keep it in the model's type."""

Attend = Callable[[int, Tensor, Tensor, Tensor], Tensor]
"""(layer, q (T, heads, D), k and v (T, kv, D)) -> mixed values (T, heads, D)."""


class SlotState:
    """Tensors indexed by slot; the last slot takes the padding rows of a batch.

    ``keys``/``values`` (layers, slots, kv, capacity, D) in the model's type. int32: ``token`` to feed next and its
    ``position``; ``count`` of tokens drawn, ``minimum`` and ``maximum`` (`LengthRule`), ``active`` 0 or 1, ``history``
    (slots, window) ring of drawn tokens, ``pending`` the code that the prefill drew and no step has passed on yet.
    ``uniforms`` (slots, capacity, 2) float64: the request's own random numbers, two a draw.
    """

    def __init__(self, config: LLMConfig, slots: int, capacity: int, device: torch.device, dtype: torch.dtype) -> None:
        shape = (config.layers, slots, config.kv_heads, capacity, config.head_dim)
        self.keys = torch.zeros(shape, device=device, dtype=dtype)
        self.values = torch.zeros(shape, device=device, dtype=dtype)
        whole = torch.zeros(6, slots, dtype=torch.int32, device=device)
        self.token, self.position, self.count, self.minimum, self.maximum, self.active = whole.unbind()
        self.pending = torch.full((slots,), NOTHING, dtype=torch.int32, device=device)
        self.history = torch.full((slots, max(1, config.sampling.win_size)), -1, dtype=torch.int32, device=device)
        self.uniforms = torch.zeros(slots, capacity, 2, dtype=torch.float64, device=device)

    @staticmethod
    def nbytes(config: LLMConfig, slots: int, capacity: int, dtype: torch.dtype) -> int:
        kept = 2 * config.layers * config.kv_heads * config.head_dim * dtype.itemsize
        return slots * (capacity * (kept + 16) + 4 * (7 + max(1, config.sampling.win_size)))


class StepRows(NamedTuple):
    """What the kernels of a decode step hand on, row by row; row ``r`` belongs to slot ``slot[r]`` int32.

    ``at`` (R,) int32: its position; ``turn`` (R, D) float32: cos and sin there. The residual stream ``x`` (R, hidden)
    float32; ``h``: the same in the model's type, times the next norm's weight, by ``STREAM_SCALE``; ``squares``
    (R, parts) float32, which add up to the sum of a row's squares.
    """

    slot: Tensor
    at: Tensor
    turn: Tensor
    x: Tensor
    h: Tensor
    squares: Tensor

    @staticmethod
    def empty(config: LLMConfig, rows: int, parts: int, device: torch.device, dtype: torch.dtype) -> StepRows:
        return StepRows(
            torch.zeros(rows, dtype=torch.int32, device=device),
            torch.zeros(rows, dtype=torch.int32, device=device),
            torch.zeros(rows, config.head_dim, device=device),
            torch.zeros(rows, config.hidden, device=device),
            torch.zeros(rows, config.hidden, device=device, dtype=dtype),
            torch.zeros(rows, parts, device=device),
        )

    @staticmethod
    def nbytes(config: LLMConfig, parts: int, dtype: torch.dtype) -> int:
        """Of one row."""
        return 4 * (2 + config.head_dim + config.hidden + parts) + dtype.itemsize * config.hidden

    def first(self, rows: int) -> StepRows:
        return StepRows(*(tensor[:rows] for tensor in self))


@dataclass
class FusedLayer:
    """``qkv`` (heads + 2 kv rows of D, hidden) and its ``bias``; ``gate_up`` (2 mlp, hidden); the rest as it is."""

    norm: Tensor
    qkv: Tensor
    bias: Tensor
    out: Tensor
    mlp_norm: Tensor
    gate_up: Tensor
    down: Tensor


class DecodeLLM:
    """Weights of ``llm``, fused in place, and the plain passes over them; the text table moves to the CPU."""

    def __init__(self, llm: SpeechLM, capacity: int) -> None:
        self.config = llm.config
        self.head = llm.llm_decoder.weight.detach()
        self.device, self.dtype = self.head.device, self.head.dtype
        self.norm, self.eps = llm.qwen.norm.weight.detach(), llm.config.rms_eps
        self.table = llm.speech_embedding.weight.detach()
        self.host_table = self.table.cpu()
        self.host_text = llm.qwen.embed_tokens.to("cpu").weight.detach()
        self.layers = [_fuse(layer) for layer in llm.qwen.layers if isinstance(layer, DecoderLayer)]
        exponent = torch.arange(0, self.config.head_dim, 2, dtype=torch.float32, device=self.device)
        frequency = self.config.rope_theta ** -(exponent / self.config.head_dim)
        angle = torch.arange(capacity, device=self.device)[:, None].float() * frequency
        self.cos, self.sin = angle.cos(), angle.sin()

    def norm_after(self, layer: int) -> Tensor:
        """The weight of the norm that follows a layer's MLP: the next layer's, or the last one."""
        return self.norm if layer + 1 == len(self.layers) else self.layers[layer + 1].norm

    def input_rows(self, text_ids: Sequence[int], prompt_speech: Sequence[int]) -> Tensor:
        """``[sos] text [task] prompt speech`` (T, hidden) on the CPU."""
        sos = self.config.speech_token_size
        speech = self.host_table[torch.tensor([sos, sos + 2, *prompt_speech])]
        text = self.host_text[torch.tensor(text_ids, dtype=torch.int64)]
        return torch.cat([speech[:1], text, speech[1:]])

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, attend: Attend) -> Tensor:
        """Residual stream (T, hidden) float32 after the layers; ``cos``/``sin`` (T, 1, D/2) at the rows' positions."""
        heads, kv, dim = self.config.heads, self.config.kv_heads, self.config.head_dim
        for index, layer in enumerate(self.layers):
            mixed = F.linear(self._normed(x, layer.norm), layer.qkv, layer.bias).view(len(x), heads + 2 * kv, dim)
            turned = _turn(mixed[:, : heads + kv], cos, sin)
            out = attend(index, turned[:, :heads], turned[:, heads:], mixed[:, heads + kv :])
            x = x + wide_product(out.reshape(len(x), -1), layer.out)
            gate, up = F.linear(self._normed(x, layer.mlp_norm), layer.gate_up).float().chunk(2, dim=-1)
            product = (F.silu(gate) * up / GATE_SCALE).to(self.dtype)
            x = x + wide_product(product, layer.down) * GATE_SCALE
        return x

    def logits(self, x: Tensor) -> Tensor:
        """float32 (R, vocabulary) after residual rows (R, hidden)."""
        return wide_product(self._normed(x, self.norm), self.head)

    def prefill(self, state: SlotState, slot: Tensor, rows: Tensor) -> Tensor:
        """Residual stream (T, hidden) of a request's first rows; their keys and values go into its slot.

        ``slot`` (1,) int64. ``rows`` may be padded at the end: valid rows do not see the padding, and its keys lie
        where later steps write theirs.
        """
        length = len(rows)

        def attend(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            q, k, v = (part.transpose(0, 1)[None] for part in (q, k, v))
            state.keys[layer, :, :, :length].index_copy_(0, slot, k)
            state.values[layer, :, :, :length].index_copy_(0, slot, v)
            return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)[0].transpose(0, 1)

        return self.forward(rows.float(), self.cos[:length, None], self.sin[:length, None], attend)

    def step(self, state: SlotState, slots: Sequence[int], positions: Sequence[int], tokens: Tensor) -> Tensor:
        """Logits (R, vocabulary) after one more token (R,) of each of ``slots``, which stand at ``positions``."""
        at = torch.tensor(positions, device=self.device)

        def attend(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            keys, values = state.keys[layer], state.values[layer]
            out = []
            # Row by row over views: no copy of the slots' keys, and no row pays for a longer neighbour.
            for row, (slot, position) in enumerate(zip(slots, positions, strict=True)):
                keys[slot, :, position], values[slot, :, position] = k[row], v[row]
                past_keys, past_values = keys[None, slot, :, : position + 1], values[None, slot, :, : position + 1]
                query = q[None, row, :, None]
                out.append(F.scaled_dot_product_attention(query, past_keys, past_values, enable_gqa=True)[0, :, 0])
            return torch.stack(out)

        x = self.forward(self.table[tokens].float(), self.cos[at, None], self.sin[at, None], attend)
        return self.logits(x)

    def _normed(self, x: Tensor, weight: Tensor) -> Tensor:
        # Written out: for a row or two F.rms_norm takes three times as long on a CPU.
        scale = (x.square().mean(-1, keepdim=True) + self.eps).rsqrt()
        return (x * scale * weight.float()).to(self.dtype)


def wide_product(a: Tensor, weight: Tensor) -> Tensor:
    """``a`` (R, K) @ ``weight`` (N, K) transposed, in float32 without rounding the result to the inputs' type."""
    if a.is_cuda and a.dtype != torch.float32:
        return torch.mm(a, weight.T, out_dtype=torch.float32)
    return F.linear(a, weight).float()


def _turn(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate pairs (i, i + D/2) of ``x`` (T, heads, D) in float32."""
    first, second = x.float().chunk(2, dim=-1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1).to(x.dtype)


def _fuse(layer: DecoderLayer) -> FusedLayer:
    attention, mlp = layer.self_attn, layer.mlp
    assert isinstance(attention, Attention)
    assert isinstance(mlp, MLP)
    parts = (attention.q_proj, attention.k_proj, attention.v_proj)
    return FusedLayer(
        norm=layer.input_layernorm.weight.detach(),
        qkv=_joined(parts, "weight"),
        bias=_joined(parts, "bias"),
        out=attention.o_proj.weight.detach(),
        mlp_norm=layer.post_attention_layernorm.weight.detach(),
        gate_up=_joined((mlp.gate_proj, mlp.up_proj), "weight"),
        down=mlp.down_proj.weight.detach(),
    )


def _joined(modules: Sequence[nn.Module], name: str) -> Tensor:
    """The modules' parameters in one tensor, which they view from now on."""
    parts: list[Tensor] = [getattr(module, name).detach() for module in modules]
    rows = sum(len(part) for part in parts)
    starts = [part.data_ptr() for part in parts]
    ends = [part.data_ptr() + part.nbytes for part in parts]
    if starts[1:] == ends[:-1] and parts[0].untyped_storage().nbytes() == sum(part.nbytes for part in parts):
        return parts[0].as_strided((rows, *parts[0].shape[1:]), parts[0].stride())  # joined before
    with torch.inference_mode(False):  # the module goes on using them, also outside of inference mode
        whole = torch.cat(parts)
    for module, part in zip(modules, torch.split(whole, [len(part) for part in parts]), strict=True):
        setattr(module, name, nn.Parameter(part, requires_grad=False))
    return whole
