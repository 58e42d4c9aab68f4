"""What the products of `cosyui.model.kernels.llm` are made of: tiles of rows, and a norm applied to a product."""

# Kernels are not Python functions: Triton types their arguments itself.
# ruff: noqa: ANN001, ANN201, N803, N806, RUF005
# mypy: disable-error-code="no-untyped-def, untyped-decorator, import-not-found, no-any-return, assignment"

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from cosyui.model.kernels.launch import precision, shared_memory
from cosyui.model.kernels.llm_tuning import ROW_TILE, Shape

ROWS = tl.constexpr(ROW_TILE)


@triton.jit
def zeros(TILES: tl.constexpr, N: tl.constexpr):
    out = ()
    for _ in tl.static_range(TILES):
        out = out + (tl.zeros((ROWS, N), tl.float32),)
    return out


@triton.jit
def tile_rows(first, TILE: tl.constexpr):
    return first + TILE * ROWS + tl.arange(0, ROWS)


@triton.jit
def weights(w, n, valid, k, start, K: tl.constexpr, END: tl.constexpr, EVEN: tl.constexpr):
    """Rows ``n`` of ``w`` (N, K) at ``start`` + ``k``: (len(n), len(k))."""
    mask = valid[:, None]
    if not EVEN:
        mask = mask & (start + k < END)[None, :]
    return tl.load(w + n[:, None] * K + (start + k)[None, :], mask=mask, other=0.0)


@triton.jit
def product(
    a, w, first, n, valid, bucket, start, SPAN: tl.constexpr, K: tl.constexpr, BK: tl.constexpr, TILES: tl.constexpr,
    STAGES: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """``TILES`` tiles of rows of ``a`` (bucket, K) from ``first`` by rows ``n`` of ``w``, ``SPAN`` from ``start``."""
    k = tl.arange(0, BK)
    EVEN: tl.constexpr = (SPAN % BK == 0) and (K % SPAN == 0)
    acc = zeros(TILES, n.shape[0])
    for k0 in tl.range(0, SPAN, BK, num_stages=STAGES):
        tile = weights(w, n, valid, k, start + k0, K, K, EVEN)
        new = ()
        for t in tl.static_range(TILES):
            m = tile_rows(first, t)
            rows = weights(a, m, m < bucket, k, start + k0, K, K, EVEN)
            new = new + (tl.dot(rows, tile.T, acc[t], input_precision=PRECISION),)
        acc = new
    return acc


@triton.jit
def two_products(
    a, w, first, n, other, valid, bucket, K: tl.constexpr, BK: tl.constexpr, TILES: tl.constexpr,
    STAGES: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """As `product`, by rows ``n`` and by rows ``other`` of ``w``."""
    k = tl.arange(0, BK)
    EVEN: tl.constexpr = K % BK == 0
    left = zeros(TILES, n.shape[0])
    right = zeros(TILES, n.shape[0])
    for k0 in tl.range(0, K, BK, num_stages=STAGES):
        tile = weights(w, n, valid, k, k0, K, K, EVEN)
        second = weights(w, other, valid, k, k0, K, K, EVEN)
        new_left = ()
        new_right = ()
        for t in tl.static_range(TILES):
            m = tile_rows(first, t)
            rows = weights(a, m, m < bucket, k, k0, K, K, EVEN)
            new_left = new_left + (tl.dot(rows, tile.T, left[t], input_precision=PRECISION),)
            new_right = new_right + (tl.dot(rows, second.T, right[t], input_precision=PRECISION),)
        left = new_left
        right = new_right
    return left, right


@triton.jit
def stream_squares(
    squares, first, bucket, TILES: tl.constexpr, PARTS: tl.constexpr, PARTS_P: tl.constexpr, ROOM: tl.constexpr
):
    """What the writer of the residual stream left of each tile's rows: (ROWS, PARTS_P) each."""
    p = tl.arange(0, PARTS_P)
    out = ()
    for t in tl.static_range(TILES):
        m = tile_rows(first, t)
        mask = (m < bucket)[:, None] & (p < PARTS)[None, :]
        out = out + (tl.load(squares + m[:, None] * ROOM + p[None, :], mask=mask, other=0.0),)
    return out


@triton.jit
def norm_factor(squares, eps, scale, HIDDEN: tl.constexpr):
    """By what a product of the scaled stream is multiplied to be that of its norm: (ROWS, 1).

    The parts are added as integers, in relation to the largest: the order is the compiler's choice.
    """
    most = tl.maximum(tl.max(squares, 1), 1e-30)
    total = tl.sum((squares / most[:, None] * 4194304.0).to(tl.int32), 1).to(tl.float32) * (most / 4194304.0)
    return (scale * tl.rsqrt(total / HIDDEN + eps))[:, None]


def options(shape: Shape, weight: Tensor, bucket: int, columns: int) -> dict[str, object]:
    """``columns``: rows of ``weight`` that are loaded together."""
    block, tiles = shape.block(weight), shape.tiles_of(bucket)
    stage = block * weight.element_size() * (columns + ROW_TILE * tiles)
    return {
        "BK": block,
        "TILES": tiles,
        "STAGES": max(2, min(shape.stages, (shared_memory(weight.device) - 2048) // stage + 1)),
        "PRECISION": precision(weight.device),
        "num_warps": shape.warps,
    }
