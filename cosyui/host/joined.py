"""What several engines tell of themselves, as if they were one."""

from __future__ import annotations

import functools
import operator
from collections import Counter
from collections.abc import Sequence
from dataclasses import fields, replace

from cosyui.engine.request import EngineFacts, EngineStats


def joined_facts(facts: Sequence[EngineFacts]) -> EngineFacts | None:
    """One model on several devices: places are added, devices listed, the longest load counts; None for none.

    Parameters and memory are those of one device; the self-test is one that failed, if any did.
    """
    if len(facts) < 2:
        return facts[0] if facts else None
    devices = Counter(each.device for each in facts)
    return replace(
        facts[0],
        device=", ".join(name if count == 1 else f"{count} × {name}" for name, count in devices.items()),
        load_seconds=max(each.load_seconds for each in facts),
        places=sum(each.places for each in facts),
        warnings=tuple(dict.fromkeys(warning for each in facts for warning in each.warnings)),
        self_test=next((each.self_test for each in facts if each.degraded), facts[0].self_test),
    )


def joined_stats(stats: Sequence[EngineStats]) -> EngineStats | None:
    """Sums of all counters, and the largest of all free blocks; None for none. ``gpu`` is empty for several."""
    return functools.reduce(_added, stats) if stats else None


def _added(one: EngineStats, other: EngineStats) -> EngineStats:
    names = [field.name for field in fields(EngineStats) if field.name not in ("extra", "gpu", "largest_free")]
    sums = {name: operator.add(getattr(one, name), getattr(other, name)) for name in names}
    extra = {name: one.extra.get(name, 0.0) + other.extra.get(name, 0.0) for name in one.extra | other.extra}
    gpu = one.gpu if one.gpu == other.gpu else ""
    return EngineStats(**sums, largest_free=max(one.largest_free, other.largest_free), gpu=gpu, extra=extra)
