"""Pieces that the cards of the ops tab are put together from, and figures in words. All text escaped."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from html import escape

DASH = "–"
FULL = 0.9
"""Share from which on a bar alarms."""
Rows = Iterable[tuple[str, str]]


def card(name: str, title: str, body: str, classes: str = "") -> str:
    """``body`` is HTML."""
    head = f'<h2 class="card-title">{escape(title)}</h2>'
    return f'<section class="card {classes}" data-card="{name}">{head}{body}</section>'


def table(rows: Rows) -> str:
    """Pairs of a label and its value, which is HTML."""
    lines = "".join(f"<div><dt>{escape(key)}</dt><dd>{value}</dd></div>" for key, value in rows)
    return f'<dl class="rows">{lines}</dl>'


def hint(sentence: str) -> str:
    return f'<p class="hint">{escape(sentence)}</p>'


def pairs(values: dict[str, str]) -> str:
    """``{"llm": "14.5 M"}`` as small pairs, the values HTML; a dash for none."""
    return " ".join(f'<span class="pair"><i>{escape(key)}</i> {value}</span>' for key, value in values.items()) or DASH


@dataclass(frozen=True)
class Tile:
    """A figure in a frame; None is a dash. ``of`` stands behind it in small letters; ``share`` (0 to 1) draws a bar,
    which alarms when it is nearly full.
    """

    label: str
    value: str | None
    of: str = ""
    share: float | None = None
    alarms: bool = False
    tone: str = ""


def tiles(given: Iterable[Tile]) -> str:
    return f'<dl class="tiles">{"".join(_tile(tile) for tile in given)}</dl>'


def _tile(tile: Tile) -> str:
    of = f" <small>{escape(tile.of)}</small>" if tile.of and tile.value is not None else ""
    bar = ""
    if tile.share is not None and tile.value is not None:
        share = max(0.0, min(1.0, tile.share))
        full = " full" if tile.alarms and share > FULL else ""
        bar = f'<div class="bar{full}"><i style="width:{share:.1%}"></i></div>'
    tone = f' class="{tile.tone}"' if tile.tone else ""
    value = DASH if tile.value is None else escape(tile.value)
    return f'<div class="tile"><dt>{escape(tile.label)}</dt><dd{tone}>{value}{of}</dd>{bar}</div>'


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
