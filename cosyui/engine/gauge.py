"""What an engine holds of the device's memory: by parts, and around each request. On a CPU nothing of it is known."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import Any

import psutil
import torch

from cosyui.engine.memory import CONTEXT, MemoryPlan
from cosyui.engine.prompts import PromptCache
from cosyui.engine.request import EngineStats, RequestMemory
from cosyui.engine.stages import Stages

MAIN_POOL = (0, 0)
"""The allocator's pool that all tensors share; graphs have pools of their own."""
SNAPSHOT_EVERY = 10.0
"""Seconds between two looks at all blocks of an idle engine, which take milliseconds."""


@dataclass(frozen=True)
class Reading:
    """Bytes at one moment; the peaks are PyTorch's since the reading before."""

    allocated: int = 0
    reserved: int = 0
    device: int = 0
    allocated_peak: int = 0
    reserved_peak: int = 0
    splits: int = 0

    def with_peaks(self, later: Reading) -> Reading:
        """What was highest of the two, and all the rest as it is."""
        return replace(
            self,
            allocated_peak=max(self.allocated_peak, later.allocated_peak),
            reserved_peak=max(self.reserved_peak, later.reserved_peak),
        )


@dataclass
class _Span:
    """A request that is worked on: the reading when it began, and what was highest since."""

    before: Reading
    highest: Reading
    device_peak: int


@dataclass(frozen=True)
class Parts:
    """What lies on the device as long as the model is loaded, in bytes.

    ``graphs``: buffers, workspaces and constants; ``pools``: what the recorded graphs need while they run, reserved for
    them and not allocated; ``kept``: pages for the keys and values of streams and prompts.
    """

    weights: int = 0
    kv_slots: int = 0
    graphs: int = 0
    pools: int = 0
    kept: int = 0


@dataclass
class Gauge:
    """`begin` and `end` around each request; `fill` completes the engine's figures. Not thread-safe.

    The allocator has one high-water mark for all: it is read, handed to every request at work and set back whenever a
    request begins or ends, so that the peak of a request is that of the engine while it was worked on.
    """

    device: torch.device
    parts: Parts = field(default_factory=Parts)
    highest: Reading = field(default_factory=Reading)
    _spans: dict[str, _Span] = field(default_factory=dict)
    _process: psutil.Process = field(default_factory=psutil.Process)
    _largest_free: int = 0
    _next_snapshot: float = 0.0

    @property
    def on_cuda(self) -> bool:
        return self.device.type == "cuda"

    def loaded(self, plan: MemoryPlan, stages: Stages) -> None:
        """Take stock of a model that is ready to serve and idle."""
        if not self.on_cuda:
            return
        allocated = torch.cuda.memory_allocated(self.device)
        weights, slots = plan.parts.get("weights", 0), stages.slot_bytes
        kept = stages.flow.pool.nbytes
        pools = sum(segment["total_size"] - segment["active_size"] for segment in _segments() if not _is_main(segment))
        self.parts = Parts(weights, slots, max(0, allocated - weights - slots - kept), pools, kept)

    def forget_peaks(self) -> None:
        """From now on ``highest`` is that of what comes."""
        if self.on_cuda:
            self._read()
        self.highest = Reading()

    def begin(self, request_id: str) -> None:
        """A request is worked on from now on."""
        if self.on_cuda:
            now = self._read()
            start = replace(now, allocated_peak=now.allocated, reserved_peak=now.reserved)
            self._spans[request_id] = _Span(start, start, now.device)

    def end(self, request_id: str) -> RequestMemory:
        """What is to be told of a request that is done; of one that did not begin, only how it is now."""
        rss = self._process.memory_info().rss
        if not self.on_cuda:
            return RequestMemory(rss)
        now = self._read()
        span = self._spans.pop(request_id, None)
        if span is None:
            return RequestMemory(rss)
        return RequestMemory(
            rss,
            allocated_before=span.before.allocated,
            allocated_peak=span.highest.allocated_peak,
            allocated_after=now.allocated,
            reserved_before=span.before.reserved,
            reserved_peak=span.highest.reserved_peak,
            reserved_after=now.reserved,
            device_before=span.before.device,
            device_peak=span.device_peak,
            device_after=now.device,
        )

    def drop(self, request_id: str) -> None:
        """Nobody wants to know of this request."""
        self._spans.pop(request_id, None)

    def fill(self, stats: EngineStats, prompts: PromptCache, *, idle: bool) -> EngineStats:
        """``stats`` with all that is known of memory."""
        stats = replace(stats, rss=self._process.memory_info().rss, features=prompts.nbytes)
        if not self.on_cuda:
            return stats
        now = self._read()
        if idle:
            self._look_at_blocks()
        properties = torch.cuda.get_device_properties(self.device)
        return replace(
            stats,
            allocated=now.allocated,
            allocated_peak=max(now.allocated, self.highest.allocated_peak),
            reserved=now.reserved,
            device_used=now.device,
            device_total=properties.total_memory,
            weights=self.parts.weights,
            kv_slots=self.parts.kv_slots,
            graphs=self.parts.graphs,
            graph_pools=self.parts.pools,
            kept=self.parts.kept,
            context=CONTEXT,
            inactive_splits=now.splits,
            largest_free=self._largest_free,
            gpu=str(getattr(properties, "uuid", "")),
        )

    def _read(self) -> Reading:
        """How it is now; the high-water marks go to all that are at work, and begin anew."""
        told = torch.cuda.memory_stats_as_nested_dict(self.device)
        allocated, reserved = told["allocated_bytes"]["all"], told["reserved_bytes"]["all"]
        free, total = torch.cuda.mem_get_info(self.device)
        torch.cuda.reset_peak_memory_stats(self.device)
        now = Reading(
            allocated["current"],
            reserved["current"],
            total - free,
            allocated["peak"],
            reserved["peak"],
            told["inactive_split_bytes"]["all"]["current"],
        )
        self.highest = self.highest.with_peaks(now)
        for span in self._spans.values():
            span.highest = span.highest.with_peaks(now)
            span.device_peak = max(span.device_peak, now.device)
        return now

    def _look_at_blocks(self) -> None:
        if time.monotonic() < self._next_snapshot:
            return
        self._next_snapshot = time.monotonic() + SNAPSHOT_EVERY
        blocks = (block for segment in _segments() if _is_main(segment) for block in segment["blocks"])
        self._largest_free = max((block["size"] for block in blocks if block["state"] == "inactive"), default=0)


def _segments() -> list[dict[str, Any]]:
    """The allocator's; none where it keeps no account of them."""
    try:
        segments: list[dict[str, Any]] = torch.cuda.memory_snapshot()  # type: ignore[no-untyped-call]
    except torch.AcceleratorError:
        raise  # the CUDA context is lost
    except RuntimeError:
        return []
    return segments


def _is_main(segment: dict[str, Any]) -> bool:
    return tuple(segment.get("segment_pool_id", MAIN_POOL)) == MAIN_POOL
