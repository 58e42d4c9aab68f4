"""HTML of what changes while the page is open: problems, clip report, progress, figures of a take. All text escaped."""

from __future__ import annotations

import math
from html import escape

from cosyui.errors import CosyuiError
from cosyui.service.types import Result, Running, Waiting
from cosyui.speech.audio_in import GOOD_RATE, GOOD_SECONDS, QUIET_DBFS, ClipReport
from cosyui.ui.i18n import Words

LOUD_PEAK_DBFS = -0.1
_FLOOR_DBFS = -60.0


def problem(sentence: str) -> str:
    """The red line under a field; `""` for none."""
    return f'<p class="problem-line" role="alert">{escape(sentence)}</p>' if sentence else ""


def problem_of(error: CosyuiError, words: Words) -> str:
    return problem(words.error(error))


def clip_report(report: ClipReport, words: Words) -> str:
    """Length, level meter and advice under the clip."""
    share = max(0.0, min(1.0, 1 - report.rms_dbfs / _FLOOR_DBFS))
    length, sound = _length_advice(report), _sound_advice(report)
    tone = "fair" if sound else "fine" if length else "good"
    advice = " ".join(escape(words(key)) for key in [*length, *sound] or ["advice_good"])
    return (
        f'<div class="clip-report {tone}">'
        f'<span class="clip-length">{words("report_length", seconds=report.seconds)}</span>'
        f'<span class="meter" aria-hidden="true"><i style="width:{share:.0%}"></i></span>'
        f'<span class="clip-level">{words("report_level", level=report.rms_dbfs)}</span>'
        f'<span class="clip-advice">{advice}</span></div>'
    )


def _length_advice(report: ClipReport) -> list[str]:
    if report.seconds < GOOD_SECONDS[0]:
        return ["advice_short"]
    return ["advice_long"] if report.seconds > GOOD_SECONDS[1] else []


def _sound_advice(report: ClipReport) -> list[str]:
    advice = []
    if report.rms_dbfs < QUIET_DBFS:
        advice.append("advice_quiet")
    elif report.peak_dbfs > LOUD_PEAK_DBFS:
        advice.append("advice_loud")
    if report.sample_rate < GOOD_RATE:
        advice.append("advice_rate")
    return advice


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
    notes = "".join(f"<li>{escape(words.notice(note))}</li>" for note in result.stats.warnings)
    warnings = f'<ul class="notes">{notes}</ul>' if notes else ""
    return f'<dl class="figures" data-take="{escape(result.id)}">{body}</dl>{warnings}'
