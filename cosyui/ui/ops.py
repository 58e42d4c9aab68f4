"""The operator's panel: what needs attention, what runs, what waits, what it costs, and what is loaded. One HTML."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from cosyui.engine.request import SelfTest
from cosyui.host.pool import EngineView
from cosyui.service import remarks
from cosyui.service.types import Overview
from cosyui.ui.i18n import Words
from cosyui.ui.ops_gpu import devices
from cosyui.ui.ops_queue import queue
from cosyui.ui.pieces import DASH, Tile, card, count, duration, hint, pairs, size, table, tiles
from cosyui.ui.render import notes


def panel(overview: Overview, words: Words, may_cancel: bool = False) -> str:
    """What needs attention, then cards: queue, devices, engine, model."""
    shown = list(devices(overview, words))
    cards = (
        _attention(overview, words),
        queue(overview, words, may_cancel),
        *shown,
        card("engine", words("ops_engine"), _engine(overview, words)),
        # Two cards stand side by side: the last fills the line when it is alone there.
        card("model", words("ops_model"), _model(overview, words), "wide" if len(shown) % 2 else ""),
    )
    return f'<div class="ops">{"".join(cards)}</div>'


def _attention(overview: Overview, words: Words) -> str:
    found = [*overview.problems, *(remark for leak in overview.leaks for remark in remarks.of_leak(leak))]
    body = notes(found, words)
    if overview.problem is not None:
        body = f'<p class="problem-line">{escape(words.error(overview.problem))}</p>' + body
    return card("attention", words("ops_watch"), body, "wide") if body else ""


def _engine(overview: Overview, words: Words) -> str:
    counts = (overview.finished, overview.failed, overview.stopped, overview.rejected)
    sample = overview.sample
    firsts = None
    if sample.first_chunk_p50 is not None and sample.first_chunk_p95 is not None:
        firsts = f"{sample.first_chunk_p50:.2f} / {sample.first_chunk_p95:.2f} s"
    figures = (
        Tile(words("ops_speed"), None if overview.speed is None else f"{overview.speed:.1f}"),
        Tile(words("ops_rtf"), None if overview.rtf is None else f"{overview.rtf:.2f}"),
        Tile(words("ops_first_chunk"), firsts),
        Tile(words("ops_uptime"), duration(overview.uptime_seconds)),
    )
    rows = [
        (words("ops_state"), f'<span class="badge {overview.engine}">{words(f"engine_{overview.engine}")}</span>'),
        (words("ops_takes"), " / ".join(map(str, counts))),
        (words("ops_places"), str(overview.places)),
        (words("ops_restarts"), str(overview.engine_restarts)),
        (words("ops_pid"), ", ".join(str(engine.pid) for engine in overview.engines if engine.pid) or DASH),
    ]
    several = _engines(overview.engines, words) if len(overview.engines) > 1 else ""
    return tiles(figures) + table(rows) + several


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
        DASH if stats is None else f"{size(stats.allocated)} / {size(stats.reserved)}",
    )
    return f'<tr data-engine-row="{engine.number}">{"".join(f"<td>{cell}</td>" for cell in cells)}</tr>'


def _model(overview: Overview, words: Words) -> str:
    facts = overview.facts
    if facts is None:
        return hint(words("ops_no_model"))
    rows = [
        (words("ops_model"), f"<b>{escape(facts.model)}</b>"),
        (words("ops_source"), escape(facts.source)),
        (words("ops_device"), escape(facts.device)),
        (words("ops_precision"), pairs({name: escape(value) for name, value in facts.precision.items()})),
        (words("ops_parameters"), pairs({name: count(value) for name, value in facts.parameters.items()})),
        (words("ops_part_memory"), pairs({name: size(value) for name, value in facts.memory.items()})),
        (words("ops_load"), f"{facts.load_seconds:.1f} s"),
        (words("ops_self_test"), _self_test(facts.self_test, words)),
        (words("ops_providers"), pairs({name: escape(value) for name, value in facts.providers.items()})),
        (words("ops_versions"), pairs({name: escape(value) for name, value in facts.versions.items()})),
        (words("ops_languages"), escape(", ".join(facts.languages))),
    ]
    if overview.stats is not None:
        rows.append((words("ops_prompts"), str(overview.stats.cached_prompts)))
    return table(rows) + _warnings(facts.warnings, words)


def _self_test(test: SelfTest | None, words: Words) -> str:
    if test is None:
        return DASH
    figures = {words("self_test_agreement"): test.agreement, words("self_test_gain"): test.gain}
    told = pairs({name: DASH if figure is None else f"{figure:.2f}" for name, figure in figures.items()})
    if test.reason is None:
        return f"{escape(words('self_test_passed', seconds=test.seconds))} {told}"
    return f'<b class="bad">{escape(words.notice(test.reason))}</b> {told}'


def _warnings(sentences: Sequence[str], words: Words) -> str:
    if not sentences:
        return ""
    lines = "".join(f"<li>{escape(sentence)}</li>" for sentence in sentences)
    return f'{hint(words("ops_warnings"))}<ul class="notes">{lines}</ul>'
