"""Triton kernels of one decode step of the speech LLM: four a layer, with attention between them, and the logits.

A row's arithmetic does not depend on how many rows run beside it: batches of every size give the same bits. Sums over
the inner dimension are cut into ``SLICES`` fixed parts, one for each warp, and added in a fixed order; a batch only
changes how many rows and columns a program takes (``row_tile``, ``columns``), and a batched `tl.dot` multiplies by the
same instruction for all of them.

The residual stream is float32. What the MLP's product stores is scaled by ``1 / GATE_SCALE`` (exact in binary), so that
float16 holds it where the plain product overflows; `project` undoes that in float32.

All launchers take the rows' slots as ``rows`` (R,) int32; for ``pdl`` see `cosyui.model.kernels.launch`.
"""

# Kernels are not Python functions: Triton types their arguments itself.
# ruff: noqa: ANN001, ANN202, N803, N806
# mypy: disable-error-code="no-untyped-def, untyped-decorator, import-not-found, no-any-return, unused-ignore"

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from cosyui.model.kernels.launch import begin, precision, shared_memory, wait

SLICES = 8
WARPS = 8
"""One warp for each slice."""
LONGEST_INNER = 1024
"""Kernels with a norm hold a whole row of the residual stream at once."""


@triton.jit
def _weights(w, n, valid, k0, K: tl.constexpr, S: tl.constexpr, KS: tl.constexpr):
    """Rows ``n`` of ``w`` (N, K) in slices of the inner dimension from ``k0``: (S, len(n), KS)."""
    k = k0 + tl.arange(0, S)[:, None, None] * KS + tl.arange(0, KS)[None, None, :]
    return tl.load(w + n[None, :, None] * K + k, mask=valid[None, :, None] & (k < K), other=0.0)


