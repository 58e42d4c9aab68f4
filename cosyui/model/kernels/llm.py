"""Triton kernels of one decode step of the speech LLM: four a layer, with attention between them, and the logits.

A row's arithmetic does not depend on how many rows run beside it: batches of every size give the same bits. Products
are made of tiles of ``ROWS`` rows, summed along the inner dimension in order; a batch only changes how many such tiles
a program takes (``tiles``), which then share what it reads of the weights.

No kernel norms its input. Whoever writes the residual stream (float32) also writes it in the model's type, times the
next norm's weight and ``1 / STREAM_SCALE`` (a power of two, for float16), and the sums of its squares over blocks of
columns; who reads that multiplies its product by what the norm divides by. What the MLP's product stores is scaled by
``1 / GATE_SCALE``, so that float16 holds it where the plain product overflows; `project` undoes that in float32.
"""

# Kernels are not Python functions: Triton types their arguments itself.
# ruff: noqa: ANN001, ANN202, N803, RUF005
# mypy: disable-error-code="no-untyped-def, untyped-decorator, import-not-found, no-any-return, assignment"

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import triton
import triton.language as tl
from torch import Tensor

from cosyui.model.kernels.llm_products import (
    ROWS,
    norm_factor,
    options,
    product,
    stream_squares,
    tile_rows,
    two_products,
)
from cosyui.model.kernels.llm_tuning import Shape, power_of_two
from cosyui.model.llm_decode import STREAM_SCALE

if TYPE_CHECKING:
    from cosyui.model.llm_decode import StepRows


