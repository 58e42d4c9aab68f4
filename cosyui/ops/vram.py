"""A card's memory in parts that add up to the whole of it, from what the engines and the driver tell."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from cosyui.ops.nvml import GpuSample, find_gpu

PARTS = ("weights", "kv_slots", "graphs", "features", "other", "unused", "others", "driver", "free")
"""From the bottom: ``features`` are keys and values that are kept of streams and prompts; ``graphs`` with workspaces
and CUDA's own context; other tensors; what PyTorch reserved and did not allocate; other processes; what the driver
keeps for itself; free."""


@dataclass(frozen=True)
class EngineMemory:
    """What an engine says of its card, in bytes: ``allocated`` and ``reserved`` are PyTorch's, the first four are known
    parts of what is allocated. ``graph_pools`` is reserved for graphs alone, beside what is allocated. ``context`` is
    CUDA's own, which PyTorch does not count: for where the driver does not tell our share. ``gpu`` names the card (by
    UUID or PCI address), empty for the only one.
    """

    allocated: int
    reserved: int
    weights: int = 0
    kv_slots: int = 0
    graphs: int = 0
    features: int = 0
    graph_pools: int = 0
    context: int = 0
    device_used: int = 0
    device_total: int = 0
    gpu: str = ""


def vram_parts(engine: EngineMemory | None, gpu: GpuSample | None) -> dict[str, int] | None:
    """Bytes by the names of ``PARTS``, of one card; None when nobody tells how large it is.

    Without driver the engine's own figures serve, without engine all that is used belongs to others. Figures that were
    taken at different moments may contradict each other: then a smaller part gives way to the larger one before it.
    """
    engine = engine if engine is not None else EngineMemory(0, 0)
    total = (gpu.total if gpu is not None else None) or engine.device_total
    if not total:
        return None
    told = gpu.used if gpu is not None else None
    used = told if told is not None else engine.device_used
    parts = dict.fromkeys(PARTS, 0)
    parts["driver"] = (gpu.reserved if gpu is not None else None) or 0
    left = engine.allocated
    for name, size in (
        ("weights", engine.weights),
        ("kv_slots", engine.kv_slots),
        ("graphs", engine.graphs),
        ("features", engine.features),
    ):
        parts[name] = min(size, left)
        left -= parts[name]
    parts["other"] = left
    unused = max(0, engine.reserved - engine.allocated)
    held = engine.allocated + unused
    pools = min(engine.graph_pools, unused)
    parts["graphs"] += pools
    parts["unused"] = unused - pools
    parts["others"], outside = _outside(engine, gpu, used, held)
    parts["graphs"] += outside
    parts["free"] = max(0, total - sum(parts.values()))
    return parts


def by_card(
    engines: Iterable[EngineMemory], gpus: tuple[GpuSample, ...]
) -> list[tuple[EngineMemory | None, GpuSample | None]]:
    """Each card of ``gpus`` with what all engines on it hold; then engines whose card the driver does not tell of."""
    merged: dict[str, EngineMemory] = {}
    strangers: list[EngineMemory] = []
    for engine in engines:
        gpu = find_gpu(gpus, engine.gpu) if engine.gpu else gpus[0] if len(gpus) == 1 else None
        if gpu is None:
            strangers.append(engine)
        else:
            merged[gpu.uuid] = _sum(merged[gpu.uuid], engine) if gpu.uuid in merged else engine
    cards: list[tuple[EngineMemory | None, GpuSample | None]] = [(merged.get(gpu.uuid), gpu) for gpu in gpus]
    return cards + [(engine, None) for engine in strangers]


def _outside(engine: EngineMemory, gpu: GpuSample | None, used: int, held: int) -> tuple[int, int]:
    """What other processes use, and what ours uses beside PyTorch."""
    rest = max(0, used - held)
    if gpu is not None and gpu.others is not None:
        others = min(gpu.others, rest)
        return others, rest - others
    outside = min(engine.context, rest)
    return rest - outside, outside


def _sum(one: EngineMemory, two: EngineMemory) -> EngineMemory:
    return EngineMemory(
        allocated=one.allocated + two.allocated,
        reserved=one.reserved + two.reserved,
        weights=one.weights + two.weights,
        kv_slots=one.kv_slots + two.kv_slots,
        graphs=one.graphs + two.graphs,
        features=one.features + two.features,
        graph_pools=one.graph_pools + two.graph_pools,
        context=one.context + two.context,
        device_used=max(one.device_used, two.device_used),
        device_total=max(one.device_total, two.device_total),
        gpu=one.gpu,
    )
