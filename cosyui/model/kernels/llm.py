"""Triton kernels of one decode step of the speech LLM: five a layer and one for the logits.

Every kernel takes tiles of 16 rows and has one fixed shape, so a row's arithmetic does not depend on how many rows run
beside it: batches of every size give the same bits (``bucket`` is not specialised on, so that all run one binary).
Sums over the inner dimension are cut into ``SLICES`` fixed parts, one for each warp, and added in a fixed order.

The residual stream is float32. What the MLP's product stores is scaled by ``1 / GATE_SCALE`` (exact in binary), so that
float16 holds it where the plain product overflows; `project` undoes that in float32.

All launchers take the rows' slots as ``rows`` (R,) int32. With ``pdl`` a kernel may start while the one before it runs:
it reads weights, waits, and only then touches what earlier kernels wrote (programmatic dependent launch, sm_90).
"""

# Kernels are not Python functions: Triton types their arguments itself.
# ruff: noqa: ANN001, ANN202, N803, N806
# mypy: disable-error-code="no-untyped-def, untyped-decorator, import-not-found, no-any-return, unused-ignore"

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

ROW_TILE = 16
SLICES = 8
WARPS = 8
"""One warp for each slice."""
LONGEST_INNER = 1024
"""Kernels with a norm hold a whole row of the residual stream at once."""


@triton.jit
def _begin(PDL: tl.constexpr):
    """Let the next kernel start; call first."""
    if PDL:
        tl.extra.cuda.gdc_launch_dependents()


@triton.jit
def _wait(PDL: tl.constexpr):
    """Everything that earlier kernels wrote may be read after this."""
    if PDL:
        tl.extra.cuda.gdc_wait()


@triton.jit
def _weights(w, n, valid, k0, K: tl.constexpr, S: tl.constexpr, KS: tl.constexpr):
    """Rows ``n`` of ``w`` (N, K) in slices of the inner dimension from ``k0``: (S, len(n), KS)."""
    k = k0 + tl.arange(0, S)[:, None, None] * KS + tl.arange(0, KS)[None, None, :]
    return tl.load(w + n[None, :, None] * K + k, mask=valid[None, :, None] & (k < K), other=0.0)


@triton.jit
def _product(a, w):
    """(S, M, KS) x (S, N, KS) -> float32 (M, N)."""
    return tl.sum(tl.dot(a, w.permute(0, 2, 1), input_precision="ieee"), 0)