@triton.jit(do_not_specialize=["bucket"])
def _qkv_kernel(
    h, squares, w, bias, at, turn, slot_of, q, keys, values, bucket, capacity, eps, scale,
    HIDDEN: tl.constexpr, PARTS: tl.constexpr, PARTS_P: tl.constexpr, ROOM: tl.constexpr, HEADS: tl.constexpr,
    KV: tl.constexpr, D: tl.constexpr, PAIRS: tl.constexpr, BK: tl.constexpr, TILES: tl.constexpr,
    STAGES: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Projection, bias and rotation of ``PAIRS`` pairs of one head; keys and values go to their slots."""
    half: tl.constexpr = D // 2
    per_head: tl.constexpr = half // PAIRS
    first = tl.program_id(0) * (ROWS * TILES)
    head = tl.program_id(1) // per_head
    i = tl.program_id(1) % per_head * PAIRS + tl.arange(0, PAIRS)
    low = head * D + i
    bias_low = tl.load(bias + low).to(tl.float32)[None, :]
    bias_high = tl.load(bias + low + half).to(tl.float32)[None, :]
    part = stream_squares(squares, first, bucket, TILES, PARTS, PARTS_P, ROOM)
    slots, positions, cos, sin = (), (), (), ()
    for t in tl.static_range(TILES):  # before the products: all of this is on its way together
        m = tile_rows(first, t)
        turns = (m < bucket)[:, None] & (head < HEADS + KV)
        slots = slots + (tl.load(slot_of + m, mask=m < bucket, other=0).to(tl.int64),)
        positions = positions + (tl.load(at + m, mask=m < bucket, other=0),)
        cos = cos + (tl.load(turn + m[:, None] * D + i[None, :], mask=turns, other=1.0),)
        sin = sin + (tl.load(turn + m[:, None] * D + half + i[None, :], mask=turns, other=0.0),)
    left, right = two_products(
        h, w, first, low, low + half, i >= 0, bucket, HIDDEN, BK, TILES, STAGES, PRECISION
    )  # fmt: skip
    for t in tl.static_range(TILES):
        m = tile_rows(first, t)
        live = (m < bucket)[:, None]
        factor = norm_factor(part[t], eps, scale, HIDDEN)
        one = left[t] * factor + bias_low
        two = right[t] * factor + bias_high
        turned = one * cos[t] - two * sin[t]
        two = two * cos[t] + one * sin[t]
        out = q + m[:, None] * (HEADS * D) + low[None, :]
        tl.store(out, turned.to(q.dtype.element_ty), mask=live & (head < HEADS))
        tl.store(out + half, two.to(q.dtype.element_ty), mask=live & (head < HEADS))
        if head >= HEADS:
            kept = keys
            group = head - HEADS
            if head >= HEADS + KV:
                kept = values
                group = head - HEADS - KV
            out = kept + ((slots[t] * KV + group) * capacity + positions[t])[:, None] * D + i[None, :]
            tl.store(out, turned.to(keys.dtype.element_ty), mask=live)
            tl.store(out + half, two.to(keys.dtype.element_ty), mask=live)


@triton.jit
def _write_stream(x, h, squares, norm, value, m, n, both, live, column, scale, N: tl.constexpr, ROOM: tl.constexpr):
    """A block of the residual stream: float32, the next norm's input, and the sum of squares."""
    place = m[:, None] * N + n[None, :]
    tl.store(x + place, value, mask=both)
    tl.store(h + place, (value * norm[None, :] * scale).to(h.dtype.element_ty), mask=both)
    tl.store(squares + m * ROOM + column, tl.sum(tl.where(both, value * value, 0.0), 1), mask=live)


@triton.jit(do_not_specialize=["bucket"])
def _project_kernel(
    a, w, x, h, squares, norm, partial, counter, bucket, scale, stream_scale,
    K: tl.constexpr, SPAN: tl.constexpr, SPLITS: tl.constexpr, N: tl.constexpr, ROOM: tl.constexpr, BN: tl.constexpr,
    BK: tl.constexpr, TILES: tl.constexpr, STAGES: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """x += scale * (a @ w.T) for ``BN`` columns over ``SPAN``; the last of ``SPLITS`` to finish adds them, in order."""
    first, column, split = tl.program_id(0) * (ROWS * TILES), tl.program_id(1), tl.program_id(2)
    n = column * BN + tl.arange(0, BN)
    valid = n < N
    weight = tl.load(norm + n, mask=valid, other=0.0).to(tl.float32)
    if SPLITS == 1:
        before = ()
        for t in tl.static_range(TILES):
            m = tile_rows(first, t)
            both = (m < bucket)[:, None] & valid[None, :]
            before = before + (tl.load(x + m[:, None] * N + n[None, :], mask=both, other=0.0),)
    acc = product(a, w, first, n, valid, bucket, split * SPAN, SPAN, K, BK, TILES, STAGES, PRECISION)
    if SPLITS == 1:
        for t in tl.static_range(TILES):
            m = tile_rows(first, t)
            live = m < bucket
            both = live[:, None] & valid[None, :]
            value = before[t] + acc[t] * scale
            _write_stream(x, h, squares, weight, value, m, n, both, live, column, stream_scale, N, ROOM)
    else:
        for t in tl.static_range(TILES):
            m = tile_rows(first, t)
            place = (split * bucket + m)[:, None] * N + n[None, :]
            tl.store(partial + place, acc[t], mask=(m < bucket)[:, None] & valid[None, :])
        tl.debug_barrier()
        ticket = counter + tl.program_id(0) * tl.num_programs(1) + column
        arrived = tl.atomic_add(ticket, 1, sem="acq_rel", scope="gpu")
        tl.debug_barrier()
        if arrived == SPLITS - 1:
            tl.store(ticket, 0)
            for t in tl.static_range(TILES):
                m = tile_rows(first, t)
                live = m < bucket
                both = live[:, None] & valid[None, :]
                value = tl.load(x + m[:, None] * N + n[None, :], mask=both, other=0.0)
                total = tl.zeros((ROWS, BN), tl.float32)
                for s in tl.static_range(SPLITS):
                    place = (s * bucket + m)[:, None] * N + n[None, :]
                    total += tl.load(partial + place, mask=both, other=0.0, cache_modifier=".cg")
                value += total * scale
                _write_stream(x, h, squares, weight, value, m, n, both, live, column, stream_scale, N, ROOM)


@triton.jit(do_not_specialize=["bucket"])
def _gate_kernel(
    h, squares, w, out, bucket, eps, stream_scale, scale,
    HIDDEN: tl.constexpr, PARTS: tl.constexpr, PARTS_P: tl.constexpr, ROOM: tl.constexpr, MLP: tl.constexpr,
    COLUMNS: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, TILES: tl.constexpr, STAGES: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """Gate and up projection, scale * silu(gate) * up for ``COLUMNS`` columns."""
    first = tl.program_id(0) * (ROWS * TILES)
    i = tl.arange(0, BN)
    n = tl.program_id(1) * COLUMNS + i
    valid = (i < COLUMNS) & (n < MLP)
    part = stream_squares(squares, first, bucket, TILES, PARTS, PARTS_P, ROOM)
    left, right = two_products(h, w, first, n, n + MLP, valid, bucket, HIDDEN, BK, TILES, STAGES, PRECISION)
    for t in tl.static_range(TILES):
        m = tile_rows(first, t)
        factor = norm_factor(part[t], eps, stream_scale, HIDDEN)
        gate = left[t] * factor
        value = gate / (1.0 + tl.exp(-gate)) * (right[t] * factor) * scale
        both = (m < bucket)[:, None] & valid[None, :]
        tl.store(out + m[:, None] * MLP + n[None, :], value.to(out.dtype.element_ty), mask=both)


@triton.jit(do_not_specialize=["bucket"])
def _logits_kernel(
    h, squares, w, out, bucket, eps, scale,
    HIDDEN: tl.constexpr, PARTS: tl.constexpr, PARTS_P: tl.constexpr, ROOM: tl.constexpr, N: tl.constexpr,
    COLUMNS: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, TILES: tl.constexpr, STAGES: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """Logits of ``COLUMNS`` ids, float32."""
    first = tl.program_id(0) * (ROWS * TILES)
    i = tl.arange(0, BN)
    n = tl.program_id(1) * COLUMNS + i
    valid = (i < COLUMNS) & (n < N)
    part = stream_squares(squares, first, bucket, TILES, PARTS, PARTS_P, ROOM)
    acc = product(h, w, first, n, valid, bucket, 0, HIDDEN, HIDDEN, BK, TILES, STAGES, PRECISION)
    for t in tl.static_range(TILES):
        m = tile_rows(first, t)
        both = (m < bucket)[:, None] & valid[None, :]
        value = acc[t] * norm_factor(part[t], eps, scale, HIDDEN)
        tl.store(out + m[:, None] * N + n[None, :], value, mask=both)


def qkv(
    stream: StepRows, parts: int, eps: float, weight: Tensor, bias: Tensor, q: Tensor, keys: Tensor, values: Tensor,
    shape: Shape
) -> None:  # fmt: skip
    """``q`` (R, heads, D) of the normed stream; keys and values into ``keys``/``values`` (slots, kv, cap, D).

    ``weight`` (heads + 2 kv, D, hidden) flattened to rows; ``shape.columns`` counts both halves of a head. ``parts``:
    sums of squares that the stream's writer left.
    """
    (bucket, hidden), (heads, dim) = stream.h.shape, q.shape[1:]
    _, kv, capacity, _ = keys.shape
    pairs = min(shape.columns // 2, dim // 2)
    how = options(shape, weight, bucket, 2 * pairs)
    grid = (shape.programs(bucket), (heads + 2 * kv) * (dim // 2 // pairs))
    _qkv_kernel[grid](
        stream.h, stream.squares, weight, bias, stream.at, stream.turn, stream.slot, q, keys, values, bucket,
        capacity, eps, STREAM_SCALE,
        HIDDEN=hidden, PARTS=parts, PARTS_P=power_of_two(parts), ROOM=stream.squares.shape[1], HEADS=heads,
        KV=kv, D=dim, PAIRS=pairs, **how,
    )  # fmt: skip


class SplitScratch(NamedTuple):
    """What the splits of `project` hand to each other: float32 (splits, R, N), and int32 zeros, one for each block."""

    partial: Tensor
    counter: Tensor


def project(
    a: Tensor, weight: Tensor, stream: StepRows, norm: Tensor, scale: float, scratch: SplitScratch, shape: Shape
) -> None:  # fmt: skip
    """``stream`` (R, N) += ``scale`` * ``a`` (R, K) @ ``weight`` (N, K) transposed; ``norm``: the one that is next."""
    (bucket, inner), size = a.shape, stream.x.shape[1]
    columns = shape.columns
    how = options(shape, weight, bucket, columns)
    grid = (shape.programs(bucket), triton.cdiv(size, columns), shape.splits)
    _project_kernel[grid](
        a, weight, stream.x, stream.h, stream.squares, norm, scratch.partial, scratch.counter, bucket,
        scale, 1 / STREAM_SCALE,
        K=inner, SPAN=shape.span(weight), SPLITS=shape.splits, N=size, ROOM=stream.squares.shape[1], BN=columns,
        **how,
    )  # fmt: skip


def gate(
    stream: StepRows, parts: int, eps: float, weight: Tensor, out: Tensor, scale: float, shape: Shape
) -> None:  # fmt: skip
    """``out`` (R, mlp) = ``scale`` * silu(gate) * up of the normed stream (R, hidden); ``weight`` (2 mlp, hidden)."""
    (bucket, hidden), mlp = stream.h.shape, out.shape[1]
    block = max(8, power_of_two(shape.columns))
    how = options(shape, weight, bucket, 2 * block)
    grid = (shape.programs(bucket), triton.cdiv(mlp, shape.columns))
    _gate_kernel[grid](
        stream.h, stream.squares, weight, out, bucket, eps, STREAM_SCALE, scale,
        HIDDEN=hidden, PARTS=parts, PARTS_P=power_of_two(parts), ROOM=stream.squares.shape[1], MLP=mlp,
        COLUMNS=shape.columns, BN=block, **how,
    )  # fmt: skip


def logits(stream: StepRows, parts: int, eps: float, weight: Tensor, out: Tensor, shape: Shape) -> None:
    """``out`` (R, vocabulary) float32: the normed stream (R, hidden) @ ``weight`` (vocabulary, hidden) transposed."""
    (bucket, hidden), size = stream.h.shape, out.shape[1]
    block = max(8, power_of_two(shape.columns))
    how = options(shape, weight, bucket, block)
    grid = (shape.programs(bucket), triton.cdiv(size, shape.columns))
    _logits_kernel[grid](
        stream.h, stream.squares, weight, out, bucket, eps, STREAM_SCALE,
        HIDDEN=hidden, PARTS=parts, PARTS_P=power_of_two(parts), ROOM=stream.squares.shape[1], N=size,
        COLUMNS=shape.columns, BN=block, **how,
    )  # fmt: skip
