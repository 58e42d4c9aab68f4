"""A page of the journal as a table whose heads sort it, and how memory moves over the last requests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from html import escape
from typing import Any

from cosyui.ops.journal import Page
from cosyui.ops.journal_file import Filter, Row
from cosyui.ops.leaks import Trend, amount
from cosyui.service import remarks
from cosyui.ui.i18n import Words
from cosyui.ui.pieces import DASH, hint
from cosyui.ui.render import note

SORT = "journal-sort"
"""What the page's script picks heads for (see `cosyui.ui.picking`)."""
PAGE_ROWS = 50
OUTCOMES = ("done", "failed", "stopped", "rejected")
MODES = ("zero_shot", "cross_lingual", "instruct")
_TONES = {"failed": "bad", "rejected": "fair", "stopped": "faint"}


@dataclass(frozen=True)
class View:
    """What somebody looks at: which rows, in which order, and from which on."""

    chosen: Filter = Filter()  # noqa: RUF009  (frozen)
    sort: str = "arrived"
    descending: bool = True
    offset: int = 0

    def sorted_by(self, column: str) -> View:
        """From the first page; the other way round when it is sorted by that. Unknown columns change nothing."""
        if column not in _COLUMNS:
            return self
        return View(self.chosen, column, not self.descending if column == self.sort else True)

    def turned(self, pages: int) -> View:
        return View(self.chosen, self.sort, self.descending, max(0, self.offset + pages * PAGE_ROWS))


def journal_table(page: Page, view: View, words: Words) -> str:
    if page.problem is not None:
        return note(words.notice(remarks.journal_unread(page.problem)))
    if not page.rows:
        return hint(words("journal_none"))
    shown = [name for name in _COLUMNS if name not in _OPTIONAL or any(getattr(row, name) for row in page.rows)]
    head = "".join(_head(name, view, words) for name in shown)
    body = "".join(
        "<tr>" + "".join(f"<td{_class(name)}>{_cell(row, name, words)}</td>" for name in shown) + "</tr>"
        for row in page.rows
    )
    return f'<div class="scroll"><table class="entries journal"><tr>{head}</tr>{body}</table></div>'


def pager(page: Page, view: View, words: Words) -> str:
    """Which rows of how many."""
    if not page.rows:
        return ""
    first = view.offset + 1
    return hint(words("journal_rows", first=first, last=view.offset + len(page.rows), total=f"{page.total:,}"))


def trends(found: Sequence[Trend], words: Words) -> str:
    """Bytes that a request adds, as one line; nothing while there are too few rows."""
    if not found:
        return ""
    told = (
        words(
            "journal_trend",
            what=words(f"trend_{trend.column}") + ("" if trend.engine is None else f" {trend.engine}"),
            slope=f"{'+' if trend.slope > 0 else ''}{amount(trend.slope)}",
        )
        for trend in found
    )
    rows = max(trend.rows for trend in found)
    return hint(words("journal_trends", rows=rows) + words("list_comma").join(told))


def _head(name: str, view: View, words: Words) -> str:
    arrow = "" if name != view.sort else " ▾" if view.descending else " ▴"
    order = "" if name != view.sort else f' aria-sort="{"descending" if view.descending else "ascending"}"'
    label = escape(words(f"journal_{name}")) + arrow
    button = f'<button type="button" data-pick="{SORT}" data-value="{name}">{label}</button>'
    return f"<th{_class(name)}{order}>{button}</th>"


def _cell(row: Row, name: str, words: Words) -> str:
    value = getattr(row, name)
    return DASH if value is None else _COLUMNS[name](value, words)


def _class(name: str) -> str:
    return "" if name in _LEFT else ' class="number"'


def _time(value: Any, words: Words) -> str:
    return f"{datetime.fromtimestamp(value).astimezone():%m-%d %H:%M:%S}"


def _code(value: Any, words: Words) -> str:
    return f"<code>{escape(str(value))}</code>"


def _text(value: Any, words: Words) -> str:
    return escape(str(value))


def _outcome(value: Any, words: Words) -> str:
    known = words(f"outcome_{value}") if value in OUTCOMES else str(value)
    return f'<span class="{_TONES.get(value, "")}">{escape(known)}</span>'


def _mode(value: Any, words: Words) -> str:
    return words(f"mode_{value}") if value in MODES else escape(str(value))


def _seconds(value: Any, words: Words) -> str:
    return f"{value:.2f}" if abs(value) < 100 else f"{value:.0f}"


def _mib(value: Any, words: Words) -> str:
    return f"{value / (1 << 20):.0f}"


_COLUMNS: dict[str, Callable[[Any, Words], str]] = {
    "arrived": _time,
    "id": _code,
    "client": _text,
    "outcome": _outcome,
    "code": _code,
    "mode": _mode,
    "characters": _text,
    "speech_seconds": _seconds,
    "waited": _seconds,
    "first_chunk": _seconds,
    "total": _seconds,
    "rtf": _seconds,
    "device_peak": _mib,
    "allocated_after": _mib,
    "engine_rss_after": _mib,
    "page_rss_after": _mib,
}
_LEFT = {"arrived", "id", "client", "outcome", "code", "mode"}
_OPTIONAL = {"device_peak", "allocated_after"}
"""Left out where no row has one: there is no GPU."""
