"""HTML of a batch: problems of its input, how far it is, its lines as a table. All text escaped."""

from __future__ import annotations

from collections.abc import Set
from datetime import datetime
from html import escape

from cosyui.errors import CosyuiError
from cosyui.service.batch_lines import BatchError, LineError
from cosyui.service.batch_record import Batch, LineState
from cosyui.service.batch_work import BatchWork
from cosyui.ui import render
from cosyui.ui.i18n import Words
from cosyui.ui.pieces import duration, hint

PLAY = "batch-line"
"""What the page's script picks lines for (see `cosyui.ui.picking`)."""
PAGE_ROWS = 50
_KINDS = {"working": "running", "stopped": "stopped", "paused": "failed", "done": "done"}


def problems(error: CosyuiError, words: Words) -> str:
    """Each with its line."""
    if not isinstance(error, BatchError):
        return render.problem_of(error, words)
    title = words("batch_problem_one") if error.count == 1 else words("batch_problems", count=error.count)
    more = error.count - len(error.problems)
    items = "".join(f"<li>{_problem(one, words)}</li>" for one in error.problems)
    rest = hint(words("batch_problems_more", count=more)) if more else ""
    return f'{render.problem(title)}<ul class="line-problems">{items}</ul>{rest}'


def entry(batch: Batch, words: Words) -> str:
    """In the list of batches."""
    time = f"{datetime.fromtimestamp(batch.order.created).astimezone():%m-%d %H:%M}"
    return words("batch_entry", time=time, done=batch.counts()["done"], total=len(batch.order.lines))


def status(batch: Batch, work: BatchWork | None, words: Words) -> str:
    counts, total = batch.counts(), len(batch.order.lines)
    parts = [words("batch_counts", done=counts["done"], total=total, seconds=batch.seconds)]
    if counts["failed"]:
        parts.append(words("batch_counts_failed", failed=counts["failed"]))
    left = work.seconds_left if work is not None else None
    if left is not None and left >= 1:
        parts.append(words("batch_left", time=duration(left)))
    if batch.progress.code is not None:
        parts.append(words.error(CosyuiError(batch.progress.code, batch.progress.message or "")))
    share = (total - counts["waiting"]) / total if work is not None else None
    state = "working" if work is not None else batch.state
    return render.status(_KINDS[state], words(f"batch_{state}"), " · ".join(parts), share)


def table(batch: Batch, busy: Set[int], offset: int, words: Words) -> str:
    """The lines from ``offset`` on; ``busy``: those that are in the queue or at work."""
    columns = [("line", "number"), ("who", ""), ("text", ""), ("seconds", "number"), ("state", "")]
    head = "".join(f'<th class="{kind}">{escape(words(f"batch_col_{name}"))}</th>' for name, kind in columns)
    places = range(offset, min(offset + PAGE_ROWS, len(batch.order.lines)))
    body = "".join(_row(batch, index, index in busy, words) for index in places)
    return f'<div class="scroll"><table class="entries batch-lines"><tr>{head}<th></th></tr>{body}</table></div>'


def pager(batch: Batch, offset: int, words: Words) -> str:
    total = len(batch.order.lines)
    if total <= PAGE_ROWS:
        return ""
    return hint(words("batch_rows", first=offset + 1, last=min(total, offset + PAGE_ROWS), total=total))


def _row(batch: Batch, index: int, busy: bool, words: Words) -> str:
    line, state = batch.order.lines[index], batch.progress.lines[index]
    kind = "working" if busy else state.status
    seconds, play = "", ""
    if state.status == "done":
        seconds, label = f"{state.seconds:.1f}", escape(words("batch_play", line=line.number))
        play = f'<button type="button" data-pick="{PLAY}" data-value="{index}" aria-label="{label}">▶</button>'
    return (
        f'<tr data-line="{line.number}" data-state="{kind}"><td class="number">{line.number}</td>'
        f"<td>{escape(line.name or line.voice)}</td><td class='said'><span>{escape(line.text)}</span></td>"
        f'<td class="number">{seconds}</td><td class="{_tone(kind)}">{_state(state, kind, words)}</td>'
        f"<td>{play}</td></tr>"
    )


def _state(state: LineState, kind: str, words: Words) -> str:
    told = escape(words(f"batch_line_{kind}"))
    if kind != "failed":
        return told
    reason = words.error(CosyuiError(state.code or "", state.message or ""))
    return f'<span title="{escape(reason)}">{told}</span> <code>{escape(state.code or "")}</code>'


def _tone(kind: str) -> str:
    return {"failed": "bad", "waiting": "faint"}.get(kind, "")


def _problem(one: LineError, words: Words) -> str:
    return f"<b>{escape(words('batch_problem_line', line=one.line))}</b> {escape(words.error(one))}"
