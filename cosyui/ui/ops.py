"""The operator's tab: what runs, what waits, what it costs, and what is loaded. One overview a tick, as HTML."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from html import escape

from cosyui.host.pool import EngineView
from cosyui.ops.monitor import MachineSample
from cosyui.ops.nvml import GpuSample
from cosyui.ops.purge import PurgeResult
from cosyui.service.types import Overview, QueueEntry
from cosyui.ui.charts import Part, parts_bar
from cosyui.ui.i18n import Words

VRAM_MARK = 0.8
"""Share of a card that an engine uses by default."""
Rows = Iterable[tuple[str, str]]


def panel(overview: Overview, words: Words) -> str:
    """Four cards: engine, memory, queue, model."""
    cards = (
        _card("engine", words("ops_engine"), _engine(overview, words)),
        _card("memory", words("ops_memory"), _memory(overview, words)),
        _card("queue", words("ops_queue"), _queue(overview, words)),
        _card("model", words("ops_model"), _model(overview, words)),
    )
    return f'<div class="ops">{"".join(cards)}</div>'


def _engine(overview: Overview, words: Words) -> str:
    counts = (overview.finished, overview.failed, overview.stopped, overview.rejected)
    rows = [
        (words("ops_state"), f'<span class="badge {overview.engine}">{words(f"engine_{overview.engine}")}</span>'),
        (words("ops_uptime"), duration(overview.uptime_seconds)),
        (words("ops_restarts"), str(overview.engine_restarts)),
        (words("ops_pid"), ", ".join(str(engine.pid) for engine in overview.engines if engine.pid) or "–"),
        (words("ops_places"), str(overview.places)),
        (words("ops_rtf"), "–" if overview.rtf is None else f"{overview.rtf:.2f}"),
        (words("ops_speed"), "–" if overview.speed is None else f"{overview.speed:.1f}"),
        (words("ops_takes"), " / ".join(map(str, counts))),
    ]
    trouble = ""
    if overview.problem is not None:
        trouble = f'<p class="problem-line">{escape(words.error(overview.problem))}</p>'
    several = _engines(overview.engines, words) if len(overview.engines) > 1 else ""
    return _table(rows) + several + trouble + _remarks("ops_watch", overview.problems + _leaks(overview), words)


def _leaks(overview: Overview) -> tuple[str, ...]:
    return tuple(leak.reason for leak in overview.leaks)


def _engines(engines: Iterable[EngineView], words: Words) -> str:
    heads = ("ops_device", "ops_state", "ops_col_requests", "ops_restarts", "ops_vram_engine")
    head = "".join(f"<th>{words(key)}</th>" for key in heads)
    body = "".join(_engine_row(engine, words) for engine in engines)
    return f'<div class="scroll"><table class="entries"><tr>{head}</tr>{body}</table></div>'


def _engine_row(engine: EngineView, words: Words) -> str:
    facts, stats = engine.facts, engine.stats
    places = facts.places if facts is not None else 0
    cells = (
        escape(engine.device) + (f" · {escape(facts.device)}" if facts is not None else ""),
        f'<span class="badge {engine.state}">{words(f"engine_{engine.state}")}</span>',
        words("ops_of", count=engine.requests, size=places),
        str(engine.restarts),
        "–" if stats is None else f"{size(stats.allocated)} / {size(stats.reserved)}",
    )
    return f'<tr data-engine-row="{engine.number}">{"".join(f"<td>{cell}</td>" for cell in cells)}</tr>'


def _memory(overview: Overview, words: Words) -> str:
    meters = f'<p class="hint">{words("ops_measuring")}</p>'
    if overview.machine is not None:
        meters = _meters(overview.machine, words)
    stats = overview.stats
    notes = ""
    if stats is not None and stats.device_total:
        held = words("ops_allocated", allocated=size(stats.allocated), reserved=size(stats.reserved))
        notes = f'<p class="hint">{words("ops_vram_engine")}: {held}</p>'
    elif overview.machine is not None and not overview.machine.gpus:
        notes = f'<p class="hint">{words("ops_no_gpu")}</p>'
    bars = "".join(
        f'<p class="hint">{words("ops_vram")}</p>'
        + parts_bar(
            [Part(name, words(f"ops_vram_{name}"), amount) for name, amount in parts.items()],
            lambda amount: size(int(amount)),
            VRAM_MARK,
        )
        for parts in overview.sample.vram.values()
    )
    return meters + bars + notes + _table(_vram(overview, words) + _disk(overview, words))


def _meters(machine: MachineSample, words: Words) -> str:
    engine_rss = machine.engine.rss if machine.engine is not None else 0
    used = machine.ram_total - machine.ram_available
    meters = [
        _meter(words("ops_ram_page"), size(machine.process.rss), machine.process.rss / machine.ram_total),
        _meter(words("ops_ram_engine"), size(engine_rss), engine_rss / machine.ram_total),
        _meter(words("ops_ram_machine"), f"{size(used)} / {size(machine.ram_total)}", used / machine.ram_total),
        _meter(words("ops_cpu"), f"{machine.cpu_percent:.0f} %", machine.cpu_percent / 100, alarm=False),
    ]
    return "".join(meters + [_gpu(gpu) for gpu in machine.gpus])


def _vram(overview: Overview, words: Words) -> list[tuple[str, str]]:
    """How the cards' memory is broken up."""
    rows = []
    stats = overview.stats
    if stats is not None and stats.device_total:
        pieces = words("ops_pieces", largest=size(stats.largest_free), splits=size(stats.inactive_splits))
        rows.append((words("ops_fragments"), pieces))
    return rows


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