@triton.jit
def _fetch(start, size, TILE: tl.constexpr, TILES: tl.constexpr):
    """Have ``size`` elements of 2 bytes from ``start`` brought into the L2 cache."""
    for index in tl.static_range(TILES):
        line = (index * (TILE // 64) + tl.arange(0, TILE // 64)) * 64
        address = (start + tl.minimum(line, size - 1)).to(tl.int64)
        tl.inline_asm_elementwise(
            "prefetch.global.L2 [$1]; mov.u32 $0, 0;", "=r,l", [address], dtype=tl.int32, is_pure=False, pack=1
        )


@triton.jit
def _product(a, w, PRECISION: tl.constexpr):
    """(S, M, KS) x (S, N, KS) -> float32 (M, N)."""
    return tl.sum(tl.dot(a, w.permute(0, 2, 1), input_precision=PRECISION), 0)


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
    BM: tl.constexpr, S: tl.constexpr, PRECISION: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Norm, projection, bias and rotation of ``PAIRS`` pairs of one head; keys and values go to their slots."""
    begin(PDL)
    half: tl.constexpr = D // 2
    per_head: tl.constexpr = half // PAIRS
    tiles: tl.constexpr = (HEADS + 2 * KV) * per_head
    start, stride = tl.program_id(1), tl.num_programs(1)
    pair = tl.arange(0, PAIRS)
    low = start // per_head * D + start % per_head * PAIRS + pair
    w_low = _weights(w, low, pair >= 0, 0, HIDDEN, S, KP // S)
    w_high = _weights(w, low + half, pair >= 0, 0, HIDDEN, S, KP // S)
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    live = m < bucket
    slot = tl.load(rows + m, mask=live, other=0).to(tl.int64)
    wait(PDL)
    at = tl.load(position + slot, mask=live, other=0)
    a = _normed(x, norm, m, live, eps, HIDDEN, KP, S, w.dtype.element_ty)
    for tile in range(start, tiles, stride):
        later = tile + stride
        low = later // per_head * D + later % per_head * PAIRS + pair
        valid = (pair >= 0) & (later < tiles)
        next_low = _weights(w, low, valid, 0, HIDDEN, S, KP // S)
        next_high = _weights(w, low + half, valid, 0, HIDDEN, S, KP // S)
        head = tile // per_head
        i = tile % per_head * PAIRS + pair
        low = head * D + i
        first = _product(a, w_low, PRECISION) + tl.load(bias + low).to(tl.float32)[None, :]
        second = _product(a, w_high, PRECISION) + tl.load(bias + low + half).to(tl.float32)[None, :]
        where = at[:, None] * half + i[None, :]
        turns = live[:, None] & (head < HEADS + KV)
        c = tl.load(cos + where, mask=turns, other=1.0)
        s = tl.load(sin + where, mask=turns, other=0.0)
        turned = first * c - second * s
        second = second * c + first * s
        out = q + m[:, None] * (HEADS * D) + low[None, :]
        tl.store(out, turned.to(q.dtype.element_ty), mask=live[:, None] & (head < HEADS))
        tl.store(out + half, second.to(q.dtype.element_ty), mask=live[:, None] & (head < HEADS))
        if head >= HEADS:
            kept = keys
            group = head - HEADS
            if head >= HEADS + KV:
                kept = values
                group = head - HEADS - KV
            out = kept + ((slot * KV + group) * capacity + at)[:, None] * D + i[None, :]
            tl.store(out, turned.to(keys.dtype.element_ty), mask=live[:, None])
            tl.store(out + half, second.to(keys.dtype.element_ty), mask=live[:, None])
        w_low = next_low
        w_high = next_high


@triton.jit(do_not_specialize=["bucket"])
def _project_kernel(
    a, w, x, bucket, scale,
    K: tl.constexpr, KP: tl.constexpr, N: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, S: tl.constexpr,
    PRECISION: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """x += scale * (a @ w.T) for ``BN`` columns at a time, the inner dimension at once."""
    begin(PDL)
    start, stride = tl.program_id(1) * BN, tl.num_programs(1) * BN
    n = start + tl.arange(0, BN)
    tile = _weights(w, n, n < N, 0, K, S, KP // S)
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    live = m < bucket
    k = tl.arange(0, S)[:, None, None] * (KP // S) + tl.arange(0, KP // S)[None, None, :]
    wait(PDL)
    rows = tl.load(a + m[None, :, None] * K + k, mask=live[None, :, None] & (k < K), other=0.0)
    for at in range(start, N, stride):
        n = at + tl.arange(0, BN)
        later = n + stride
        following = _weights(w, later, later < N, 0, K, S, KP // S)
        out = x + m[:, None] * N + n[None, :]
        both = live[:, None] & (n < N)[None, :]
        before = tl.load(out, mask=both, other=0.0)
        tl.store(out, before + _product(rows, tile, PRECISION) * scale, mask=both)
        tile = following


@triton.jit(do_not_specialize=["bucket"])
def _project_long_kernel(
    a, w, x, bucket, scale,
    K: tl.constexpr, KT: tl.constexpr, N: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, S: tl.constexpr,
    STAGES: tl.constexpr, PRECISION: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """x += scale * (a @ w.T) for ``BN`` columns; ``KT`` of the inner dimension at a time."""
    begin(PDL)
    start = tl.program_id(1) * BN
    n = start + tl.arange(0, BN)
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    live, valid = m < bucket, n < N
    KS: tl.constexpr = KT // S
    inner = tl.arange(0, S)[:, None, None] * KS + tl.arange(0, KS)[None, None, :]
    acc = tl.zeros((S, BM, BN), tl.float32)
    if PDL:
        _fetch(w + start * K, tl.minimum(BN, N - start) * K, BN * KT, (K + KT - 1) // KT)
    wait(PDL)
    out = x + m[:, None] * N + n[None, :]
    both = live[:, None] & valid[None, :]
    before = tl.load(out, mask=both, other=0.0)
    for k0 in tl.range(0, K, KT, num_stages=STAGES):
        tile = _weights(w, n, valid, k0, K, S, KS)
        k = k0 + inner
        rows = tl.load(a + m[None, :, None] * K + k, mask=live[None, :, None] & (k < K), other=0.0)
        acc = tl.dot(rows, tile.permute(0, 2, 1), acc, input_precision=PRECISION)
    tl.store(out, before + tl.sum(acc, 0) * scale, mask=both)


@triton.jit(do_not_specialize=["bucket"])
def _gate_kernel(
    x, norm, w, out, bucket, eps, scale,
    HIDDEN: tl.constexpr, KP: tl.constexpr, MLP: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, S: tl.constexpr,
    PRECISION: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Norm, gate and up projection, scale * silu(gate) * up for ``BN`` columns at a time."""
    begin(PDL)
    start = tl.program_id(1) * BN
    n = start + tl.arange(0, BN)
    w_gate = _weights(w, n, n < MLP, 0, HIDDEN, S, KP // S)
    w_up = _weights(w + MLP * HIDDEN, n, n < MLP, 0, HIDDEN, S, KP // S)
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    live = m < bucket
    wait(PDL)
    a = _normed(x, norm, m, live, eps, HIDDEN, KP, S, w.dtype.element_ty)
    for at in range(start, MLP, tl.num_programs(1) * BN):
        n = at + tl.arange(0, BN)
        later = n + tl.num_programs(1) * BN
        next_gate = _weights(w, later, later < MLP, 0, HIDDEN, S, KP // S)
        next_up = _weights(w + MLP * HIDDEN, later, later < MLP, 0, HIDDEN, S, KP // S)
        gate, up = _product(a, w_gate, PRECISION), _product(a, w_up, PRECISION)
        value = gate / (1.0 + tl.exp(-gate)) * up * scale
        both = live[:, None] & (n < MLP)[None, :]
        tl.store(out + m[:, None] * MLP + n[None, :], value.to(out.dtype.element_ty), mask=both)
        w_gate = next_gate
        w_up = next_up


@triton.jit(do_not_specialize=["bucket"])
def _logits_kernel(
    x, norm, w, out, bucket, eps,
    HIDDEN: tl.constexpr, KP: tl.constexpr, N: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, S: tl.constexpr,
    PRECISION: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """The last norm and the logits of ``BN`` ids at a time, float32."""
    begin(PDL)
    start, stride = tl.program_id(1) * BN, tl.num_programs(1) * BN
    n = start + tl.arange(0, BN)
    tile = _weights(w, n, n < N, 0, HIDDEN, S, KP // S)
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    live = m < bucket
    wait(PDL)
    a = _normed(x, norm, m, live, eps, HIDDEN, KP, S, w.dtype.element_ty)
    for at in range(start, N, stride):
        n = at + tl.arange(0, BN)
        later = n + stride
        following = _weights(w, later, later < N, 0, HIDDEN, S, KP // S)
        both = live[:, None] & (n < N)[None, :]
        tl.store(out + m[:, None] * N + n[None, :], _product(a, tile, PRECISION), mask=both)
        tile = following


def inner_tile(width: int) -> int:
    """``width`` padded to a power of two that every slice gets at least 16 of."""
    return max(16 * SLICES, triton.next_power_of_2(width))


def qkv(
    x: Tensor, norm: Tensor, eps: float, weight: Tensor, bias: Tensor, turn: tuple[Tensor, Tensor], rows: Tensor,
    position: Tensor, q: Tensor, keys: Tensor, values: Tensor, pdl: bool = False, row_tile: int = 16,
) -> None:  # fmt: skip
    """``q`` (R, heads, D) from ``x`` (R, hidden) float32; keys and values into ``keys``/``values`` (slots, kv, cap, D).

    ``weight`` (heads + 2 kv, D, hidden) flattened to rows; ``turn``: cos and sin (cap, D/2) float32; ``position``
    (slots,) int32: where each slot's row stands.
    """
    hidden, (heads, dim) = x.shape[1], q.shape[1:]
    _, kv, capacity, _ = keys.shape
    pairs = min(8, dim // 2)
    grid = (triton.cdiv(len(rows), row_tile), (heads + 2 * kv) * (dim // 2 // pairs))
    _qkv_kernel[grid](
        x, norm, weight, bias, *turn, rows, position, q, keys, values, len(rows), capacity, eps,
        HIDDEN=hidden, KP=inner_tile(hidden), HEADS=heads, KV=kv, D=dim, PAIRS=pairs, BM=row_tile, S=SLICES,
        PRECISION=precision(x.device), PDL=pdl, num_warps=WARPS, launch_pdl=pdl,
    )  # fmt: skip


def project(
    a: Tensor, weight: Tensor, x: Tensor, scale: float, pdl: bool = False, row_tile: int = 16, columns: int = 8,
    stages: int = 4,
) -> None:  # fmt: skip
    """``x`` (R, N) float32 += ``scale`` * ``a`` (R, K) @ ``weight`` (N, K) transposed."""
    (bucket, inner), size = a.shape, x.shape[1]
    grid = (triton.cdiv(bucket, row_tile), triton.cdiv(size, columns))
    if inner_tile(inner) <= LONGEST_INNER:
        _project_kernel[grid](
            a, weight, x, bucket, scale,
            K=inner, KP=inner_tile(inner), N=size, BM=row_tile, BN=columns, S=SLICES,
            PRECISION=precision(x.device), PDL=pdl, num_warps=WARPS, launch_pdl=pdl,
        )  # fmt: skip
    else:
        tile = LONGEST_INNER * 2 // a.element_size()
        room = shared_memory(a.device) // (tile * (row_tile + columns) * a.element_size())
        stages = max(2, min(stages, room + 1))
        _project_long_kernel[grid](
            a, weight, x, bucket, scale,
            K=inner, KT=tile, N=size, BM=row_tile, BN=columns, S=SLICES, STAGES=stages,
            PRECISION=precision(x.device), PDL=pdl, num_warps=WARPS, launch_pdl=pdl,
        )  # fmt: skip


def gate(
    x: Tensor, norm: Tensor, eps: float, weight: Tensor, out: Tensor, scale: float, pdl: bool = False,
    row_tile: int = 16, columns: int = 8, programs: int = 1 << 16,
) -> None:  # fmt: skip
    """``out`` (R, mlp) = ``scale`` * silu(gate) * up of normed ``x`` (R, hidden); ``weight`` (2 mlp, hidden)."""
    (bucket, hidden), mlp = x.shape, out.shape[1]
    _gate_kernel[(triton.cdiv(bucket, row_tile), min(programs, triton.cdiv(mlp, columns)))](
        x, norm, weight, out, bucket, eps, scale,
        HIDDEN=hidden, KP=inner_tile(hidden), MLP=mlp, BM=row_tile, BN=columns, S=SLICES,
        PRECISION=precision(x.device), PDL=pdl, num_warps=WARPS, launch_pdl=pdl,
    )  # fmt: skip


def logits(
    x: Tensor, norm: Tensor, eps: float, weight: Tensor, out: Tensor, pdl: bool = False, row_tile: int = 16,
    columns: int = 16, programs: int = 1 << 16,
) -> None:  # fmt: skip
    """``out`` (R, vocabulary) float32: normed ``x`` (R, hidden) @ ``weight`` (vocabulary, hidden) transposed."""
    (bucket, hidden), size = x.shape, out.shape[1]
    columns = min(columns, 32 // weight.element_size())
    _logits_kernel[(triton.cdiv(bucket, row_tile), min(programs, triton.cdiv(size, columns)))](
        x, norm, weight, out, bucket, eps,
        HIDDEN=hidden, KP=inner_tile(hidden), N=size, BM=row_tile, BN=columns, S=SLICES,
        PRECISION=precision(x.device), PDL=pdl, num_warps=WARPS, launch_pdl=pdl,
    )  # fmt: skip
