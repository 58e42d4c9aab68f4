"""Triton kernel of a decode step's attention over the slots' keys and values.

Every row's positions are cut at multiples of ``split``, whatever its length, and the parts are added in order, so that
the same context gives the same bits. See `cosyui.model.kernels.llm` for the rest of the step.

Source of the running maximum: FlashAttention (Dao et al., 2022, arXiv:2205.14135).
"""

# Kernels are not Python functions: Triton types their arguments itself.
# ruff: noqa: ANN001, ANN202, N803
# mypy: disable-error-code="no-untyped-def, untyped-decorator, import-not-found, no-any-return, unused-ignore"

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from cosyui.model.kernels.launch import begin, precision, wait


@triton.jit
def _attention_kernel(
    q, keys, values, rows, position, out, part, part_max, part_sum, counter, capacity, scale,
    HEADS: tl.constexpr, KV: tl.constexpr, D: tl.constexpr, GROUP: tl.constexpr, SPLIT: tl.constexpr,
    SPLITS: tl.constexpr, BLOCK: tl.constexpr, STAGES: tl.constexpr, PRECISION: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """One row's heads of one key head over ``SPLIT`` positions; the last split to finish adds all up, in order."""
    begin(PDL)
    r, group, split = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    slot = tl.load(rows + r).to(tl.int64)
    wait(PDL)
    length = tl.load(position + slot) + 1
    used = tl.cdiv(length, SPLIT)
    if split < used:
        g, d = tl.arange(0, 16), tl.arange(0, D)
        mine = (g < GROUP)[:, None]
        head = r * HEADS + group * GROUP + g
        base = (slot * KV + group) * capacity * D
        query = tl.load(q + head[:, None] * D + d[None, :], mask=mine, other=0.0)
        top = tl.full((16,), float("-inf"), tl.float32)
        total = tl.zeros((16,), tl.float32)
        mixed = tl.zeros((16, D), tl.float32)
        end = tl.minimum(length, split * SPLIT + SPLIT)
        for first in tl.range(split * SPLIT, end, BLOCK, num_stages=STAGES):
            p = first + tl.arange(0, BLOCK)
            there = p < length
            kept = base + p[:, None] * D + d[None, :]
            k = tl.load(keys + kept, mask=there[:, None], other=0.0)
            v = tl.load(values + kept, mask=there[:, None], other=0.0)
            score = tl.where(there[None, :], tl.dot(query, k.T, input_precision=PRECISION) * scale, float("-inf"))
            higher = tl.maximum(top, tl.max(score, 1))
            weight = tl.exp(score - higher[:, None])
            keep = tl.exp(top - higher)
            total = total * keep + tl.sum(weight, 1)
            mixed = tl.dot(weight.to(v.dtype), v, mixed * keep[:, None], input_precision=PRECISION)
            top = higher
        if used > 1:
            line = head * SPLITS + split
            tl.store(part + line[:, None] * D + d[None, :], mixed, mask=mine)
            tl.store(part_max + line, top, mask=g < GROUP)
            tl.store(part_sum + line, total, mask=g < GROUP)
            tl.debug_barrier()
            arrived = tl.atomic_add(counter + r * KV + group, 1, sem="acq_rel", scope="gpu")
            last = arrived == used - 1
            tl.debug_barrier()
        else:
            last = used == 1
        if last:
            if used > 1:
                tl.store(counter + r * KV + group, 0)
                top = tl.full((16,), float("-inf"), tl.float32)
                total = tl.zeros((16,), tl.float32)
                mixed = tl.zeros((16, D), tl.float32)
                for index in range(0, used):
                    line = head * SPLITS + index
                    its_top = tl.load(part_max + line, mask=g < GROUP, other=0.0, cache_modifier=".cg")
                    its_total = tl.load(part_sum + line, mask=g < GROUP, other=1.0, cache_modifier=".cg")
                    its_mixed = tl.load(
                        part + line[:, None] * D + d[None, :], mask=mine, other=0.0, cache_modifier=".cg"
                    )
                    higher = tl.maximum(top, its_top)
                    mine_by, its_by = tl.exp(top - higher), tl.exp(its_top - higher)
                    total = total * mine_by + its_total * its_by
                    mixed = mixed * mine_by[:, None] + its_mixed * its_by[:, None]
                    top = higher
            result = mixed / total[:, None]
            tl.store(out + head[:, None] * D + d[None, :], result.to(out.dtype.element_ty), mask=mine)


class AttentionScratch:
    """What the splits of `attention` hand to each other, for up to ``rows`` rows; ``split`` in positions."""

    def __init__(
        self, rows: int, heads: int, kv: int, dim: int, capacity: int, split: int, device: torch.device
    ) -> None:
        self.split, self.splits = split, triton.cdiv(capacity, split)
        self.part = torch.empty(rows * heads * self.splits * dim, device=device)
        self.part_max = torch.empty(rows * heads * self.splits, device=device)
        self.part_sum = torch.empty(rows * heads * self.splits, device=device)
        self.counter = torch.zeros(rows * kv, dtype=torch.int32, device=device)


def attention(
    q: Tensor, keys: Tensor, values: Tensor, rows: Tensor, position: Tensor, out: Tensor, scratch: AttentionScratch,
    pdl: bool = False, warps: int = 4,
) -> None:  # fmt: skip
    """``out`` (R, heads, D): each row's heads over positions 0 to ``position`` (included) of its slot."""
    heads, dim = q.shape[1:]
    kv, capacity = keys.shape[1], keys.shape[2]
    block = min(64, scratch.split)
    _attention_kernel[(len(rows), kv, scratch.splits)](
        q, keys, values, rows, position, out, scratch.part, scratch.part_max, scratch.part_sum, scratch.counter,
        capacity, dim**-0.5,
        HEADS=heads, KV=kv, D=dim, GROUP=heads // kv, SPLIT=scratch.split, SPLITS=scratch.splits, BLOCK=block,
        STAGES=scratch.split // block + 1, PRECISION=precision(q.device), PDL=pdl,
        num_warps=warps, launch_pdl=pdl,
    )  # fmt: skip