def _gpu(gpu: GpuSample) -> str:
    if gpu.used is None or not gpu.total:
        return _meter(gpu.name, "–", 0)
    extra = "" if gpu.utilisation is None else f" · {gpu.utilisation} %"
    extra += "" if gpu.temperature is None else f" · {gpu.temperature} °C"
    return _meter(gpu.name, f"{size(gpu.used)} / {size(gpu.total)}{extra}", gpu.used / gpu.total)


def _queue(overview: Overview, words: Words) -> str:
    waiting = words("ops_of", count=len(overview.waiting), size=overview.queue_size)
    sample = overview.sample
    rows = [(words("ops_running"), str(len(overview.running))), (words("ops_waiting"), waiting)]
    if sample.first_chunk_p50 is not None and sample.first_chunk_p95 is not None:
        firsts = f"{sample.first_chunk_p50:.2f} / {sample.first_chunk_p95:.2f} s"
        rows.append((words("ops_first_chunk"), firsts))
    entries = [*overview.running, *overview.waiting]
    if not entries:
        return _table(rows) + f'<p class="hint">{words("ops_idle")}</p>'
    heads = ("ops_col_take", "ops_col_state", "ops_col_age", "ops_col_work", "ops_col_eta")
    head = "".join(f"<th>{words(key)}</th>" for key in heads)
    body = "".join(_entry(entry, words) for entry in entries)
    return _table(rows) + f'<div class="scroll"><table class="entries"><tr>{head}</tr>{body}</table></div>'


def _entry(entry: QueueEntry, words: Words) -> str:
    eta = "–" if entry.eta_seconds is None else f"{math.ceil(entry.eta_seconds)} s"
    cells = (
        f"<code>{escape(entry.id)}</code>",
        words(f"ops_state_{entry.state}", position=entry.position),
        f"{entry.age_seconds:.0f} s",
        f"{entry.done_seconds:.1f} / {entry.expected_seconds:.1f} s",
        eta,
    )
    return f'<tr data-state="{entry.state}">{"".join(f"<td>{cell}</td>" for cell in cells)}</tr>'


def _model(overview: Overview, words: Words) -> str:
    facts = overview.facts
    if facts is None:
        return f'<p class="hint">{words("ops_no_model")}</p>'
    rows = [(words("ops_model"), f"<b>{escape(facts.model)}</b>"), (words("ops_source"), escape(facts.source))]
    rows += [
        (words("ops_device"), escape(facts.device)),
        (words("ops_precision"), _parts({name: escape(value) for name, value in facts.precision.items()})),
        (words("ops_parameters"), _parts({name: count(value) for name, value in facts.parameters.items()})),
        (words("ops_part_memory"), _parts({name: size(value) for name, value in facts.memory.items()})),
        (words("ops_load"), f"{facts.load_seconds:.1f} s"),
        (words("ops_languages"), escape(", ".join(facts.languages))),
    ]
    if overview.stats is not None:
        rows.append((words("ops_prompts"), str(overview.stats.cached_prompts)))
    return _table(rows) + _remarks("ops_warnings", facts.warnings, words)


def _remarks(title: str, sentences: Sequence[str], words: Words) -> str:
    if not sentences:
        return ""
    lines = "".join(f"<li>{escape(sentence)}</li>" for sentence in sentences)
    return f'<p class="hint">{words(title)}</p><ul class="notes">{lines}</ul>'


def _card(name: str, title: str, body: str) -> str:
    return f'<section class="card" data-card="{name}"><h2 class="card-title">{escape(title)}</h2>{body}</section>'


def _table(rows: Rows) -> str:
    return (
        f'<dl class="rows">{"".join(f"<div><dt>{escape(key)}</dt><dd>{value}</dd></div>" for key, value in rows)}</dl>'
    )


def _parts(values: dict[str, str]) -> str:
    """``{"llm": "14.5 M"}`` as small pairs; a dash for none."""
    return " ".join(f'<span class="pair"><i>{escape(key)}</i> {value}</span>' for key, value in values.items()) or "–"


def _meter(label: str, value: str, share: float, alarm: bool = True) -> str:
    share = max(0.0, min(1.0, share))
    full = " full" if alarm and share > 0.9 else ""
    return (
        f'<div class="meter-row"><span>{escape(label)}</span><b>{escape(value)}</b>'
        f'<div class="bar{full}"><i style="width:{share:.1%}"></i></div></div>'
    )


def size(amount: int) -> str:
    """Bytes with a binary unit: 1.4 GiB."""
    value = float(amount)
    for unit in ("B", "KiB", "MiB"):
        if value < 1024:
            return f"{value:.0f} {unit}"
        value /= 1024
    return f"{value:.1f} GiB"


def count(amount: int) -> str:
    """Parameters: 505 M, 14.5 M, 930 k."""
    if amount >= 100_000_000:
        return f"{amount / 1e6:.0f} M"
    return f"{amount / 1e6:.1f} M" if amount >= 1_000_000 else f"{amount / 1e3:.0f} k"


def duration(seconds: float) -> str:
    """0:42, 12:05, 3:04:05, 2 d 3:04:05."""
    days, rest = divmod(int(seconds), 86400)
    hours, rest = divmod(rest, 3600)
    minutes, second = divmod(rest, 60)
    clock = f"{hours}:{minutes:02}:{second:02}" if hours or days else f"{minutes}:{second:02}"
    return f"{days} d {clock}" if days else clock
