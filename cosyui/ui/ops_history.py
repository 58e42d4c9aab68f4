"""What was measured in the last quarter of an hour, hour or day, as charts."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from cosyui.ops.history import Curve, Span
from cosyui.ops.sampler import Sampler
from cosyui.ops.vram import PARTS
from cosyui.ui.charts import Line, chart
from cosyui.ui.i18n import Words
from cosyui.ui.pieces import size

COLOURS = ("one", "two", "three")
Values = NDArray[np.float32]


def history(sampler: Sampler, span: Span, words: Words) -> str:
    """Charts of the service and the machine, and for each card that a figure is known of."""
    curve = _begun(sampler.curve(span))
    charts = [
        _chart(curve, words("chart_speed"), {words("chart_speed_line"): "speed"}, _number),
        _chart(curve, words("chart_first"), {"p50": "first_chunk_p50", "p95": "first_chunk_p95"}, _seconds),
        _chart(
            curve, words("chart_queue"), {words("ops_running"): "running", words("ops_waiting"): "waiting"}, _number
        ),
        _chart(curve, words("chart_cpu"), {"": "cpu"}, _percent, 100.0),
        _chart(
            curve,
            words("chart_ram"),
            {
                words("ops_ram_machine"): "ram_used",
                words("ops_ram_page"): "ram_page",
                words("ops_ram_engine"): "ram_engine",
            },
            _bytes,
        ),
        _chart(curve, words("chart_errors"), {words("chart_errors_line"): "errors"}, _number),
    ]
    cards = dict.fromkeys(name.rpartition("/")[0] for name in curve.mean if "/" in name)
    for number, card in enumerate(cards):
        title = f" · GPU {number}" if len(cards) > 1 else ""
        charts += [
            _vram(curve, card, words("chart_vram") + title, words),
            _chart(curve, words("chart_load") + title, {"": f"{card}/utilisation"}, _percent, 100.0),
            _chart(curve, words("chart_power") + title, {"": f"{card}/power"}, _watts),
            _chart(curve, words("chart_heat") + title, {"": f"{card}/temperature"}, _degrees, 100.0),
        ]
    return f'<section class="card" data-card="history"><div class="charts">{"".join(charts)}</div></section>'


def _begun(curve: Curve) -> Curve:
    """Without the last bucket, as long as nothing is in it yet: there is no figure of now to tell in a heading."""
    if not all(np.isnan(values[-1]) for values in curve.peak.values()):
        return curve
    mean, peak = ({name: values[:-1] for name, values in one.items()} for one in (curve.mean, curve.peak))
    return Curve(curve.times[:-1], curve.step, mean, peak)


def _chart(
    curve: Curve, title: str, names: dict[str, str], form: Callable[[float], str], top: float | None = None
) -> str:
    lines = [
        Line(colour, label, _values(curve, name)) for colour, (label, name) in zip(COLOURS, names.items(), strict=False)
    ]
    return chart(title, curve.times, lines, form, top)


def _vram(curve: Curve, card: str, title: str, words: Words) -> str:
    """What is used of a card in all, and what PyTorch keeps of it unused."""
    parts = {part: _values(curve, f"{card}/{part}") for part in PARTS}
    whole = np.sum(list(parts.values()), axis=0)
    lines = [
        Line("one", words("chart_used"), whole - parts["free"]),
        Line("two", words("ops_vram_unused"), parts["unused"]),
    ]
    highest = float(np.nanmax(whole)) if not np.isnan(whole).all() else None
    return chart(title, curve.times, lines, _bytes, highest)


def _values(curve: Curve, name: str) -> Values:
    return curve.peak.get(name, np.full(len(curve.times), np.nan, np.float32))


def _number(value: float) -> str:
    return f"{value:.0f}" if value >= 10 or value == int(value) else f"{value:.1f}"


def _percent(value: float) -> str:
    return f"{value:.0f} %"


def _seconds(value: float) -> str:
    return f"{value:.2f} s"


def _watts(value: float) -> str:
    return f"{value:.0f} W"


def _degrees(value: float) -> str:
    return f"{value:.0f} °C"


def _bytes(value: float) -> str:
    return size(int(value))
