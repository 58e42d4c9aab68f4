"""How the decode kernels are launched: one behind the other without gaps, and within a device's shared memory.

With programmatic dependent launch (``pdl``, sm_90) a kernel may start while the one before it still runs: it reads
weights, waits, and only then touches what earlier kernels wrote.
"""

# Kernels are not Python functions: Triton types their arguments itself.
# ruff: noqa: ANN001, ANN201, ANN202, N803, N806
# mypy: disable-error-code="no-untyped-def, untyped-decorator, import-not-found, no-any-return, unused-ignore"

from __future__ import annotations

import functools

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def begin(PDL: tl.constexpr):
    """Let the next kernel start; call first."""
    if PDL:
        tl.extra.cuda.gdc_launch_dependents()


@triton.jit
def wait(PDL: tl.constexpr):
    """Everything that earlier kernels wrote may be read after this."""
    if PDL:
        tl.extra.cuda.gdc_wait()


@triton.jit
def _prefetch(address, size):
    """Have ``size`` bytes from ``address``, both multiples of 16, brought into the L2 cache; nothing when it is 0."""
    tl.inline_asm_elementwise(
        "{ .reg .pred p; setp.gt.s32 p, $2, 0; @p cp.async.bulk.prefetch.L2.global [$1], $2; mov.u32 $0, 0; }",
        "=r,l,r",
        [address.to(tl.int64), size],
        dtype=tl.int32,
        is_pure=False,
        pack=1,
    )


@triton.jit
def fetch_rows(w, n, valid, K: tl.constexpr, start, SPAN: tl.constexpr):
    """Have ``SPAN`` of each valid row ``n`` of ``w`` (N, K) from ``start`` brought into the L2 cache."""
    PIECES: tl.constexpr = 4
    BYTES: tl.constexpr = w.dtype.element_ty.primitive_bitwidth // 8
    if (K * BYTES) % 16 == 0 and (SPAN * BYTES) % (16 * PIECES) == 0:
        piece = tl.arange(0, PIECES) * (SPAN // PIECES)
        left = K - start - piece
        size = tl.where(valid[:, None], tl.minimum(left, SPAN // PIECES)[None, :], 0) * BYTES
        _prefetch(w + n[:, None] * K + (start + piece)[None, :], size)


@triton.jit
def fetch_span(start, size):
    """Have ``size`` elements from ``start`` brought into the L2 cache, the bytes of which are multiples of 16."""
    LANES: tl.constexpr = 32
    BYTES: tl.constexpr = start.dtype.element_ty.primitive_bitwidth // 8
    share = tl.cdiv(size * BYTES, LANES * 16) * 16
    own = tl.arange(0, LANES) * share
    _prefetch(start + own // BYTES, tl.maximum(tl.minimum(share, size * BYTES - own), 0))


@triton.jit
def fetch(start, size):
    """Have ``size`` times 16 bytes from ``start`` brought into the L2 cache, each program its share."""
    programs = tl.num_programs(0) * tl.num_programs(1) * tl.num_programs(2)
    program = tl.program_id(0) + tl.num_programs(0) * (tl.program_id(1) + tl.num_programs(1) * tl.program_id(2))
    LANES: tl.constexpr = 128
    share = tl.cdiv(size, programs * LANES)
    own = (program * LANES + tl.arange(0, LANES)) * share
    PER: tl.constexpr = 128 // start.dtype.element_ty.primitive_bitwidth
    _prefetch(start + own * PER, tl.maximum(tl.minimum(share, size - own), 0) * 16)


def ahead_of(weights: Tensor | None, placeholder: Tensor) -> tuple[Tensor, int, bool]:
    """For a kernel's ``ahead``, ``ahead_size`` and ``AHEAD``."""
    if weights is None or weights.nbytes % 16:
        return placeholder, 0, False
    return weights, weights.nbytes // 16, True


@functools.cache
def shared_memory(device: torch.device) -> int:
    """Bytes that one program may have."""
    if device.type != "cuda":
        return 227 << 10
    index = torch.cuda.current_device() if device.index is None else device.index
    return int(triton.runtime.driver.active.utils.get_device_properties(index)["max_shared_mem"])


def precision(device: torch.device) -> str:
    """How products of float32 are made: in three parts by tensor cores, where there is room for the parts."""
    return "tf32x3" if shared_memory(device) > 200 << 10 else "ieee"
