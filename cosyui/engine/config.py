"""Everything an engine process is told at start; pickles."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Precision = Literal["auto", "float32", "bfloat16", "float16"]


@dataclass(frozen=True)
class EngineConfig:
    """``model`` is a local checkpoint folder or a spec that `cosyui.hub.resolve` understands.

    ``device`` is ``auto`` (CUDA when present), ``cpu``, ``cuda`` or ``cuda:N``; ``threads`` 0 leaves PyTorch's default;
    ``prompt_cache_bytes`` bounds the cache of prompt features.
    """

    model: str
    llm_file: str = "llm.pt"
    device: str = "auto"
    precision: Precision = "auto"
    threads: int = 0
    prompt_cache_bytes: int = 64 << 20
