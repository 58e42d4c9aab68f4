"""How the decode kernels are launched: one behind the other without gaps, and within a device's shared memory.

With programmatic dependent launch (``pdl``, sm_90) a kernel starts while the one before it still runs, and waits there
for its end. With ``fetch`` it brings weights into the L2 cache meanwhile.
"""

# Kernels are not Python functions: Triton types their arguments itself.
# ruff: noqa: ANN001, ANN201, N803, N806
# mypy: disable-error-code="no-untyped-def, untyped-decorator, import-not-found, no-any-return, unused-ignore"

from __future__ import annotations

import functools

import torch
import triton
import triton.language as tl


@triton.jit
def wait(PDL: tl.constexpr):
    """Everything that earlier kernels wrote may be read after this, and the next kernel may start.

    So what a kernel reads before it calls this was complete when the kernel before the last one ended.
    """
    if PDL:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()


@triton.jit
def fetch(address, mask):
    """Have the 128 bytes that hold each address brought into the L2 cache."""
    tl.inline_asm_elementwise(
        "{ .reg .pred p; setp.ne.s32 p, $2, 0; @p prefetch.global.L2 [$1]; mov.u32 $0, 0; }",
        "=r,l,r",
        [address.to(tl.int64), mask.to(tl.int32)],
        dtype=tl.int32,
        is_pure=False,
        pack=1,
    )


@triton.jit
def fetch_rows(w, n, valid, K: tl.constexpr, start, SPAN: tl.constexpr):
    """Have ``SPAN`` of each valid row ``n`` of ``w`` (N, K) from ``start`` brought into the L2 cache."""
    LINE: tl.constexpr = 1024 // w.dtype.element_ty.primitive_bitwidth
    LINES: tl.constexpr = triton.next_power_of_2(triton.cdiv(SPAN, LINE))
    k = tl.arange(0, LINES) * LINE
    there = (k < SPAN) & (start + k < K)
    fetch(w + n[:, None] * K + (start + k)[None, :], valid[:, None] & there[None, :])


@triton.jit
def hold(x, HOLD: tl.constexpr):
    """``x``, of 16 bits an element, which the compiler does not bring into another layout before this.

    It would do so right behind the load: one load then waits for another.
    """
    if HOLD and x.dtype.primitive_bitwidth == 16:
        x = tl.inline_asm_elementwise("mov.b32 $0, $1;", "=r,r", [x], dtype=x.dtype, is_pure=False, pack=2)
    return x


@functools.cache
def overlaps(device: torch.device) -> bool:
    """Whether kernels can be launched with ``pdl``."""
    return device.type == "cuda" and torch.cuda.get_device_capability(device) >= (9, 0)


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
