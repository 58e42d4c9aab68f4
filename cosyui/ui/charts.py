"""Figures as pictures: bars cut into parts, and curves over time as SVG, which the page need not compute anything for.

What was not measured is a gap in a curve and not a line across it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from html import escape

import numpy as np
from numpy.typing import NDArray

WIDTH, HEIGHT = 600, 120
"""Of a chart, in the units of its view box."""
MOST_POINTS = 180
"""Of one curve: a page gets them every few seconds."""

Format = Callable[[float], str]


@dataclass(frozen=True)
class Part:
    """A part of a bar; ``name`` picks its colour (`part-<name>` in page.css)."""

    name: str
    label: str
    amount: float


def parts_bar(parts: Sequence[Part], form: Format, mark: float | None = None) -> str:
    """A bar of all ``parts``, with a legend; ``mark``: share of the whole at which a line stands."""
    whole = sum(part.amount for part in parts)
    shown = [part for part in parts if part.amount > 0]
    if whole <= 0:
        return ""
    pieces = "".join(
        f'<i class="part-{part.name}" style="width:{part.amount / whole:.2%}" title="{_told(part, form)}"></i>'
        for part in shown
    )
    line = "" if mark is None else f'<b class="mark" style="left:{mark:.0%}"></b>'
    legend = "".join(f'<li><i class="part-{part.name}"></i>{_told(part, form)}</li>' for part in shown)
    return f'<div class="parts">{pieces}{line}</div><ul class="legend">{legend}</ul>'


@dataclass(frozen=True)
class Line:
    """A curve (n,) with NaN where nothing was measured; ``name`` picks its colour (`line-<name>`)."""

    name: str
    label: str
    values: NDArray[np.float32]


def chart(title: str, times: NDArray[np.float64], lines: Sequence[Line], form: Format, top: float | None = None) -> str:
    """Curves over ``times`` (n,) in seconds since the epoch, from 0 to ``top``, or to the largest value.

    The heading tells the last values; nothing measured at all gives a chart that says so by being empty.
    """
    thinned = [thin(line.values) for line in lines]
    highest = top if top is not None else _round_up(max((_highest(values) for values in thinned), default=0.0))
    paths = "".join(
        f'<path class="line-{line.name}" d="{path(values, highest)}"/>'
        for line, values in zip(lines, thinned, strict=True)
    )
    heads = "".join(f'<span class="line-{line.name}">{_head(line, form)}</span>' for line in lines)
    ends = [datetime.fromtimestamp(float(at)).astimezone() for at in (times[0], times[-1])] if len(times) else []
    labels = "".join(f"<span>{end:%H:%M}</span>" for end in ends)
    return (
        f'<figure class="chart"><figcaption><b>{escape(title)}</b>{heads}</figcaption>'
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" preserveAspectRatio="none" role="img" aria-label="{escape(title)}">'
        f"{paths}</svg>"
        f'<div class="axis">{labels}<em>{escape(form(highest))}</em></div></figure>'
    )


def thin(values: NDArray[np.float32], most: int = MOST_POINTS) -> NDArray[np.float32]:
    """At most ``most`` values: the largest of so many neighbours, so that no peak is lost; NaN where all are."""
    group = max(1, math.ceil(len(values) / most))
    padded = np.pad(values, (0, -len(values) % group), constant_values=np.nan).reshape(-1, group)
    filled = np.where(np.isnan(padded), -np.inf, padded).max(axis=1, initial=-np.inf)
    return np.where(np.isneginf(filled), np.nan, filled).astype(np.float32)


def path(values: NDArray[np.float32], highest: float) -> str:
    """An SVG path of ``values``, left to right; a lone value is a short stroke."""
    step = WIDTH / max(1, len(values) - 1)
    out, pen_down = [], False
    for index, value in enumerate(values):
        if math.isnan(value):
            pen_down = False
            continue
        height = HEIGHT * (1 - min(1.0, max(0.0, float(value) / highest))) if highest > 0 else HEIGHT
        out.append(f"{'L' if pen_down else 'M'}{index * step:.1f} {height:.1f}")
        lone = not pen_down and (index + 1 == len(values) or math.isnan(values[index + 1]))
        if lone:
            out.append("h1")
        pen_down = True
    return "".join(out)


def _told(part: Part, form: Format) -> str:
    return f"{escape(part.label)} {escape(form(part.amount))}"


def _head(line: Line, form: Format) -> str:
    last = float(line.values[-1]) if len(line.values) else math.nan
    return f"{escape(line.label)} {'–' if math.isnan(last) else escape(form(last))}"


def _highest(values: NDArray[np.float32]) -> float:
    return 0.0 if np.isnan(values).all() else float(np.nanmax(values))


def _round_up(value: float) -> float:
    """To 1, 2 or 5 times a power of ten, so that the scale does not move all the time."""
    if value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(power * factor for factor in (1, 2, 5, 10) if value <= power * factor * 1.0000001)
