"""The cards of the devices: the machine with its CPU and memory, and each GPU as far as the driver tells of it."""

from __future__ import annotations

from collections.abc import Iterator

from cosyui.engine.request import EngineStats
from cosyui.ops.monitor import MachineSample
from cosyui.ops.nvml import GpuSample
from cosyui.ops.purge import PurgeResult
from cosyui.ops.sampler import NAMELESS
from cosyui.service.types import Overview
from cosyui.ui.charts import Part, parts_bar
from cosyui.ui.i18n import Words
from cosyui.ui.pieces import Tile, card, duration, hint, size, table, tiles

VRAM_MARK = 0.8
"""Share of a card that an engine uses by default."""
HOT = 85
"""°C from which on a temperature stands out."""


def devices(overview: Overview, words: Words) -> Iterator[str]:
    """A card for the machine, then one for each GPU, with NVML or without."""
    yield card("memory", words("ops_memory"), _machine(overview, words), _stale(overview))
    gpus = overview.machine.gpus if overview.machine is not None else ()
    untold = dict(overview.sample.vram)
    for number, gpu in enumerate(gpus):
        parts = untold.pop(gpu.uuid or NAMELESS, None)
        yield card("gpu", _title(gpu, number, len(gpus)), gpu_body(gpu, parts, words), _stale(overview))
    for parts in untold.values():  # the engine tells of a card that the driver does not tell of
        yield card("gpu", words("ops_vram"), _parts(parts, words) + hint(words("gpu_untold")))


def gpu_body(gpu: GpuSample, parts: dict[str, int] | None, words: Words) -> str:
    """Its figures, each a dash where it is not told, and its memory: by parts, or in one piece."""
    if gpu.lost:
        return f'<p class="note-line">{words("gpu_lost")}</p>'
    notes = hint(words("gpu_slice")) if gpu.parent is not None else ""
    return tiles(_figures(gpu, words)) + (_parts(parts, words) if parts is not None else "") + notes


def _figures(gpu: GpuSample, words: Words) -> Iterator[Tile]:
    yield Tile(words("gpu_load"), _unit(gpu.utilisation, "%"), share=_share(gpu.utilisation, 100))
    memory = None if gpu.used is None else size(gpu.used)
    whole = "" if gpu.total is None else f"/ {size(gpu.total)}"
    yield Tile(words("ops_vram"), memory, whole, _share(gpu.used, gpu.total), alarms=True)
    yield Tile(words("gpu_memory_load"), _unit(gpu.memory_utilisation, "%"), share=_share(gpu.memory_utilisation, 100))
    limit = "" if gpu.power_limit is None else f"/ {gpu.power_limit:.0f} W"
    yield Tile(words("gpu_power"), _unit(gpu.power, "W"), limit, _share(gpu.power, gpu.power_limit))
    hot = gpu.temperature is not None and gpu.temperature >= HOT
    yield Tile(words("gpu_heat"), _unit(gpu.temperature, "°C"), tone="bad" if hot else "")
    yield Tile(words("gpu_clock"), _unit(gpu.sm_clock, "MHz"))
    yield Tile(words("gpu_memory_clock"), _unit(gpu.memory_clock, "MHz"))
    yield Tile(words("gpu_throttle"), _throttle(gpu, words), tone="words fair" if gpu.throttle else "words")


def _throttle(gpu: GpuSample, words: Words) -> str | None:
    if gpu.throttle is None:
        return None
    reasons = [words(f"throttle_{reason}") for reason in gpu.throttle]
    return words("list_comma").join(reasons) or words("throttle_none")


def _unit(value: float | None, unit: str) -> str | None:
    return None if value is None else f"{value:.0f} {unit}"


def _share(value: float | None, whole: float | None) -> float | None:
    return value / whole if value is not None and whole else None


def _title(gpu: GpuSample, number: int, count: int) -> str:
    return f"GPU {number} · {gpu.name}" if count > 1 else f"GPU · {gpu.name}"


def _parts(parts: dict[str, int], words: Words) -> str:
    shown = [Part(name, words(f"ops_vram_{name}"), amount) for name, amount in parts.items()]
    return parts_bar(shown, lambda amount: size(int(amount)), VRAM_MARK)


def _machine(overview: Overview, words: Words) -> str:
    machine, stats = overview.machine, overview.stats
    body = hint(words("ops_measuring")) if machine is None else tiles(_memory(machine, words))
    if machine is not None and not machine.gpus and not overview.sample.vram:
        body += hint(words("ops_no_gpu"))
    return body + table(_vram(stats, words) + _disk(overview, words))


def _memory(machine: MachineSample, words: Words) -> Iterator[Tile]:
    engine = machine.engine.rss if machine.engine is not None else None
    used, total = machine.ram_total - machine.ram_available, machine.ram_total
    cores = words("ops_cores", count=machine.cpu_count)
    yield Tile(words("ops_cpu"), _unit(machine.cpu_percent, "%"), cores, machine.cpu_percent / 100)
    yield Tile(words("ops_ram_machine"), size(used), f"/ {size(total)}", used / total, alarms=True)
    yield Tile(words("ops_ram_engine"), None if engine is None else size(engine), share=_share(engine, total))
    yield Tile(words("ops_ram_page"), size(machine.process.rss), share=machine.process.rss / total)


def _vram(stats: EngineStats | None, words: Words) -> list[tuple[str, str]]:
    """What the engines hold of their cards, and how it is broken up."""
    if stats is None or not stats.device_total:
        return []
    held = words(
        "ops_allocated", allocated=size(stats.allocated), peak=size(stats.allocated_peak), reserved=size(stats.reserved)
    )
    pieces = words("ops_pieces", largest=size(stats.largest_free), splits=size(stats.inactive_splits))
    return [(words("ops_vram_engine"), held), (words("ops_fragments"), pieces)]


def _disk(overview: Overview, words: Words) -> list[tuple[str, str]]:
    disk, purge = overview.sample.disk, overview.purge
    rows = []
    if disk is not None:
        rows.append((words("ops_outputs"), words("ops_disk", used=size(disk.used), free=size(disk.free))))
    if isinstance(purge.result, PurgeResult):
        done = words("ops_purged", files=purge.result.files, size=size(purge.result.bytes))
        rows.append((words("ops_purge_last"), done))
    if purge.next_in is not None:
        rows.append((words("ops_purge_next"), words("ops_in", time=duration(purge.next_in))))
    return rows


def _stale(overview: Overview) -> str:
    return "stale" if overview.sample.stale else ""
