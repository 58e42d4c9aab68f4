"""The file of a job that is done: as it lies there, or in another format while it goes out."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path

from starlette.responses import FileResponse, Response, StreamingResponse

from cosyui.api.jobs import SpeechJob
from cosyui.api.problems import ApiError
from cosyui.api.wishes import audio_headers
from cosyui.engine.request import SAMPLE_RATE
from cosyui.host.encoding import EncoderPool, SoundEncoder
from cosyui.speech.sound.audio_out import HEADER_BYTES
from cosyui.speech.sound.encode import MEDIA_TYPES

_BLOCK = 20 * 2 * SAMPLE_RATE
"""Bytes of twenty seconds."""


async def result_response(job: SpeechJob, encoders: EncoderPool) -> Response:
    """Raises ApiError ``job_not_done`` or ``job_result_gone``."""
    path, kind, rate = job.result.path, job.body.response_format, job.body.sample_rate
    try:
        size = (await asyncio.to_thread(path.stat)).st_size
    except OSError:
        message = "The result was deleted: results are kept for a limited time."
        raise ApiError("job_result_gone", message, status=410) from None
    headers = audio_headers(job.body)
    if kind == "wav" and rate == SAMPLE_RATE:
        return FileResponse(path, media_type=MEDIA_TYPES[kind], filename=f"{job.id}.wav", headers=headers)
    headers["content-disposition"] = f'attachment; filename="{job.id}.{kind}"'
    encoding = encoders.open(kind, rate, (size - HEADER_BYTES) // 2)
    return StreamingResponse(_encoded(path, encoding), media_type=MEDIA_TYPES[kind], headers=headers)


async def _encoded(path: Path, encoding: AbstractAsyncContextManager[SoundEncoder]) -> AsyncIterator[bytes]:
    async with encoding as encoder:
        with await asyncio.to_thread(path.open, "rb") as file:
            file.seek(HEADER_BYTES)
            while block := await asyncio.to_thread(file.read, _BLOCK):
                yield await encoder.add(block)
        yield await encoder.finish()
