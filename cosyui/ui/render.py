"""HTML of what changes while the page is open: problems, clip report, progress, figures of a take. All text escaped."""

from __future__ import annotations

import math
from collections.abc import Iterable
from html import escape

from cosyui.errors import CosyuiError
from cosyui.notice import Notice
from cosyui.service.types import FormError, Result, Running, Waiting
from cosyui.speech.clip.report import ClipReport
from cosyui.ui.i18n import Words

_FLOOR_DBFS = -60.0
_HARMLESS = {"clip_trimmed", "clip_cut", "clip_short", "clip_long"}
"""Remarks on a clip that say nothing against its sound."""


def problem(sentence: str) -> str:
    """The red line under a field; `""` for none."""
    return f'<p class="problem-line" role="alert">{escape(sentence)}</p>' if sentence else ""


def problem_of(error: CosyuiError, words: Words) -> str:
    return problem(words.error(error))


def problems_by_field(error: CosyuiError, fields: Iterable[str], words: Words) -> tuple[dict[str, str], list[str]]:
    """Each problem to its field, the first of each, as HTML; and the sentences of those that have none of these."""
    places = set(fields)
    beside: dict[str, str] = {}
    general: list[str] = []
    for one in error.problems if isinstance(error, FormError) else (error,):
        if one.field not in places:
            general.append(words.error(one))
        elif one.field is not None:
            beside.setdefault(one.field, problem_of(one, words))
    return beside, general


def note(sentence: str) -> str:
    """A remark under a field."""
    return f'<p class="note-line">{escape(sentence)}</p>'


def notes(notices: Iterable[Notice], words: Words) -> str:
    """A list of remarks; `""` for none."""
    lines = "".join(f'<li data-notice="{escape(one.code)}">{escape(words.notice(one))}</li>' for one in notices)
    return f'<ul class="notes">{lines}</ul>' if lines else ""


def clip_report(report: ClipReport, words: Words) -> str:
    """Length, level meter, what was done to the clip and advice."""
    share = max(0.0, min(1.0, 1 - report.rms_dbfs / _FLOOR_DBFS))
    tone = "good"
    if report.notices:
        tone = "fine" if all(notice.code in _HARMLESS for notice in report.notices) else "fair"
    good = "" if report.advice else f'<span class="clip-advice">{words("advice_good")}</span>'
    return (
        f'<div class="clip-report {tone}">'
        f'<span class="clip-length">{words("report_length", seconds=report.seconds)}</span>'
        f'<span class="clip-speech">{words("report_speech", seconds=report.speech_seconds)}</span>'
        f'<span class="meter" aria-hidden="true"><i style="width:{share:.0%}"></i></span>'
        f'<span class="clip-level">{words("report_level", level=report.rms_dbfs)}</span>'
        f'<span class="clip-format">{words("report_format", khz=report.sample_rate / 1000, channels=report.channels)}'
        f"</span>{good}{notes(report.notices, words)}</div>"
    )


def status(kind: str, title: str, detail: str = "", share: float | None = None) -> str:
    """The line above the buttons. ``kind`` is its colour and what tests look for; ``share`` 0..1 draws a bar,

    negative one that just moves.
    """
    bar = ""
    if share is not None:
        moving = share < 0
        width = "" if moving else f' style="width:{share:.0%}"'
        bar = f'<div class="bar{" moving" if moving else ""}"><i{width}></i></div>'
    return (
        f'<div class="status {kind}" data-status="{kind}" role="status"><b>{escape(title)}</b>'
        f"<span>{escape(detail)}</span></div>{bar}"
    )


def waiting(update: Waiting, words: Words) -> str:
    """Position and ETA; or that the engine is not ready yet."""
    if update.engine != "ready":
        return status("waiting", words(f"engine_{update.engine}"), "", -1)
    if update.position == 0:
        return status("waiting", words("waiting_engine"), "", -1)
    title = words("waiting_next") if update.position == 1 else words("waiting_position", position=update.position)
    detail = "" if update.eta_seconds is None else words("eta", seconds=math.ceil(update.eta_seconds))
    return status("waiting", title, detail, -1)


def running(update: Running, words: Words) -> str:
    """Speech done of speech expected. The estimate may be short, so the bar never says that it is full."""
    expected = max(update.expected_seconds, update.speech_seconds_done)
    if update.speech_seconds_done:
        parts = [words("running_done", done=update.speech_seconds_done, expected=expected)]
    else:
        parts = [words("running_started", expected=expected)]
    if update.eta_seconds is not None and update.speech_seconds_done < expected:
        parts.append(words("running_eta", seconds=math.ceil(update.eta_seconds)))
    if update.retried:
        parts.append(words("running_retried"))
    if update.redone:
        parts.append(words("running_redone"))
    share = update.speech_seconds_done / expected if update.speech_seconds_done and expected else 0.0
    return status("running", words("running"), " · ".join(parts), min(share, 0.97) if share else -1)


def figures(result: Result, words: Words) -> str:
    """What was measured, under the player."""
    cells = [
        ("length", words("metric_length"), f"{result.seconds:.1f} s", ""),
        ("first", words("metric_first"), f"{result.first_chunk_seconds:.2f} s", words("metric_first_help")),
        ("total", words("metric_total"), f"{result.total_seconds:.2f} s", words("metric_total_help")),
        ("rtf", words("metric_rtf"), f"{result.stats.rtf:.2f}", words("metric_rtf_help")),
        ("seed", words("metric_seed"), str(result.seed), ""),
    ]
    body = "".join(
        f'<div class="figure" data-figure="{name}" title="{escape(help_)}">'
        f"<dt>{escape(label)}</dt><dd>{value}</dd></div>"
        for name, label, value, help_ in cells
    )
    remarks = notes(result.notices + result.stats.warnings, words)
    return f'<dl class="figures" data-take="{escape(result.id)}">{body}</dl>{remarks}'
