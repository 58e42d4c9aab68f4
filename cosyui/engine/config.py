"""Everything an engine process is told at start; pickles."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

ENVIRONMENT = {"OMP_WAIT_POLICY": "PASSIVE", "CUDA_SCALE_LAUNCH_QUEUES": "4x"}
"""What a process that runs an engine should have set before PyTorch is imported.

By default OpenMP's threads wait for each other by spinning. With a browser or another program on the same cores the
spinning takes the time of the one that is waited for, and speech on a CPU becomes ten times slower.

CUDA's queue of launches is short by default: the graphs of one large batch fill it, and until they are done the next
decode step cannot even be enqueued.
"""

EmptyCache = Literal["auto", "always", "never"]
"""When memory that PyTorch holds without using it goes back to the card: while idle if it is much, after every
request, or never. Giving it back costs time at the next request."""
Precision = Literal["auto", "float32", "bfloat16", "float16"]


@dataclass(frozen=True)
class EngineConfig:
    """``model`` is a local checkpoint folder or a spec that `cosyui.hub.resolve` understands.

    ``device`` is ``auto`` (CUDA when present), ``cpu``, ``cuda`` or ``cuda:N``; ``threads`` 0 leaves PyTorch's default;
    ``prompt_cache_bytes`` bounds the cache of prompt features; ``vram_budget``: bytes of the card that may be used, 0
    for four fifths; ``empty_cache``: see `EmptyCache`; ``places``: requests worked on at once, 0 for one on a CPU and
    as many as the memory allows on CUDA; ``lexicon`` is a file of own pronunciations; ``self_test``: speak a sentence
    at the start, to know that it is speech.
    """

    model: str
    llm_file: str = "llm.pt"
    device: str = "auto"
    precision: Precision = "auto"
    threads: int = 0
    prompt_cache_bytes: int = 64 << 20
    vram_budget: int = 0
    empty_cache: EmptyCache = "auto"
    places: int = 0
    lexicon: Path | None = None
    self_test: bool = True
