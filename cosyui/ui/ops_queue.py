"""The queue's card: who is at work and who waits, each with a button to stop it."""

from __future__ import annotations

import math
from html import escape

from cosyui.service.types import Overview, QueueEntry
from cosyui.ui.i18n import Words
from cosyui.ui.pieces import DASH, card, duration, hint, table

CANCEL = "cancel"
"""What the page's script picks rows for (see `cosyui.ui.picking`)."""
_HEADS = ("ops_col_state", "ops_col_take", "ops_col_who", "ops_col_age", "ops_col_work", "ops_col_eta")
_WIDE = ("ops_col_who", "ops_col_work")
"""Columns that a narrow screen does without."""


def queue(overview: Overview, words: Words, may_cancel: bool) -> str:
    """Running takes, then those that wait in their order."""
    waiting = words("ops_of", count=len(overview.waiting), size=overview.queue_size)
    counts = table([(words("ops_running"), str(len(overview.running))), (words("ops_waiting"), waiting)])
    entries = [*overview.running, *overview.waiting]
    if not entries:
        return card("queue", words("ops_queue"), counts + hint(words("ops_idle")), "wide")
    head = "".join(f"<th{_wide(key)}>{words(key)}</th>" for key in _HEADS) + ("<th></th>" if may_cancel else "")
    body = "".join(_entry(entry, words, may_cancel) for entry in entries)
    listed = f'<div class="scroll"><table class="entries"><tr>{head}</tr>{body}</table></div>'
    return card("queue", words("ops_queue"), counts + listed, "wide")


def _entry(entry: QueueEntry, words: Words, may_cancel: bool) -> str:
    state = words(f"ops_state_{entry.state}", position=entry.position)
    cells = (
        f"{state} <small>{words('ops_long')}</small>" if entry.long else state,
        f"<code>{escape(entry.id)}</code>",
        escape(entry.client),
        duration(entry.age_seconds),
        f"{entry.done_seconds:.1f} / {entry.expected_seconds:.1f} s",
        DASH if entry.eta_seconds is None else f"{math.ceil(entry.eta_seconds)} s",
    )
    row = "".join(f"<td{_wide(key)}>{cell}</td>" for key, cell in zip(_HEADS, cells, strict=True))
    if may_cancel:
        row += f"<td>{_button(entry, words)}</td>"
    return f'<tr data-state="{entry.state}">{row}</tr>'


def _button(entry: QueueEntry, words: Words) -> str:
    label, who = escape(words("ops_cancel")), escape(entry.id)
    return (
        f'<button type="button" class="small-button" data-pick="{CANCEL}" data-value="{who}" '
        f'aria-label="{label} {who}">{label}</button>'
    )


def _wide(key: str) -> str:
    return ' class="wide-only"' if key in _WIDE else ""
