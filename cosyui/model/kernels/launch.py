"""How the decode kernels are launched: one behind the other without gaps, and within a device's shared memory.

With programmatic dependent launch (``pdl``, sm_90) a kernel may start while the one before it still runs: it reads
weights, waits, and only then touches what earlier kernels wrote.
"""

# Kernels are not Python functions: Triton types their arguments itself.
# ruff: noqa: ANN201, N803
# mypy: disable-error-code="no-untyped-def, untyped-decorator, import-not-found, no-any-return, unused-ignore"

from __future__ import annotations

import functools

import torch
import triton
import triton.language as tl


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
