"""What a user asks for: takes in forms, queues them, drives the engine and hands out updates and results.

Everything runs on one event loop; only decoding a clip and writing a file happen in threads. Nothing polls.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import time
import uuid
from collections.abc import AsyncGenerator, AsyncIterator
from datetime import datetime
from pathlib import Path

from cosyui.engine.request import Mode, PromptClip, SynthesisRequest
from cosyui.errors import CosyuiError, EngineError, InputError
from cosyui.host.client import EngineClient
from cosyui.ops.logs import log
from cosyui.ops.monitor import Monitor
from cosyui.service import checks
from cosyui.service.admission import AdmissionQueue
from cosyui.service.drive import Drive
from cosyui.service.estimate import speech_seconds
from cosyui.service.job import Job
from cosyui.service.outputs import OutputStore
from cosyui.service.types import FormError, Overview, QueueEntry, TakeForm, Update
from cosyui.settings import Settings
from cosyui.speech.audio_in import ClipReport

logger = logging.getLogger(__name__)


class Ticket:
    """A request that was taken in. ``seed`` is the one it uses, drawn if the form had none."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self.id = job.id
        self.seed = job.request.seed

    async def updates(self) -> AsyncGenerator[Update, None]:
        """Updates in order, ending with exactly one Done, Problem or Stopped; for one reader.

        Closing this iterator early (``aclose``, or cancelling the task that reads it) cancels the request: a reader
        that is gone must not keep the engine busy. Use `contextlib.aclosing` around it.
        """
        ended = False
        try:
            async for update in self._job.mailbox.read():
                ended = self._job.mailbox.closed
                yield update
        finally:
            if not ended:
                await self.cancel()

    async def cancel(self) -> None:
        """Stop the request, in whatever state it is, and free its place at once. A finished one stays finished."""
        task = self._job.task
        if task is not None and not task.done():
            task.cancel()
            await asyncio.wait([task])


