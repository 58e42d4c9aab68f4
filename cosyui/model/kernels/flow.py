"""Triton kernels of the packed flow: everything in a solver step that is not a plain matrix product.

A batch has ``rows`` frames with condition and as many without; a matrix of frames has both halves below each other, so
``half`` * ``rows`` + row is a place in it. `cosyui.model.flow_static` says what each buffer holds. Tiles: see
`cosyui.model.flow_meta.TILE`. All shapes that are not powers of two are masked.

Source: attention after FlashAttention (Dao et al., arXiv:2205.14135): softmax over blocks of keys with a
running maximum.
"""
# ruff: noqa: ANN001, ANN202, N803, N806
# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call, misc"

from __future__ import annotations

import triton  # type: ignore[import-not-found, import-untyped, unused-ignore]
import triton.language as tl  # type: ignore[import-not-found, import-untyped, unused-ignore]
from torch import Tensor

from cosyui.model.flow_meta import TILE

LOG2_E = 1.4426950408889634


@triton.jit
def _enter(y, still, bias, h, x, keep, tails, step, rows, page_stride, DIM: tl.constexpr, BLOCK: tl.constexpr,
           HALO: tl.constexpr, PAGE: tl.constexpr, PAGED: tl.constexpr):  # fmt: skip
    row, half = tl.program_id(0), tl.program_id(1)
    d = tl.arange(0, BLOCK)
    mask = d < DIM
    value = tl.load(y + row * DIM + d, mask=mask, other=0.0).to(tl.float32)
    if half == 0:
        value += tl.load(still + row * DIM + d, mask=mask, other=0.0).to(tl.float32)
    else:
        value += tl.load(bias + d, mask=mask, other=0.0).to(tl.float32)
    place = (half * rows + row) * DIM + d
    tl.store(h + place, value, mask=mask)
    small = value.to(x.dtype.element_ty)
    tl.store(x + place, small, mask=mask)
    if PAGED:
        kept = tl.load(keep + row)
        at = kept % PAGE - (PAGE - HALO)
        if (kept >= 0) & (at >= 0):
            page = tails + (kept // PAGE).to(tl.int64) * page_stride
            tl.store(page + ((tl.load(step) * 4 + half) * HALO + at) * DIM + d, small, mask=mask)


@triton.jit
def _taps(source, weights, total, frame, valid, channel, square, DIM: tl.constexpr, C: tl.constexpr,
          TAPS: tl.constexpr):  # fmt: skip
    """A convolution over what a piece itself has; ``frame``: of the piece, of each row."""
    for tap in range(TAPS):
        inside = valid & (frame + tap >= TAPS - 1)
        x = tl.load(source + tap * DIM, mask=inside[:, None] & channel[None, :], other=0.0)
        total = tl.dot(x, tl.load(weights + tap * C * C, mask=square, other=0.0), total, input_precision="ieee")
    return total


@triton.jit
def _convolve(x, weight, bias, out, tiles, keep, tails, step, rows, page_stride, DIM: tl.constexpr, C: tl.constexpr,
              CP: tl.constexpr, TAPS: tl.constexpr, PAGE: tl.constexpr, BLOCK_M: tl.constexpr, FIRST: tl.constexpr,
              PAGED: tl.constexpr):  # fmt: skip
    HALO: tl.constexpr = TAPS - 1
    group, half = tl.program_id(1), tl.program_id(2)
    tile = tiles + tl.program_id(0) * 8
    row, count = tl.load(tile), tl.load(tile + 1)
    if count == 0:
        return
    before, page = row - tl.load(tile + 2), tl.load(tile + 7)
    m, i, o = tl.arange(0, BLOCK_M), tl.arange(0, CP), tl.arange(0, CP)
    channel, valid = i < C, m < count
    weights = weight + group * TAPS * C * C + i[:, None] * C + o[None, :]
    square = channel[:, None] & (o < C)[None, :]
    source = x + (half * rows + row - HALO + m)[:, None] * DIM + group * C + i[None, :]
    total = tl.zeros((BLOCK_M, CP), dtype=tl.float32)
    if PAGED:
        if (page >= 0) & (before < HALO):
            which = (tl.load(step) * 2 + (1 - FIRST)) * 2 + half
            tail = tails + page.to(tl.int64) * page_stride + which * HALO * DIM + group * C + i[None, :]
            for tap in range(TAPS):
                at = before + m + tap
                inside, outside = valid & (at >= HALO), valid & (at < HALO)
                frame = tl.load(source + tap * DIM, mask=inside[:, None] & channel[None, :], other=0.0)
                frame += tl.load(tail + at[:, None] * DIM, mask=outside[:, None] & channel[None, :], other=0.0)
                w = tl.load(weights + tap * C * C, mask=square, other=0.0)
                total = tl.dot(frame, w, total, input_precision="ieee")
        else:
            total = _taps(source, weights, total, before + m, valid, channel, square, DIM, C, TAPS)
    else:
        total = _taps(source, weights, total, before + m, valid, channel, square, DIM, C, TAPS)
    total += tl.load(bias + group * C + o, mask=o < C, other=0.0).to(tl.float32)[None, :]
    e = tl.exp(tl.minimum(total, 20.0))
    n = e * (e + 2.0)
    mish = total * (n / (n + 2.0))
    put = valid[:, None] & (o < C)[None, :]
    place = (half * rows + row + m)[:, None] * DIM + group * C + o[None, :]
    if FIRST:
        small = mish.to(out.dtype.element_ty)
        tl.store(out + place, small, mask=put)
        if PAGED:
            kept = tl.load(keep + row + m, mask=valid, other=-1)
            at = kept % PAGE - (PAGE - HALO)
            held = (kept >= 0) & (at >= 0)
            if tl.max(held.to(tl.int32), 0) > 0:
                base = tails + (kept // PAGE).to(tl.int64) * page_stride + group * C
                base += ((tl.load(step) * 4 + 2 + half) * HALO + at) * DIM
                tl.store(base[:, None] + o[None, :], small, mask=put & held[:, None])
    else:
        tl.store(out + place, tl.load(out + place, mask=put, other=0.0) + mish, mask=put)


@triton.jit(do_not_specialize=["gate", "shift", "scale"])
def _normalise(h, y, out, constants, gate, shift, scale, eps, DIM: tl.constexpr, BLOCK: tl.constexpr,
               ADD: tl.constexpr):  # fmt: skip
    row = tl.program_id(0)
    d = tl.arange(0, BLOCK)
    mask = d < DIM
    constants += d
    value = tl.load(h + row * DIM + d, mask=mask, other=0.0)
    if ADD:
        added = tl.load(y + row * DIM + d, mask=mask, other=0.0).to(tl.float32)
        value += added * tl.load(constants + gate * DIM, mask=mask, other=0.0)
        tl.store(h + row * DIM + d, value, mask=mask)
    centred = tl.where(mask, value - tl.sum(value, 0) / DIM, 0.0)
    norm = centred * tl.rsqrt(tl.sum(centred * centred, 0) / DIM + eps)
    norm = norm * tl.load(constants + scale * DIM, mask=mask, other=0.0)
    norm += tl.load(constants + shift * DIM, mask=mask, other=0.0)
    tl.store(out + row * DIM + d, norm.to(out.dtype.element_ty), mask=mask)


@triton.jit
def _rotated(x, c, s, R: tl.constexpr, HEAD: tl.constexpr):
    """Neighbouring pairs of ``x`` (R, HEAD) turned by angles whose cosine and sine are ``c``, ``s`` (R, HEAD / 2)."""
    even, odd = tl.split(tl.reshape(x.to(tl.float32), (R, HEAD // 2, 2)))
    return tl.reshape(tl.join(even * c - odd * s, odd * c + even * s), (R, HEAD)).to(x.dtype)


@triton.jit(do_not_specialize=["layer"])
def _turn(qkv, cos, sin, position, keep, kv, step, layer, rows, page_stride, DEPTH: tl.constexpr, INNER: tl.constexpr,
          BLOCK: tl.constexpr, HEAD: tl.constexpr, PAGE: tl.constexpr, BLOCK_R: tl.constexpr,
          PAGED: tl.constexpr, PDL: tl.constexpr):  # fmt: skip
    if PDL:
        tl.extra.cuda.gdc_launch_dependents()
    half = tl.program_id(1)
    row = tl.program_id(0) * BLOCK_R + tl.arange(0, BLOCK_R)
    valid = row < rows
    pair, h = tl.arange(0, HEAD // 2), tl.arange(0, HEAD)
    source = qkv + (half * rows + row)[:, None] * (3 * INNER)
    inside = valid[:, None] & (h >= 0)[None, :]
    query, key = tl.load(source + h[None, :], mask=inside), tl.load(source + INNER + h[None, :], mask=inside)
    angle = tl.load(position + row, mask=valid, other=0)[:, None] * (HEAD // 2) + pair[None, :]
    c, s = tl.load(cos + angle), tl.load(sin + angle)
    tl.store(source + h[None, :], _rotated(query, c, s, BLOCK_R, HEAD), mask=inside)
    key = _rotated(key, c, s, BLOCK_R, HEAD)
    tl.store(source + INNER + h[None, :], key, mask=inside)
    if PAGED:
        kept = tl.load(keep + row, mask=valid, other=-1)
        if tl.max(kept, 0) >= 0:
            held = (kept >= 0)[:, None]
            page = kv + (kept // PAGE).to(tl.int64) * page_stride
            page += (((tl.load(step) * DEPTH + layer) * 4 + half) * PAGE + kept % PAGE) * INNER
            tl.store(page[:, None] + h[None, :], key, mask=held & inside)
            d = tl.arange(0, BLOCK)
            rest = held & ((d >= HEAD) & (d < INNER))[None, :]
            tl.store(page[:, None] + d, tl.load(source + INNER + d[None, :], mask=rest), mask=rest)
            every = held & (d < INNER)[None, :]
            value = tl.load(source + 2 * INNER + d[None, :], mask=every)
            tl.store(page[:, None] + 2 * PAGE * INNER + d[None, :], value, mask=every)


@triton.jit
def _absorb(q, k, v, seen, total, weight, top, sharp, MASKED: tl.constexpr):
    s = tl.dot(q, k, input_precision="ieee")
    if MASKED:
        s = tl.where(seen, s, float("-inf"))
    # Scaled here, and not before, so that scaling and subtracting are one instruction.
    higher = tl.maximum(top, tl.max(s, 1) * sharp)
    p = tl.exp2(s * sharp - higher[:, None])
    fade = tl.exp2(top - higher)
    weight = weight * fade + tl.sum(p, 1)
    total = tl.dot(p.to(v.dtype), v, total * fade[:, None], input_precision="ieee")
    return total, weight, higher


@triton.jit(do_not_specialize=["layer"])
def _attend(qkv, out, kv, tiles, pages, step, layer, rows, page_stride, sharp, DEPTH: tl.constexpr,
            INNER: tl.constexpr, HEAD: tl.constexpr, PAGE: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
            PAGED: tl.constexpr, PDL: tl.constexpr):  # fmt: skip
    head, half = tl.program_id(1), tl.program_id(2)
    tile = tiles + tl.program_id(0) * 8
    row, count = tl.load(tile), tl.load(tile + 1)
    if count == 0:
        return
    piece, length, past, block = tl.load(tile + 2), tl.load(tile + 3), tl.load(tile + 4), tl.load(tile + 6)
    m, n, d = tl.arange(0, BLOCK_M), tl.arange(0, BLOCK_N), tl.arange(0, HEAD)
    # Keys that a query sees: up to the end of its block, or all.
    size = tl.where(block > 0, block, past + length)
    local = row - piece + m
    limit = tl.minimum((past + local) // size * size + size - past, length)
    nearest = tl.minimum((past + row - piece) // size * size + size - past, length)
    farthest = tl.minimum((past + row - piece + count - 1) // size * size + size - past, length)
    first = qkv + half * rows * (3 * INNER) + head * HEAD
    if PDL:
        tl.extra.cuda.gdc_wait()
    q = tl.load(first + (row + m)[:, None] * (3 * INNER) + d[None, :], mask=(m < count)[:, None], other=0.0)
    top = tl.full((BLOCK_M,), float("-inf"), dtype=tl.float32)
    weight = tl.zeros((BLOCK_M,), dtype=tl.float32)
    total = tl.zeros((BLOCK_M, HEAD), dtype=tl.float32)
    if PAGED:
        pages += tl.load(tile + 5)
        kept = kv + ((tl.load(step) * DEPTH + layer) * 4 + half) * (PAGE * INNER) + head * HEAD
        # A tile of keys is of one page, so that a single address changes from one to the next.
        TILES: tl.constexpr = (PAGE + BLOCK_N - 1) // BLOCK_N
        for j in range(0, past // PAGE * TILES):
            key = j % TILES * BLOCK_N + n
            there = key < PAGE
            page = kept + tl.load(pages + j // TILES).to(tl.int64) * page_stride
            k = tl.load(page + (key[None, :] * INNER + d[:, None]), mask=there[None, :], other=0.0)
            page += 2 * PAGE * INNER
            v = tl.load(page + (key[:, None] * INNER + d[None, :]), mask=there[:, None], other=0.0)
            total, weight, top = _absorb(q, k, v, there[None, :], total, weight, top, sharp, True)
    first += piece * (3 * INNER)
    keys = first + INNER + n[None, :] * (3 * INNER) + d[:, None]
    values = first + 2 * INNER + n[:, None] * (3 * INNER) + d[None, :]
    full = nearest // BLOCK_N * BLOCK_N
    for j in range(0, full, BLOCK_N):
        k, v = tl.load(keys + j * (3 * INNER)), tl.load(values + j * (3 * INNER))
        total, weight, top = _absorb(q, k, v, True, total, weight, top, sharp, False)
    for j in range(full, farthest, BLOCK_N):
        there = j + n < length
        k = tl.load(keys + j * (3 * INNER), mask=there[None, :], other=0.0)
        v = tl.load(values + j * (3 * INNER), mask=there[:, None], other=0.0)
        seen = (j + n)[None, :] < limit[:, None]
        total, weight, top = _absorb(q, k, v, seen, total, weight, top, sharp, True)
    place = (half * rows + row + m)[:, None] * INNER + head * HEAD + d[None, :]
    tl.store(out + place, (total / weight[:, None]).to(out.dtype.element_ty), mask=(m < count)[:, None])


@triton.jit
def _euler(x, small, velocity, dts, step, size, guidance, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < size
    with_it = tl.load(velocity + at, mask=mask, other=0.0).to(tl.float32)
    without = tl.load(velocity + size + at, mask=mask, other=0.0).to(tl.float32)
    value = tl.load(x + at, mask=mask, other=0.0)
    value += tl.load(dts + tl.load(step)) * ((1.0 + guidance) * with_it - guidance * without)
    tl.store(x + at, value, mask=mask)
    tl.store(small + at, value.to(small.dtype.element_ty), mask=mask)


def enter(y: Tensor, still: Tensor, bias: Tensor, h: Tensor, x: Tensor, keep: Tensor, tails: Tensor | None,
          step: Tensor, page: int) -> None:  # fmt: skip
    """``y`` (rows, dim) + ``still`` or ``bias`` -> ``h`` (2 * rows, dim) float32 and ``x``, with its kept tails."""
    rows, dim = y.shape
    halo = 1 if tails is None else tails.shape[4]
    stride = 0 if tails is None else tails.stride(0)
    _enter[(rows, 2)](y, still, bias, h, x, keep, x if tails is None else tails, step, rows, stride, dim,
                      triton.next_power_of_2(dim), halo, page, tails is not None, num_warps=4)  # fmt: skip


def convolve(x: Tensor, weight: Tensor, bias: Tensor, out: Tensor, tiles: Tensor, keep: Tensor, tails: Tensor | None,
             step: Tensor, page: int, *, first: bool, block_m: int, num_warps: int = 4,
             num_stages: int = 3) -> None:  # fmt: skip
    """Causal grouped convolution and Mish over ``x`` (2 * rows, dim), ``weight`` (groups, taps, in, out).

    The ``first`` one writes ``out``, and its kept tails; the second adds to it (float32).
    """
    groups, taps, width, _ = weight.shape
    stride = 0 if tails is None else tails.stride(0)
    _convolve[(tiles.numel() // TILE, groups, 2)](
        x, weight, bias, out, tiles, keep, x if tails is None else tails, step, x.shape[0] // 2, stride, x.shape[1],
        width, max(16, triton.next_power_of_2(width)), taps, page, block_m, first, tails is not None,
        num_warps=num_warps, num_stages=num_stages)  # fmt: skip


def normalise(h: Tensor, y: Tensor | None, out: Tensor, constants: Tensor, gate: int, shift: int, scale: int,
              eps: float, *, num_warps: int = 4) -> None:  # fmt: skip
    """``h`` (float32) += gate * ``y``; ``out`` = layer norm of it, scaled and shifted: rows of ``constants``."""
    rows, dim = h.shape
    _normalise[(rows,)](h, h if y is None else y, out, constants, gate, shift, scale, eps, dim,
                        triton.next_power_of_2(dim), y is not None, num_warps=num_warps)  # fmt: skip


def turn(qkv: Tensor, cos: Tensor, sin: Tensor, position: Tensor, keep: Tensor, kv: Tensor | None, step: Tensor,
         layer: int, page: int, *, block_r: int = 4, num_warps: int = 0, pdl: bool = False) -> None:  # fmt: skip
    """Rotary embedding of the first head's queries and keys in place; kept rows' keys and values go to their pages.

    ``pdl``: `attend`, likewise, comes next and may start before this ends.
    """
    rows, inner = qkv.shape[0] // 2, qkv.shape[1] // 3
    num_warps = num_warps or (1 if kv is None else 4)
    depth, stride = (1, 0) if kv is None else (kv.shape[2], kv.stride(0))
    _turn[(triton.cdiv(rows, block_r), 2)](
        qkv, cos, sin, position, keep, qkv if kv is None else kv, step, layer, rows, stride, depth, inner,
        triton.next_power_of_2(inner), 2 * cos.shape[1], page, block_r, kv is not None, pdl,
        num_warps=num_warps)  # fmt: skip


def attend(qkv: Tensor, out: Tensor, kv: Tensor | None, tiles: Tensor, pages: Tensor, step: Tensor, layer: int,
           head: int, page: int, *, block_m: int, block_n: int = 64, num_warps: int = 4,
           num_stages: int = 3, pdl: bool = False) -> None:  # fmt: skip
    """Attention of each tile over its piece's kept and own frames: ``qkv`` (2 * rows, 3 * inner) -> ``out``."""
    rows, inner = qkv.shape[0] // 2, qkv.shape[1] // 3
    depth, stride = (1, 0) if kv is None else (kv.shape[2], kv.stride(0))
    _attend[(tiles.numel() // TILE, inner // head, 2)](
        qkv, out, qkv if kv is None else kv, tiles, pages, step, layer, rows, stride, LOG2_E / head**0.5, depth, inner,
        head, page, block_m, block_n, kv is not None, pdl, num_warps=num_warps, num_stages=num_stages,
        launch_pdl=pdl)  # fmt: skip


def euler(x: Tensor, small: Tensor, velocity: Tensor, dts: Tensor, step: Tensor, guidance: float) -> None:
    """``x`` (rows, mel) float32 += dt * guided velocity, from ``velocity`` (2 * rows, mel); ``small``: ``x`` again."""
    size = x.numel()
    _euler[(triton.cdiv(size, 1024),)](x, small, velocity, dts, step, size, guidance, 1024, num_warps=4)
