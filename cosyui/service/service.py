"""What a user asks for: takes in forms, queues them, drives the engine and hands out updates and results.

Everything runs on one event loop; only decoding a clip and writing a file happen in threads. Nothing polls.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

from cosyui.engine.request import Mode
from cosyui.errors import CosyuiError, InputError
from cosyui.host.encoding import EncoderPool
from cosyui.host.engines import Engines
from cosyui.notice import Notice
from cosyui.ops.logs import log
from cosyui.ops.monitor import Monitor
from cosyui.service import checks
from cosyui.service.admission import AdmissionQueue
from cosyui.service.batches import Batches
from cosyui.service.clips import Clip, ClipStore
from cosyui.service.drive import Drive, internal
from cosyui.service.history import History
from cosyui.service.intake import Intake, new_id
from cosyui.service.job import Clock, Job
from cosyui.service.life_cycle import MINUTE, LifeCycle, Load, Unload
from cosyui.service.operations import FIRST_PURGE, PURGE_EVERY, STOP_SECONDS, Operations
from cosyui.service.outputs import OutputStore
from cosyui.service.rights import Rights
from cosyui.service.soft_restart import SoftRestarter, Trim
from cosyui.service.state import overview_of, sample_of
from cosyui.service.ticket import Ticket
from cosyui.service.types import Overview, StoppingError, TakeForm
from cosyui.service.voices import SavedVoices
from cosyui.settings import Settings
from cosyui.speech.clip import pyav
from cosyui.speech.clip.decode import formats
from cosyui.speech.clip.report import ClipReport
from cosyui.speech.clip.transcribe import INSTALL, Transcriber, Transcript

logger = logging.getLogger(__name__)


class SynthesisService:
    """Admission queue, engines and output folder of one server. Make, `start`, use, `close`.

    ``uploads``: a folder of temporary files that is the server's alone; what is old in there is deleted, too.
    """

    def __init__(
        self,
        settings: Settings,
        client: Engines,
        outputs: OutputStore,
        clips: ClipStore,
        transcriber: Transcriber | None = None,
        monitor: Monitor | None = None,
        uploads: Path | None = None,
    ) -> None:
        self.settings = settings
        self.client = client
        self.outputs = outputs
        self.clips = clips
        self.intake = Intake(settings, outputs, clips)
        self.voices = SavedVoices(settings, clips)
        self.encoders = EncoderPool()
        self.transcriber = transcriber
        self.rights = Rights(settings)
        self._transcribing = asyncio.Lock()
        self._queue = AdmissionQueue(settings.queue_size, client_size=settings.client_limit)
        self._drive = Drive(self._queue, client, settings.request_timeout)
        self.operations = Operations(
            settings,
            outputs.root,
            lambda: sample_of(client, self._queue, self._drive),
            lambda: client.pids,
            monitor,
            uploads,
        )
        self.history: History | None = None
        if settings.history:
            self.history = History(settings, outputs, self.operations.in_use, clips.forget)
            self.operations.schedule.add("history", self.history.prune, PURGE_EVERY)
        self._drive.on_first_chunk = self.operations.first_chunk
        self._drive.on_end = self._ended
        self.soft_restarter = SoftRestarter(self._queue, client)
        self.life_cycle = LifeCycle(
            self._queue, client, lambda: bool(self._drive.jobs), MINUTE * settings.idle_unload_minutes
        )
        self.batches = Batches(settings, outputs.root, self.voices, self.submit, client, self._check_admitting)
        self.operations.schedule.add("batches", self.batches.purge, PURGE_EVERY, first_in=FIRST_PURGE)
        self._started = time.monotonic()
        self._rejected = 0
        self._checks: set[asyncio.Task[Clip]] = set()
        self.draining = False
        self._closed = False
        self._closing: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Check the folders and start the engines' processes, or not yet; does not wait for the model to load.

        Raises:
            SetupError: ``outputs_not_writable``, ``clips_not_writable`` or ``disk_full``.
        """
        await asyncio.to_thread(self.outputs.check)
        await asyncio.to_thread(self.clips.check)
        await asyncio.to_thread(self.voices.load)
        if self.history is not None:
            await asyncio.to_thread(self.history.start)
        if not pyav.installed():
            log(logger, logging.WARNING, "decoder_missing", package="av", formats=formats())
        self.encoders.start()
        self.client.on_change = self._engines_changed
        await self.client.start(lazy=self.settings.start == "lazy")
        await self.operations.start()
        await self.batches.start()

    async def drain(self, seconds: float) -> bool:
        """Take nothing in any more, and wait until all that was taken in has ended, so many seconds at most.

        False if there was nothing.
        """
        self.draining = True
        busy = bool(self._drive.jobs)
        log(logger, logging.INFO, "draining", unfinished=len(self._drive.jobs), seconds=seconds)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while tasks := [job.task for job in self._drive.jobs.values() if job.task is not None]:
                    await asyncio.wait(tasks)
        log(logger, logging.INFO, "drained", left=len(self._drive.jobs))
        return busy

    async def close(self) -> None:
        """Cancel every request, stop the engines' processes. Bounded in time; calling it twice is fine.

        It goes on when the one who waits for it is cancelled.
        """
        self._closed = True
        if self._closing is None:
            self._closing = asyncio.create_task(self._close(), name="service-close")
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        await self.batches.close()
        tasks = [job.task for job in self._drive.jobs.values() if job.task is not None]
        for task in tasks:
            task.cancel()
        if tasks:  # one whose disk hangs is left behind
            await asyncio.wait(tasks, timeout=STOP_SECONDS)
        await self.soft_restarter.close()  # after them: both let those that wait have their places
        await self.life_cycle.close()
        await self.client.close()
        await self.encoders.close()
        if self._checks:  # they make copies of clips, and leave a row
            await asyncio.wait(self._checks, timeout=STOP_SECONDS)
        await asyncio.to_thread(self.clips.close)
        if self.history is not None:
            await self.history.close()
        await self.operations.close()

    async def restart_engine(self) -> None:
        """Replace the engines' processes, also broken or unloaded ones; running requests are started again."""
        await self.client.restart()

    async def unload(self) -> Unload:
        """End the engines' processes once takes in work have ended; the next request loads them, or `load`."""
        return await self.life_cycle.unload()

    async def load(self) -> Load:
        """Load what was unloaded, and wait for it."""
        return await self.life_cycle.load()

    async def trim(self) -> Trim:
        """Have the engines give back the memory that nobody uses; nobody waits for it."""
        return await self.soft_restarter.trim()

    @property
    def ready(self) -> bool:
        """True when a request would be worked on, after those before it, or once it has loaded the model."""
        held = self.soft_restarter.busy or self.life_cycle.unloading
        return self.client.state in ("ready", "unloaded") and not (self.draining or self._closed or held)

    def check_text(self, text: str, mode: Mode = Mode.ZERO_SHOT) -> None:
        """Raises InputError ``text_empty``, ``text_too_long`` or ``text_nothing_to_speak``, field ``text``."""
        problem = checks.text_problem(text, self.settings)
        if problem is not None:
            raise problem

    def check_clip(self, clip: Path | bytes | None, mode: Mode = Mode.ZERO_SHOT) -> ClipReport:
        """Decode a clip and report what it is like. Blocks for up to a second: call it from a thread.

        Raises:
            InputError: any of the ``clip_*`` codes, field ``clip``.
        """
        return self.intake.load(clip, mode).report

    def check_transcript(self, clip: Path | bytes | None, transcript: str) -> Notice | None:
        """A remark when a transcript cannot be what the clip says. Blocks and raises like `check_clip`."""
        return checks.transcript_notice(transcript, self.check_clip(clip).speech_seconds)

    def best_part(self, clip: Path | bytes | None, transcript: str = "") -> bytes:
        """WAV file of the best part of a long clip, to be given in its place. Blocks like `check_clip`.

        ``transcript`` is the one of the whole clip, if there is one. Together with the part it is refused from now on
        (``transcript_stale``): the part needs its own words, typed or from `transcribe`.

        Raises:
            InputError: any of the ``clip_*`` codes, field ``clip``.
        """
        return self.clips.best_part(self.clips.keep(clip), transcript)

    async def transcribe(self, clip: Path | bytes | None, language: str | None = None) -> Transcript:
        """What is said in a clip; one at a time, and in a thread.

        Raises:
            InputError: any of the ``clip_*`` codes; ``transcriber_missing`` or ``transcript_not_heard``.
            CosyuiError: ``transcriber_failed``.
        """
        if self.transcriber is None:
            message = f"Automatic transcripts are not installed: {INSTALL}, then start the service again."
            raise InputError("transcriber_missing", message, "transcript")
        prompt = (await asyncio.to_thread(self.intake.load, clip, Mode.ZERO_SHOT)).prompt
        async with self._transcribing:
            return await asyncio.to_thread(self.transcriber, prompt.samples, prompt.sample_rate, language)

    async def submit(self, form: TakeForm, *, part: bool = False) -> Ticket:
        """Check a form and take it in; work starts at once or when its turn comes.

        ``part``: of something that was begun, and may be finished while the service drains.

        Raises:
            FormError: with every problem of the form and its field.
            QueueFullError: (a BusyError) with a hint when to try again; a ClientQueueFullError if others may.
            CosyuiError: the reason why the engine is out of work for good (same code as at its failed load),
                ``service_stopping`` (a BusyError) when the service goes down, or ``internal``.
        """
        began = Clock()
        try:
            self._check_open(part)
            self._queue.check(form.client, self.intake.is_long(form))
            checking = asyncio.create_task(self.intake.check(form))
            self._checks.add(checking)
            checking.add_done_callback(self._checks.discard)
            clip = await checking
            # The clip was decoded in a thread: meanwhile the queue may have filled or the service closed.
            self._check_open(part=True)
            job = self.intake.job(form, clip, self._queue.stretch.value or 1.0)
            job.due = None if form.deadline is None else began + form.deadline
            self._queue.enter(job)
        except CosyuiError as error:
            self._refused(new_id(), form, error)
            raise
        except Exception as error:
            take_id = new_id()
            logger.exception("submit_crashed", extra={"fields": {"request_id": take_id}})
            problem = internal(take_id)
            self._refused(take_id, form, problem)
            raise problem from error
        self._drive.jobs[job.id] = job
        self.operations.in_use.hold(job.id, job.recorder.path)
        job.task = asyncio.create_task(self._drive.run(job), name=f"take-{job.id}")
        job.task.add_done_callback(lambda _: self._drive.finish(job))
        self.life_cycle.watch()
        return Ticket(job)

    def ticket(self, take_id: str) -> Ticket | None:
        """The ticket of an unfinished request, to cancel it from elsewhere; its updates have one reader already."""
        job = self._drive.jobs.get(take_id)
        return Ticket(job) if job is not None else None

    def overview(self) -> Overview:
        """The queue, the engine and the memory at this moment; quick. Call it on the event loop."""
        health, uptime = self.operations.health(), time.monotonic() - self._started
        kept = self.history.problems if self.history is not None else ()
        health = replace(health, problems=health.problems + self.voices.problems + kept + self.batches.problems)
        return overview_of(self.client, self._queue, self._drive, health, rejected=self._rejected, uptime=uptime)

    def _refused(self, take_id: str, form: TakeForm, error: CosyuiError) -> None:
        self._rejected += 1
        self.operations.rejected(take_id, form, error, long=self.intake.is_long(form))

    def _check_admitting(self) -> None:
        if self._closed or self.draining:
            raise StoppingError.make()

    def _check_open(self, part: bool) -> None:
        if self._closed or not part:
            self._check_admitting()
        if self.client.state == "broken":
            problem = self.client.problem
            assert problem is not None
            raise type(problem)(*problem.args)

    def _ended(self, job: Job) -> None:
        beside = sum(other.started is not None for other in self._queue.running)
        self.operations.ended(job, beside, self.client.engines[job.engine].latest_stats)
        self.batches.room.freed()
        self.life_cycle.watch()

    def _engines_changed(self) -> None:
        self._drive.engines_changed()
        self.life_cycle.watch()


@contextlib.asynccontextmanager
async def running(service: SynthesisService) -> AsyncIterator[SynthesisService]:
    """`start` and, whatever happens, `close`; for a server's lifespan."""
    try:
        await service.start()
        yield service
    finally:
        await service.close()
