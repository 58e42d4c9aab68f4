"""What an engine gives back without being loaded anew: caches, unused memory of the card, and of the process."""

from __future__ import annotations

import ctypes
import ctypes.util
import gc
import time

import psutil
import torch

from cosyui.engine.memory import unused_bytes
from cosyui.engine.prompts import PromptCache
from cosyui.engine.request import Cleared
from cosyui.engine.stages import Stages
from cosyui.model.cosyvoice3 import CosyVoice3


def clear(model: CosyVoice3, prompts: PromptCache, stages: Stages, *, idle: bool, light: bool = False) -> Cleared:
    """Takes in work keep what they hold (``idle``: there are none); what they share is computed again when needed.

    ``light``: nothing that was made goes, only memory that nobody uses.
    """
    began, process = time.perf_counter(), psutil.Process()
    features, rss, unused = prompts.nbytes, process.memory_info().rss, unused_bytes(model.device)
    if not light:
        prompts.clear()
        if idle:  # one that is at work may be in float32
            stages.rest()
        model.speaker_encoder.shrink()
        model.speech_tokenizer.shrink()
    gc.collect()
    if model.device.type == "cuda":
        torch.cuda.synchronize(model.device)  # what is on its way holds memory, too
        torch.cuda.empty_cache()
        torch.cuda.ipc_collect()  # type: ignore[no-untyped-call]
    _trim()
    freed = {
        "features": 0 if light else features,
        "unused": max(0, unused - unused_bytes(model.device)),
        "host": max(0, rss - process.memory_info().rss),
    }
    return Cleared(freed, time.perf_counter() - began)


def _trim() -> None:
    """Have the C library give freed memory back to the system, where it knows how to."""
    name = ctypes.util.find_library("c")
    trim = getattr(ctypes.CDLL(name), "malloc_trim", None) if name else None
    if trim is not None:
        trim(0)