@triton.jit
def _normed(x, norm, m, live, eps, K: tl.constexpr, KP: tl.constexpr, S: tl.constexpr, DTYPE: tl.constexpr):
    """RMS-normed rows ``m`` of ``x`` (R, K) float32, in slices (S, len(m), KP / S) of ``DTYPE``."""
    k = tl.arange(0, KP)
    value = tl.load(x + m[:, None] * K + k[None, :], mask=live[:, None] & (k < K)[None, :], other=0.0)
    scale = tl.rsqrt(tl.sum(value * value, 1) / K + eps)
    weight = tl.load(norm + k, mask=k < K, other=0.0).to(tl.float32)
    a = (value * scale[:, None] * weight[None, :]).to(DTYPE)
    return a.reshape(a.shape[0], S, KP // S).permute(1, 0, 2)


@triton.jit(do_not_specialize=["bucket"])
def _qkv_kernel(
    x, norm, w, bias, cos, sin, rows, position, q, keys, values, bucket, capacity, eps,
    HIDDEN: tl.constexpr, KP: tl.constexpr, HEADS: tl.constexpr, KV: tl.constexpr, D: tl.constexpr, PAIRS: tl.constexpr,
    BM: tl.constexpr, S: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Norm, projection, bias and rotation of ``PAIRS`` pairs of one head; keys and values go to their slots."""
    _begin(PDL)
    half: tl.constexpr = D // 2
    tiles: tl.constexpr = half // PAIRS
    head = tl.program_id(1) // tiles
    i = (tl.program_id(1) % tiles) * PAIRS + tl.arange(0, PAIRS)
    low = head * D + i
    every = i < half
    w_low = _weights(w, low, every, 0, HIDDEN, S, KP // S)
    w_high = _weights(w, low + half, every, 0, HIDDEN, S, KP // S)
    b_low = tl.load(bias + low).to(tl.float32)
    b_high = tl.load(bias + low + half).to(tl.float32)
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    live = m < bucket
    slot = tl.load(rows + m, mask=live, other=0).to(tl.int64)
    _wait(PDL)
    at = tl.load(position + slot, mask=live, other=0)
    a = _normed(x, norm, m, live, eps, HIDDEN, KP, S, w.dtype.element_ty)
    first = _product(a, w_low) + b_low[None, :]
    second = _product(a, w_high) + b_high[None, :]
    if head < HEADS + KV:
        where = at[:, None] * half + i[None, :]
        c = tl.load(cos + where, mask=live[:, None], other=1.0)
        s = tl.load(sin + where, mask=live[:, None], other=0.0)
        turned = first * c - second * s
        second = second * c + first * s
        first = turned
    if head < HEADS:
        out = q + m[:, None] * (HEADS * D) + low[None, :]
        tl.store(out, first.to(q.dtype.element_ty), mask=live[:, None])
        tl.store(out + half, second.to(q.dtype.element_ty), mask=live[:, None])
    else:
        kept = keys
        group = head - HEADS
        if head >= HEADS + KV:
            kept = values
            group = head - HEADS - KV
        out = kept + ((slot * KV + group) * capacity + at)[:, None] * D + i[None, :]
        tl.store(out, first.to(keys.dtype.element_ty), mask=live[:, None])
        tl.store(out + half, second.to(keys.dtype.element_ty), mask=live[:, None])


@triton.jit
def _attention_kernel(
    q, keys, values, rows, position, out, part, part_max, part_sum, counter, capacity, scale,
    HEADS: tl.constexpr, KV: tl.constexpr, D: tl.constexpr, GROUP: tl.constexpr, SPLIT: tl.constexpr,
    SPLITS: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """One row's heads of one key head over ``SPLIT`` positions; the last split to finish adds all up, in order."""
    _begin(PDL)
    r, group, split = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    slot = tl.load(rows + r).to(tl.int64)
    _wait(PDL)
    length = tl.load(position + slot) + 1
    used = tl.cdiv(length, SPLIT)
    if split < used:
        g, d, p = tl.arange(0, 16), tl.arange(0, D), split * SPLIT + tl.arange(0, SPLIT)
        mine = (g < GROUP)[:, None]
        head = r * HEADS + group * GROUP + g
        base = (slot * KV + group) * capacity * D
        there = p < length
        kept = p[:, None] * D + d[None, :]
        k = tl.load(keys + base + kept, mask=there[:, None], other=0.0)
        v = tl.load(values + base + kept, mask=there[:, None], other=0.0)
        query = tl.load(q + head[:, None] * D + d[None, :], mask=mine, other=0.0)
        score = tl.dot(query, k.T, input_precision="ieee") * scale
        score = tl.where(there[None, :], score, float("-inf"))
        top = tl.max(score, 1)
        weight = tl.exp(score - top[:, None])
        total = tl.sum(weight, 1)
        mixed = tl.dot(weight.to(v.dtype), v, input_precision="ieee")
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


@triton.jit(do_not_specialize=["bucket"])
def _project_kernel(
    a, w, x, bucket, scale,
    K: tl.constexpr, KT: tl.constexpr, N: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, S: tl.constexpr,
    STAGES: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """x += scale * (a @ w.T) for ``BN`` columns; ``KT`` of the inner dimension at a time."""
    _begin(PDL)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    live, valid = m < bucket, n < N
    KS: tl.constexpr = KT // S
    inner = tl.arange(0, S)[:, None, None] * KS + tl.arange(0, KS)[None, None, :]
    acc = tl.zeros((S, BM, BN), tl.float32)
    _wait(PDL)
    for k0 in tl.range(0, K, KT, num_stages=STAGES):
        tile = _weights(w, n, valid, k0, K, S, KS)
        k = k0 + inner
        rows = tl.load(a + m[None, :, None] * K + k, mask=live[None, :, None] & (k < K), other=0.0)
        acc = tl.dot(rows, tile.permute(0, 2, 1), acc, input_precision="ieee")
    out = x + m[:, None] * N + n[None, :]
    both = live[:, None] & valid[None, :]
    tl.store(out, tl.load(out, mask=both, other=0.0) + tl.sum(acc, 0) * scale, mask=both)


@triton.jit(do_not_specialize=["bucket"])
def _gate_kernel(
    x, norm, w, out, bucket, eps, scale,
    HIDDEN: tl.constexpr, KP: tl.constexpr, MLP: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, S: tl.constexpr,
    PDL: tl.constexpr,
):  # fmt: skip
    """Norm, gate and up projection, scale * silu(gate) * up for ``BN`` columns at a time."""
    _begin(PDL)
    start = tl.program_id(1) * BN
    n = start + tl.arange(0, BN)
    w_gate = _weights(w, n, n < MLP, 0, HIDDEN, S, KP // S)
    w_up = _weights(w + MLP * HIDDEN, n, n < MLP, 0, HIDDEN, S, KP // S)
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    live = m < bucket
    _wait(PDL)
    a = _normed(x, norm, m, live, eps, HIDDEN, KP, S, w.dtype.element_ty)
    for at in range(start, MLP, tl.num_programs(1) * BN):
        n = at + tl.arange(0, BN)
        later = n + tl.num_programs(1) * BN
        next_gate = _weights(w, later, later < MLP, 0, HIDDEN, S, KP // S)
        next_up = _weights(w + MLP * HIDDEN, later, later < MLP, 0, HIDDEN, S, KP // S)
        gate, up = _product(a, w_gate), _product(a, w_up)
        value = gate / (1.0 + tl.exp(-gate)) * up * scale
        both = live[:, None] & (n < MLP)[None, :]
        tl.store(out + m[:, None] * MLP + n[None, :], value.to(out.dtype.element_ty), mask=both)
        w_gate = next_gate
        w_up = next_up


@triton.jit(do_not_specialize=["bucket"])
def _logits_kernel(
    x, norm, w, out, bucket, eps,
    HIDDEN: tl.constexpr, KP: tl.constexpr, N: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, S: tl.constexpr,
    PDL: tl.constexpr,
):  # fmt: skip
    """The last norm and the logits of ``BN`` ids, float32."""
    _begin(PDL)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    tile = _weights(w, n, n < N, 0, HIDDEN, S, KP // S)
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    live = m < bucket
    _wait(PDL)
    a = _normed(x, norm, m, live, eps, HIDDEN, KP, S, w.dtype.element_ty)
    both = live[:, None] & (n < N)[None, :]
    tl.store(out + m[:, None] * N + n[None, :], _product(a, tile), mask=both)


def inner_tile(width: int) -> int:
    """``width`` padded to a power of two that every slice gets at least 16 of."""
    return max(16 * SLICES, triton.next_power_of_2(width))


def qkv(
    x: Tensor, norm: Tensor, eps: float, weight: Tensor, bias: Tensor, turn: tuple[Tensor, Tensor], rows: Tensor,
    position: Tensor, q: Tensor, keys: Tensor, values: Tensor, pdl: bool = False,
) -> None:  # fmt: skip
    """``q`` (R, heads, D) from ``x`` (R, hidden) float32; keys and values into ``keys``/``values`` (slots, kv, cap, D).

    ``weight`` (heads + 2 kv, D, hidden) flattened to rows; ``turn``: cos and sin (cap, D/2) float32; ``position``
    (slots,) int32: where each slot's row stands.
    """
    hidden, (heads, dim) = x.shape[1], q.shape[1:]
    _, kv, capacity, _ = keys.shape
    pairs = min(8, dim // 2)
    grid = (triton.cdiv(len(rows), ROW_TILE), (heads + 2 * kv) * (dim // 2 // pairs))
    _qkv_kernel[grid](
        x, norm, weight, bias, *turn, rows, position, q, keys, values, len(rows), capacity, eps,
        HIDDEN=hidden, KP=inner_tile(hidden), HEADS=heads, KV=kv, D=dim, PAIRS=pairs, BM=ROW_TILE, S=SLICES, PDL=pdl,
        num_warps=WARPS, launch_pdl=pdl,
    )  # fmt: skip


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
    _attention_kernel[(len(rows), kv, scratch.splits)](
        q, keys, values, rows, position, out, scratch.part, scratch.part_max, scratch.part_sum, scratch.counter,
        capacity, dim**-0.5,
        HEADS=heads, KV=kv, D=dim, GROUP=heads // kv, SPLIT=scratch.split, SPLITS=scratch.splits, PDL=pdl,
        num_warps=warps, launch_pdl=pdl,
    )  # fmt: skip


def project(
    a: Tensor, weight: Tensor, x: Tensor, scale: float, pdl: bool = False, columns: int = 8, stages: int = 4
) -> None:
    """``x`` (R, N) float32 += ``scale`` * ``a`` (R, K) @ ``weight`` (N, K) transposed."""
    bucket, inner = a.shape
    tile = min(LONGEST_INNER, inner_tile(inner))
    _project_kernel[(triton.cdiv(bucket, ROW_TILE), triton.cdiv(x.shape[1], columns))](
        a, weight, x, bucket, scale,
        K=inner, KT=tile, N=x.shape[1], BM=ROW_TILE, BN=columns, S=SLICES, STAGES=stages, PDL=pdl,
        num_warps=WARPS, launch_pdl=pdl,
    )  # fmt: skip


def gate(
    x: Tensor, norm: Tensor, eps: float, weight: Tensor, out: Tensor, scale: float, pdl: bool = False,
    columns: int = 8, programs: int = 1 << 16,
) -> None:  # fmt: skip
    """``out`` (R, mlp) = ``scale`` * silu(gate) * up of normed ``x`` (R, hidden); ``weight`` (2 mlp, hidden)."""
    (bucket, hidden), mlp = x.shape, out.shape[1]
    _gate_kernel[(triton.cdiv(bucket, ROW_TILE), min(programs, triton.cdiv(mlp, columns)))](
        x, norm, weight, out, bucket, eps, scale,
        HIDDEN=hidden, KP=inner_tile(hidden), MLP=mlp, BM=ROW_TILE, BN=columns, S=SLICES, PDL=pdl,
        num_warps=WARPS, launch_pdl=pdl,
    )  # fmt: skip


def logits(
    x: Tensor, norm: Tensor, eps: float, weight: Tensor, out: Tensor, pdl: bool = False, columns: int = 16
) -> None:
    """``out`` (R, vocabulary) float32: normed ``x`` (R, hidden) @ ``weight`` (vocabulary, hidden) transposed."""
    (bucket, hidden), size = x.shape, out.shape[1]
    _logits_kernel[(triton.cdiv(bucket, ROW_TILE), triton.cdiv(size, columns))](
        x, norm, weight, out, bucket, eps,
        HIDDEN=hidden, KP=inner_tile(hidden), N=size, BM=ROW_TILE, BN=columns, S=SLICES, PDL=pdl,
        num_warps=WARPS, launch_pdl=pdl,
    )  # fmt: skip
