"""What the kernels share: how their loads are kept together, and what a device has room for."""

# Kernels are not Python functions: Triton types their arguments itself.
# ruff: noqa: ANN001, ANN201, N803
# mypy: disable-error-code="no-untyped-def, untyped-decorator, import-not-found, no-any-return, unused-ignore"

from __future__ import annotations

import functools

import torch
import triton
import triton.language as tl


@triton.jit
def hold(x, HOLD: tl.constexpr):
    """``x``, of 16 bits an element, which the compiler does not bring into another layout before this.

    It would do so right behind the load: one load then waits for another.
    """
    if HOLD and x.dtype.primitive_bitwidth == 16:
        x = tl.inline_asm_elementwise("mov.b32 $0, $1;", "=r,r", [x], dtype=x.dtype, is_pure=False, pack=2)
    return x


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
