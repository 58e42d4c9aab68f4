"""The engine's state at the top of the page: a badge beside the title, and a banner when there is something to know."""

from __future__ import annotations

from html import escape

from cosyui.engine.loading import LoadProgress
from cosyui.service.service import SynthesisService
from cosyui.ui.i18n import Words

COMMAND = "./run.sh --model hf:FunAudioLLM/Fun-CosyVoice3-0.5B-2512"


def badge(service: SynthesisService, words: Words) -> str:
    state = service.client.state
    return f'<span class="badge {state}" data-engine="{state}">{escape(words(f"engine_{state}"))}</span>'


def banner(service: SynthesisService, words: Words) -> str:
    """`""` when all is well and the model is a real one."""
    state, facts, problem = service.client.state, service.client.facts, service.client.problem
    if state == "broken":
        reason = escape(words.error(problem)) if problem is not None else ""
        return _line("trouble", words("banner_broken", reason=reason))
    if state != "ready":
        progress = service.client.progress
        return _line("wait", words(f"banner_{state}") + ("" if progress is None else _bar(progress, words)))
    if facts is not None and facts.degraded is not None:
        return _line("degraded", words("banner_degraded", reason=escape(words.notice(facts.degraded))))
    if facts is not None and facts.demo_voice:
        return _line("demo", words("banner_demo", command=f"<code>{COMMAND}</code>"))
    return ""


def _bar(progress: LoadProgress, words: Words) -> str:
    stage, percent = escape(words(f"loading_{progress.stage}")), round(100 * progress.share)
    return (
        f'<div class="loading" data-stage="{progress.stage}">{stage}</div>'
        f'<div class="bar" role="progressbar" aria-label="{stage}" aria-valuenow="{percent}" aria-valuemin="0" '
        f'aria-valuemax="100"><i style="width:{percent}%"></i></div>'
    )


def _line(kind: str, body: str) -> str:
    return f'<div class="banner {kind}" data-banner="{kind}" role="status">{body}</div>'
