"""A request's first rows through the LLM on CUDA: library products with small Triton kernels between them.

The same network as `cosyui.model.llm_decode.DecodeLLM.prefill`, in a third of its launches.
"""

# Kernels are not Python functions: Triton types their arguments itself.
# ruff: noqa: ANN001, ANN202, N803
# mypy: disable-error-code="no-untyped-def, untyped-decorator, import-not-found, no-any-return, unused-ignore"

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch import Tensor

from cosyui.model.kernels.llm_tuning import power_of_two
from cosyui.model.llm_decode import GATE_SCALE, wide_product

if TYPE_CHECKING:
    from cosyui.model.llm_decode import DecodeLLM, SlotState


@triton.jit
def _open_kernel(
    facts, slot_out, position, minimum, maximum, count, active, history, uniforms, room,
    WINDOW: tl.constexpr, WINDOW_P: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    slot = tl.load(facts).to(tl.int64)
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(uniforms + slot * room + i, tl.load(facts + 4 + i, mask=i < room, other=0.0), mask=i < room)
    if tl.program_id(0) == 0:
        tl.store(slot_out, slot.to(tl.int32))
        tl.store(position + slot, tl.load(facts + 1).to(tl.int32) - 1)
        tl.store(minimum + slot, tl.load(facts + 2).to(tl.int32))
        tl.store(maximum + slot, tl.load(facts + 3).to(tl.int32))
        tl.store(count + slot, 0)
        tl.store(active + slot, 1)
        w = tl.arange(0, WINDOW_P)
        tl.store(history + slot * WINDOW + w, w * 0 - 1, mask=w < WINDOW)


@triton.jit
def _norm_kernel(
    x, delta, out, total, norm, facts, scale, eps,
    HIDDEN: tl.constexpr, HIDDEN_P: tl.constexpr, ADD: tl.constexpr, LAST: tl.constexpr,
):  # fmt: skip
    """total = x + scale * delta, and its norm; with ``LAST`` only of the last valid row."""
    r = tl.program_id(0)
    n = tl.arange(0, HIDDEN_P)
    row = r
    if LAST:
        row = tl.load(facts + 1).to(tl.int32) - 1
    value = tl.load(x + row * HIDDEN + n, mask=n < HIDDEN, other=0.0).to(tl.float32)
    if ADD:
        value += tl.load(delta + row * HIDDEN + n, mask=n < HIDDEN, other=0.0) * scale
    if not LAST:
        tl.store(total + row * HIDDEN + n, value, mask=n < HIDDEN)
    by = tl.rsqrt(tl.sum(value * value, 0) / HIDDEN + eps)
    weight = tl.load(norm + n, mask=n < HIDDEN, other=0.0).to(tl.float32)
    tl.store(out + r * HIDDEN + n, (value * by * weight).to(out.dtype.element_ty), mask=n < HIDDEN)


@triton.jit
def _turn_kernel(
    mixed, cos, sin, facts, keys, values, capacity,
    HEADS: tl.constexpr, KV: tl.constexpr, HALF: tl.constexpr, ALL_P: tl.constexpr,
):  # fmt: skip
    """Rotate queries and keys of one row of ``mixed`` (T, heads + 2 kv, D) in place; keys and values to their slot."""
    row = tl.program_id(0)
    head = tl.arange(0, ALL_P)[:, None]
    i = tl.arange(0, HALF)[None, :]
    there = (head < HEADS + 2 * KV) & (i >= 0)
    place = mixed + (row * (HEADS + 2 * KV) + head) * (2 * HALF) + i
    first = tl.load(place, mask=there, other=0.0)
    second = tl.load(place + HALF, mask=there, other=0.0)
    c = tl.load(cos + row * HALF + i)
    s = tl.load(sin + row * HALF + i)
    turns = there & (head < HEADS + KV)
    one, two = first.to(tl.float32), second.to(tl.float32)
    first = tl.where(turns, (one * c - two * s).to(first.dtype), first)
    second = tl.where(turns, (two * c + one * s).to(second.dtype), second)
    tl.store(place, first, mask=turns)
    tl.store(place + HALF, second, mask=turns)
    slot = tl.load(facts).to(tl.int64)
    kept = ((slot * KV + (head - HEADS) % KV) * capacity + row) * (2 * HALF) + i
    tl.store(keys + kept, first, mask=turns & (head >= HEADS))
    tl.store(keys + kept + HALF, second, mask=turns & (head >= HEADS))
    tl.store(values + kept, first, mask=there & (head >= HEADS + KV))
    tl.store(values + kept + HALF, second, mask=there & (head >= HEADS + KV))


@triton.jit
def _silu_kernel(gate_up, out, scale, MLP: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    n = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    gate = tl.load(gate_up + row * 2 * MLP + n, mask=n < MLP, other=0.0).to(tl.float32)
    up = tl.load(gate_up + (row * 2 + 1) * MLP + n, mask=n < MLP, other=0.0).to(tl.float32)
    value = gate / (1.0 + tl.exp(-gate)) * up * scale
    tl.store(out + row * MLP + n, value.to(out.dtype.element_ty), mask=n < MLP)


def open_slot(facts: Tensor, state: SlotState, slot: Tensor) -> None:
    """The state of a request before its first draw; ``slot`` (1,) int32 gets its number.

    ``facts`` float64: slot, rows of the prompt, least and most tokens, then the uniforms.
    """
    room, window, block = state.uniforms.shape[1] * 2, state.history.shape[1], 1024
    _open_kernel[(triton.cdiv(room, block),)](
        facts, slot, state.position, state.minimum, state.maximum, state.count, state.active, state.history,
        state.uniforms, room, WINDOW=window, WINDOW_P=power_of_two(window), BLOCK=block,
    )  # fmt: skip


def prefill(model: DecodeLLM, state: SlotState, facts: Tensor, rows: Tensor) -> Tensor:
    """Logits (1, vocabulary) after a request's last row; keys and values go into its slot. See `open_slot`.

    ``rows`` (T, hidden) may be padded at the end.
    """
    config, layers = model.config, model.layers
    heads, kv, half = config.heads, config.kv_heads, config.head_dim // 2
    length, capacity = len(rows), state.keys.shape[3]
    x, h = torch.empty_like(rows, dtype=torch.float32), torch.empty_like(rows)
    product = rows.new_empty(length, config.mlp)

    def norm(source: Tensor, delta: Tensor | None, scale: float, weight: Tensor, last: bool = False) -> None:
        _norm_kernel[(1 if last else length,)](
            source, x if delta is None else delta, h, x, weight, facts, scale, model.eps,
            HIDDEN=config.hidden, HIDDEN_P=power_of_two(config.hidden), ADD=delta is not None, LAST=last, num_warps=4,
        )  # fmt: skip

    norm(rows, None, 1.0, layers[0].norm)
    for index, layer in enumerate(layers):
        mixed = F.linear(h, layer.qkv, layer.bias).view(1, length, heads + 2 * kv, 2 * half)
        _turn_kernel[(length,)](
            mixed, model.cos, model.sin, facts, state.keys[index], state.values[index], capacity,
            HEADS=heads, KV=kv, HALF=half, ALL_P=power_of_two(heads + 2 * kv), num_warps=4,
        )  # fmt: skip
        turned = mixed.transpose(1, 2)
        q, k, v = turned[:, :heads], turned[:, heads : heads + kv], turned[:, heads + kv :]
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        norm(x, wide_product(out.transpose(1, 2).reshape(length, -1), layer.out), 1.0, layer.mlp_norm)
        gate_up = F.linear(h, layer.gate_up)
        block = min(1024, power_of_two(config.mlp))
        _silu_kernel[(length, triton.cdiv(config.mlp, block))](
            gate_up, product, 1 / GATE_SCALE, MLP=config.mlp, BLOCK=block, num_warps=4
        )  # fmt: skip
        last = index + 1 == len(layers)
        following = model.norm if last else layers[index + 1].norm
        norm(x, wide_product(product, layer.down), GATE_SCALE, following, last)
    return wide_product(h[:1], model.head)
