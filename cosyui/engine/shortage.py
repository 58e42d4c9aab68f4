"""Which errors mean that memory was not enough, and what to tell of them."""

from __future__ import annotations

import re

import psutil
import torch

_WORDS = re.compile(r"out of memory|can't allocate memory|failed to allocate memory|bad allocation|bad_alloc", re.I)
"""Of PyTorch's CPU allocator and of ONNX Runtime, whose errors are of no kind of their own."""
_WANTED = re.compile(r"tried to allocate (?P<size>[\d.]+) (?P<unit>bytes|[KMGTPE]iB)", re.I)


def is_out_of_memory(error: BaseException) -> bool:
    """On the device or in the process."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return isinstance(error, RuntimeError) and _WORDS.search(str(error)) is not None


def memory_message(device: torch.device, error: BaseException, advice: str = "Try a shorter text") -> str:
    """A sentence with what is free and, where the error tells it, what was needed; unused memory is given back."""
    wanted = _WANTED.search(str(error))
    needed = f"{wanted['size']} {wanted['unit']} more were needed, and " if wanted else ""
    # What PyTorch could not allocate on the GPU is about the GPU; all else is about the machine.
    if device.type == "cuda" and isinstance(error, torch.OutOfMemoryError):
        free, total = torch.cuda.mem_get_info(device)
        torch.cuda.empty_cache()
        place, culprit = "GPU", "other programs that use the GPU"
    else:
        memory = psutil.virtual_memory()
        free, total = memory.available, memory.total
        place, culprit = "machine", "other programs"
    return (
        f"The {place} is out of memory: {needed}{free >> 20} of {total >> 20} MiB were free. "
        f"{advice}, or close {culprit}."
    )
