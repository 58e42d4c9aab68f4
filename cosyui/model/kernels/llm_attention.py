"""Triton kernel of a decode step's attention over the slots' keys and values.

Every row's positions are cut at multiples of ``split``, whatever its length, and the parts are added in order, so that
the same context gives the same bits. See `cosyui.model.kernels.llm` for the rest of the step.

Source of splits with a maximum of their own: FlashAttention (Dao et al., 2022, arXiv:2205.14135).
"""

# Kernels are not Python functions: Triton types their arguments itself.
# ruff: noqa: ANN001, ANN202, N803
# mypy: disable-error-code="no-untyped-def, untyped-decorator, import-not-found, no-any-return, unused-ignore"

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl
from torch import Tensor

from cosyui.model.kernels.launch import hold, precision

if TYPE_CHECKING:
    from cosyui.model.llm_decode import StepRows


@triton.jit
def _attention_kernel(
    q, keys, values, slot_of, at, out, part, part_max, part_sum, counter, capacity, scale,
    HEADS: tl.constexpr, KV: tl.constexpr, D: tl.constexpr, GROUP: tl.constexpr, GROUP_P: tl.constexpr,
    SPLIT: tl.constexpr, SPLITS: tl.constexpr, TOGETHER: tl.constexpr, PRECISION: tl.constexpr, HOLD: tl.constexpr,
):  # fmt: skip
    """One row's heads of one key head over every so many-th split; the last program to finish adds all up, in order."""
    r, group, first, programs = tl.program_id(0), tl.program_id(1), tl.program_id(2), tl.num_programs(2)
    slot = tl.load(slot_of + r).to(tl.int64)
    base = (slot * KV + group) * capacity * D
    length = tl.load(at + r) + 1
    used = tl.cdiv(length, SPLIT)
    g, d = tl.arange(0, 16), tl.arange(0, D)
    mine = (g < GROUP)[:, None]
    head = r * HEADS + group * GROUP + g
    if first < used:
        query = tl.load(q + head[:, None] * D + d[None, :], mask=mine, other=0.0)
        for split in tl.range(first, used, programs, num_stages=1):
            p = split * SPLIT + tl.arange(0, SPLIT)
            there = p < length
            kept = base + p[:, None] * D + d[None, :]
            k = tl.load(keys + kept, mask=there[:, None], other=0.0)
            v = tl.load(values + kept, mask=there[:, None], other=0.0)
            own, k, v = hold(query, HOLD), hold(k, HOLD), hold(v, HOLD)
            score = tl.where(there[None, :], tl.dot(own, k.T, input_precision=PRECISION) * scale, float("-inf"))
            top = tl.max(score, 1)
            weight = tl.exp(score - top[:, None])
            total = tl.sum(weight, 1)
            mixed = tl.dot(weight.to(v.dtype), v, input_precision=PRECISION)
            if used > 1:
                line = (r * KV + group) * SPLITS + split
                place = (line * GROUP_P + g)[:, None] * D + d[None, :]
                tl.store(part + place, mixed, mask=mine)
                tl.store(part_max + line * GROUP_P + g, top, mask=g < GROUP)
                tl.store(part_sum + line * GROUP_P + g, total, mask=g < GROUP)
            else:
                result = mixed / total[:, None]
                tl.store(out + head[:, None] * D + d[None, :], result.to(out.dtype.element_ty), mask=mine)
        if used > 1:
            tl.debug_barrier()
            arrived = tl.atomic_add(counter + r * KV + group, 1, sem="acq_rel", scope="gpu")
            tl.debug_barrier()
            if arrived == tl.minimum(used, programs) - 1:
                tl.store(counter + r * KV + group, 0)
                e = tl.arange(0, GROUP_P)
                best = tl.full((GROUP_P,), float("-inf"), tl.float32)
                whole = tl.zeros((GROUP_P,), tl.float32)
                sum_mixed = tl.zeros((GROUP_P, D), tl.float32)
                for start in range(0, used, TOGETHER):
                    s = start + tl.arange(0, TOGETHER)
                    line = ((r * KV + group) * SPLITS + s)[:, None] * GROUP_P + e[None, :]
                    there = (s < used)[:, None] & (e < GROUP)[None, :]
                    tops = tl.load(part_max + line, mask=there, other=float("-inf"), cache_modifier=".cg")
                    totals = tl.load(part_sum + line, mask=there, other=0.0, cache_modifier=".cg")
                    its = tl.load(
                        part + line[:, :, None] * D + d[None, None, :], mask=there[:, :, None], other=0.0,
                        cache_modifier=".cg",
                    )  # fmt: skip
                    higher = tl.maximum(tl.maximum(best, tl.max(tops, 0)), -1e30)
                    keep = tl.exp(best - higher)
                    by = tl.exp(tops - higher[None, :])
                    whole = whole * keep + tl.sum(totals * by, 0)
                    sum_mixed = sum_mixed * keep[:, None] + tl.sum(its * by[:, :, None], 0)
                    best = higher
                place = (r * HEADS + group * GROUP + e)[:, None] * D + d[None, :]
                result = sum_mixed / whole[:, None]
                tl.store(out + place, result.to(out.dtype.element_ty), mask=(e < GROUP)[:, None])


class AttentionScratch:
    """What the splits of `attention` hand to each other, for up to ``rows`` rows; ``split`` in positions."""

    def __init__(
        self, rows: int, heads: int, kv: int, dim: int, capacity: int, split: int, device: torch.device
    ) -> None:
        self.split, self.splits = split, triton.cdiv(capacity, split)
        self.group = triton.next_power_of_2(heads // kv)
        lines = rows * kv * self.splits * self.group
        self.part = torch.empty(lines * dim, device=device)
        self.part_max = torch.empty(lines, device=device)
        self.part_sum = torch.empty(lines, device=device)
        self.counter = torch.zeros(rows * kv, dtype=torch.int32, device=device)


def attention(
    q: Tensor, keys: Tensor, values: Tensor, stream: StepRows, out: Tensor, scratch: AttentionScratch,
    warps: int = 4, programs: int = 8,
) -> None:  # fmt: skip
    """``out`` (R, heads, D): each row's heads over positions 0 to ``stream.at`` (included) of its slot.

    ``programs`` share the splits of a row.
    """
    rows, heads, dim = q.shape
    kv, capacity = keys.shape[1], keys.shape[2]
    _attention_kernel[(rows, kv, min(programs, scratch.splits))](
        q, keys, values, stream.slot, stream.at, out, scratch.part, scratch.part_max, scratch.part_sum,
        scratch.counter, capacity, dim**-0.5,
        HEADS=heads, KV=kv, D=dim, GROUP=heads // kv, GROUP_P=scratch.group, SPLIT=scratch.split,
        SPLITS=scratch.splits, TOGETHER=8, PRECISION=precision(q.device),
        HOLD=q.is_cuda, num_warps=warps,
    )  # fmt: skip