class SynthesisService:
    """Admission queue, engine and output folder of one server. Make, `start`, use, `close`."""

    def __init__(
        self, settings: Settings, client: EngineClient, outputs: OutputStore, monitor: Monitor | None = None
    ) -> None:
        self.settings = settings
        self.client = client
        self.outputs = outputs
        self._monitor = monitor if monitor is not None else Monitor()
        self._queue = AdmissionQueue(settings.queue_size)
        self._drive = Drive(self._queue, client, outputs, settings.request_timeout)
        self._started = time.monotonic()
        self._rejected = 0
        self._closed = False

    async def start(self) -> None:
        """Check the output folder and start the engine's process; does not wait for the model to load.

        Raises:
            SetupError: ``outputs_not_writable`` or ``disk_full``.
        """
        await asyncio.to_thread(self.outputs.check)
        self.client.on_change = self._drive.announce
        await self.client.start()

    async def close(self) -> None:
        """Cancel every request, stop the engine's process. Bounded in time; calling it twice is fine."""
        self._closed = True
        for job in reversed(list(self._drive.jobs.values())):  # waiting ones first: none is started on the way
            await Ticket(job).cancel()
        await self.client.close()
        self._monitor.close()

    async def restart_engine(self) -> None:
        """Replace the engine's process, also a broken one. Waiting requests stay; a running one is started again."""
        await self.client.restart()

    @property
    def ready(self) -> bool:
        """True when a request would be worked on right away or after those before it."""
        return self.client.state == "ready" and not self._closed

    def check_text(self, text: str, mode: Mode = Mode.ZERO_SHOT) -> None:
        """Raises InputError ``text_empty``, ``text_too_long`` or ``text_nothing_to_speak``, field ``text``."""
        problem = checks.text_problem(text, self.settings)
        if problem is not None:
            raise problem

    def check_clip(self, clip: Path | bytes | None) -> ClipReport:
        """Decode a clip and report its length and level. Blocks for some milliseconds: call it from a thread.

        Raises:
            InputError: any of the ``clip_*`` codes, field ``clip``.
        """
        return checks.read_clip(clip, self.settings)[1]

    async def submit(self, form: TakeForm) -> Ticket:
        """Check a form and take it in; work starts at once or when its turn comes.

        Raises:
            FormError: with every problem of the form and its field.
            QueueFullError: (a BusyError) with a hint when to try again.
            CosyuiError: the reason why the engine is out of work for good (same code as at its failed load), or
                ``engine_not_ready`` when the service is shutting down.
        """
        try:
            self._check_open()
            self._queue.check()
            prompt = await self._check_form(form)
            # The clip was decoded in a thread: meanwhile the queue may have filled or the service closed.
            self._check_open()
            job = self._make_job(form, prompt)
            self._queue.enter(job)
        except CosyuiError as error:
            self._rejected += 1
            log(logger, logging.INFO, "request_rejected", client=form.client, code=error.code)
            raise
        self._drive.jobs[job.id] = job
        job.task = asyncio.create_task(self._drive.run(job), name=f"take-{job.id}")
        job.task.add_done_callback(lambda _: self._drive.finish(job))
        return Ticket(job)

    def ticket(self, take_id: str) -> Ticket | None:
        """The ticket of an unfinished request, to cancel it from elsewhere; its updates have one reader already."""
        job = self._drive.jobs.get(take_id)
        return Ticket(job) if job is not None else None

    def overview(self) -> Overview:
        """The queue, the engine and the memory at this moment; takes about a millisecond. Call it on the event loop."""
        running = [job for job in self._drive.jobs.values() if job.state != "waiting"]
        count = self._drive.outcomes
        return Overview(
            engine=self.client.state,
            problem=self.client.problem,
            facts=self.client.facts,
            stats=self.client.latest_stats,
            machine=self._monitor.sample(self.client.pid),
            running=tuple(self._entry(job) for job in running),
            waiting=tuple(self._entry(job) for job in self._queue.waiting),
            queue_size=self._queue.size,
            rtf=self._queue.rtf.value,
            engine_restarts=self.client.restarts,
            engine_pid=self.client.pid,
            finished=count["done"],
            failed=count["failed"],
            stopped=count["stopped"],
            rejected=self._rejected,
            uptime_seconds=time.monotonic() - self._started,
        )

    def _entry(self, job: Job) -> QueueEntry:
        return QueueEntry(
            id=job.id,
            client=job.client,
            state=job.state,
            age_seconds=job.age,
            position=self._queue.position(job),
            eta_seconds=self._queue.eta(job) if job.state == "waiting" else None,
            expected_seconds=job.expected_seconds,
            done_seconds=job.done_seconds,
            mode=job.request.mode,
        )

    def _check_open(self) -> None:
        if self._closed:
            raise EngineError("engine_not_ready", "The service is shutting down. Try again when it is back.")
        if self.client.state == "broken":
            problem = self.client.problem
            assert problem is not None
            raise type(problem)(*problem.args)

    async def _check_form(self, form: TakeForm) -> PromptClip:
        problems = checks.form_problems(form, self.settings)
        prompt: PromptClip | None = None
        try:
            prompt, _ = await asyncio.to_thread(checks.read_clip, form.clip, self.settings)
        except InputError as error:
            problems.append(error)
        if problems or prompt is None:
            raise FormError(problems)
        return prompt

    def _make_job(self, form: TakeForm, prompt: PromptClip) -> Job:
        transcript = form.transcript.strip() if form.mode is Mode.ZERO_SHOT else ""
        request = SynthesisRequest(
            id=f"{datetime.now().astimezone():%H%M%S}-{uuid.uuid4().hex[:8]}",
            text=form.text.strip(),
            mode=form.mode,
            prompt=PromptClip(prompt.samples, prompt.sample_rate, transcript),
            seed=form.seed if form.seed is not None else secrets.randbelow(checks.SEED_LIMIT),
            instruction=form.instruction.strip() if form.mode is Mode.INSTRUCT else "",
            language=form.language,
            speed=form.speed,
            stream=form.stream,
        )
        return Job(request, form.client, speech_seconds(request.text, form.speed))


@contextlib.asynccontextmanager
async def running(service: SynthesisService) -> AsyncIterator[SynthesisService]:
    """`start` and, whatever happens, `close`; for a server's lifespan."""
    try:
        await service.start()
        yield service
    finally:
        await service.close()
