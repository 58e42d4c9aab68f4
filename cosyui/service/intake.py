"""From a form to a job: everything of it is looked at, and its clip is decoded once."""

from __future__ import annotations

import asyncio
import secrets
import uuid
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from cosyui.engine.request import Mode, SynthesisRequest
from cosyui.errors import InputError
from cosyui.service import checks
from cosyui.service.clips import Clip, ClipStore
from cosyui.service.job import Job
from cosyui.service.outputs import OutputStore
from cosyui.service.recorder import Recorder
from cosyui.service.types import FormError, TakeForm
from cosyui.settings import Settings
from cosyui.speech.estimate import speech_seconds


class Intake:
    """Of one service."""

    def __init__(self, settings: Settings, outputs: OutputStore, clips: ClipStore) -> None:
        self._settings = settings
        self._outputs = outputs
        self._clips = clips

    def is_long(self, form: TakeForm) -> bool:
        return len(form.text.strip()) > self._settings.max_chars

    def load(self, clip: Path | bytes | None, mode: Mode) -> Clip:
        """Blocks. Raises InputError, any of the ``clip_*`` codes."""
        return self._clips.load(self._clips.keep(clip), checks.cut_over(mode, self._settings))

    async def check(self, form: TakeForm) -> Clip:
        """The clip of a form that is right. Raises FormError with all that is not."""
        problems = await asyncio.to_thread(checks.form_problems, form, self._settings)
        clip: Clip | None = None
        try:
            clip = await asyncio.to_thread(self.load, form.clip, form.mode)
        except InputError as error:
            problems.append(error)
        else:
            if form.mode is Mode.ZERO_SHOT and self._clips.outdated(clip.id, form.transcript):
                message = "This is the transcript of the whole recording. Type or transcribe what the cut clip says."
                problems.append(InputError("transcript_stale", message, "transcript"))
        if problems or clip is None:
            raise FormError(problems)
        return clip

    def job(self, form: TakeForm, clip: Clip, stretch: float) -> Job:
        """``stretch``: how much longer speech has been of late than estimated."""
        transcript = form.transcript.strip() if form.mode is Mode.ZERO_SHOT else ""
        request = SynthesisRequest(
            id=new_id(),
            text=form.text.strip(),
            mode=form.mode,
            prompt=replace(clip.prompt, transcript=transcript),
            seed=form.seed if form.seed is not None else secrets.randbelow(checks.SEED_LIMIT),
            instruction=form.instruction.strip() if form.mode is Mode.INSTRUCT else "",
            language=form.language,
            speed=form.speed,
            stream=form.stream,
            long=self.is_long(form),
        )
        misfit = checks.transcript_notice(transcript, clip.report.speech_seconds)
        notices = clip.report.changes + ((misfit,) if misfit is not None else ())
        expected = stretch * speech_seconds(request.text, form.speed)
        recorder = Recorder(self._outputs, request.id)
        return Job(request, form.client, expected, notices, stretch=stretch, recorder=recorder)


def new_id() -> str:
    return f"{datetime.now().astimezone():%H%M%S}-{uuid.uuid4().hex[:8]}"
