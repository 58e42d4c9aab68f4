"""What the journal keeps of a request: figures and names from fixed lists, never what was said or heard."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

from cosyui.engine.request import RequestMemory, RequestStats
from cosyui.errors import CosyuiError
from cosyui.ops.journal_file import Row
from cosyui.service.job import Job
from cosyui.service.types import Problem, TakeForm

CLIENT_CHARS = 64


def ended_row(job: Job, *, beside: int, cached_prompts: int | None, page_rss: int) -> Row:
    """Of a request that was taken in, however it ended. ``beside``: others that were at work then."""
    request = job.request
    row = Row(
        job.id,
        job.client[:CLIENT_CHARS],
        job.arrived,
        job.outcome,
        code=job.final.error.code if isinstance(job.final, Problem) else None,
        mode=request.mode.value,
        stream=request.stream,
        long=request.long,
        engine=job.engine if job.attempts else None,
        attempts=job.attempts,
        characters=len(request.text),
        segments=job.segments or None,
        prompt_seconds=request.prompt.seconds,
        speech_seconds=job.sound_seconds,
        waited=None if job.started is None else job.started - job.submitted,
        first_chunk=None if job.first_chunk is None else job.first_chunk - job.submitted,
        total=job.age,
        beside=beside,
        cached_prompts=cached_prompts,
        page_rss_after=page_rss,
    )
    return replace(row, **_work(job.stats, job.attempts), **_memory(job.memory))


def rejected_row(take_id: str, form: TakeForm, error: CosyuiError, *, long: bool, page_rss: int) -> Row:
    """Of a request that was not taken in."""
    return Row(
        take_id,
        form.client[:CLIENT_CHARS],
        time.time(),
        "rejected",
        code=error.code,
        mode=form.mode.value,
        stream=form.stream,
        long=long,
        characters=len(form.text.strip()),
        page_rss_after=page_rss,
    )


def _work(stats: RequestStats | None, attempts: int) -> dict[str, Any]:
    if stats is None:
        return {}
    return {
        "precision": stats.precision,
        # The host counts each start in another process among the retries.
        "retries": max(0, stats.retries - max(0, attempts - 1)),
        "redone": stats.redone,
        "speech_tokens": stats.speech_tokens,
        "rtf": stats.rtf,
        "text_stage": stats.text_seconds,
        "prompt_stage": stats.prompt_seconds,
        "llm_stage": stats.llm_seconds,
        "flow_stage": stats.flow_seconds,
        "vocoder_stage": stats.vocoder_seconds,
    }


def _memory(memory: RequestMemory | None) -> dict[str, Any]:
    if memory is None:
        return {}
    figures: dict[str, Any] = dict(vars(memory))
    return {"engine_rss_after": figures.pop("rss")} | figures
