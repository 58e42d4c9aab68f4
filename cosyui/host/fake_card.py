"""The memory of a GPU that is not there, for the fake engine: plausible figures that move with its requests."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import psutil

from cosyui.engine.request import EngineStats, RequestMemory

MIB = 1 << 20
TOTAL, CONTEXT, OTHERS = 24_576 * MIB, 512 * MIB, 700 * MIB
WEIGHTS, KV_SLOTS, KEPT, GRAPHS, GRAPH_POOLS = 1400 * MIB, 800 * MIB, 1024 * MIB, 600 * MIB, 256 * MIB
AT_REST = WEIGHTS + KV_SLOTS + KEPT + GRAPHS
UNUSED = 384 * MIB
EACH, PEAK = 24 * MIB, 40 * MIB
"""A request at work has so much allocated, and so much at most."""
FEATURES = 300 * 1024
"""Of a prompt clip."""


@dataclass
class FakeCard:
    """As `cosyui.engine.gauge.Gauge`; without ``present`` a machine has no GPU. ``leaked``: what requests left."""

    present: bool
    leaked: int = 0
    highest: int = AT_REST
    clips: set[str] = field(default_factory=set)
    _before: dict[str, int] = field(default_factory=dict)
    _process: psutil.Process = field(default_factory=psutil.Process)

    @property
    def allocated(self) -> int:
        return AT_REST + self.leaked + EACH * len(self._before)

    def begin(self, request_id: str, clip: str) -> None:
        self._before[request_id] = self.allocated
        self.clips.add(clip)

    def end(self, request_id: str, leak: int = 0) -> RequestMemory:
        before = self._before.pop(request_id, self.allocated)
        self.leaked += leak
        rss = self._process.memory_info().rss
        if not self.present:
            return RequestMemory(rss)
        after, reserve, outside = self.allocated, GRAPH_POOLS + UNUSED, GRAPH_POOLS + UNUSED + CONTEXT + OTHERS
        peak = max(before, after) + PEAK
        self.highest = max(self.highest, peak)
        return RequestMemory(
            rss,
            *(before, peak, after),
            *(size + reserve for size in (before, peak, after)),
            *(size + outside for size in (before, peak, after)),
        )

    def clear(self, *, light: bool) -> int:
        """Forget the clips, unless ``light``; bytes of their features."""
        if light:
            return 0
        self.highest = self.allocated
        freed = FEATURES * len(self.clips)
        self.clips.clear()
        return freed

    def fill(self, stats: EngineStats) -> EngineStats:
        stats = replace(
            stats,
            rss=self._process.memory_info().rss,
            cached_prompts=len(self.clips),
            features=FEATURES * len(self.clips),
        )
        if not self.present:
            return stats
        reserved = self.allocated + GRAPH_POOLS + UNUSED
        return replace(
            stats,
            allocated=self.allocated,
            allocated_peak=self.highest,
            reserved=reserved,
            device_used=reserved + CONTEXT + OTHERS,
            device_total=TOTAL,
            weights=WEIGHTS,
            kv_slots=KV_SLOTS,
            kept=KEPT,
            graphs=GRAPHS,
            graph_pools=GRAPH_POOLS,
            context=CONTEXT,
            inactive_splits=UNUSED // 4,
            largest_free=UNUSED // 2,
        )
