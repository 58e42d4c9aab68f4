"""The walk of one job: wait for its turn, follow the engine's events, write the file, tell whoever watches."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections import Counter
from collections.abc import Callable

from cosyui.engine.request import AudioChunk, Cancelled, Event, Failed, Finished, Progress, Started
from cosyui.errors import CosyuiError, DeadlineError, EngineError, InputError
from cosyui.host.engines import Engines
from cosyui.host.stream import HandedOver
from cosyui.ops.logs import log
from cosyui.service.admission import AdmissionQueue
from cosyui.service.job import Clock, Job
from cosyui.service.types import Chunk, Done, Problem, Result, Running, Stopped, Waiting

logger = logging.getLogger(__name__)

TELL_EVERY = 0.25
"""Seconds between two updates of all that wait and run; in between only news of one job are told, not its progress."""
TELL_SHARE = 0.1
"""Of the time of this process for such updates at most: where thousands wait, they come less often."""
QUIET_SHARE, EXTEND_SHARE = 0.25, 0.02
"""Of the limit of time: an engine that was silent for that long hangs; and how exactly the limit is kept."""


class Drive:
    """Runs jobs; ``jobs`` are the unfinished ones, ``outcomes`` counts how the others ended (see `Job.outcome`).

    ``timeout``: seconds that the engine may take for a short take, or be silent while it has a long job.
    ``speech_seconds``: of all speech that was made. ``on_first_chunk`` is told the seconds from a submit to the first
    sound, ``on_end`` each job that has ended, before its reader hears of it.
    """

    def __init__(self, queue: AdmissionQueue, client: Engines, timeout: float) -> None:
        self._queue = queue
        self._client = client
        self._timeout = timeout
        self._limits: dict[Job, asyncio.Timeout] = {}
        self._heard: dict[int, float] = {}
        self._next_telling = 0.0
        self._later: asyncio.TimerHandle | None = None
        self.jobs: dict[str, Job] = {}
        self.outcomes: Counter[str] = Counter()
        self.speech_seconds = 0.0
        self.on_first_chunk: Callable[[float], None] = lambda seconds: None
        self.on_end: Callable[[Job], None] = lambda job: None

    async def run(self, job: Job) -> None:
        """From the queue to the final update. Its place is freed however this ends."""
        try:
            if job.turn.is_set():
                self._tell(job)
            self.announce()
            job.final = Done(await self._make(job))
        except asyncio.CancelledError:
            # Asked for by Ticket.cancel or close only: this task is ours, so the cancellation ends here.
            job.final = Stopped()
        except CosyuiError as error:
            job.final = Problem(error)
        except Exception:
            logger.exception("request_crashed", extra={"fields": {"request_id": job.id}})
            job.final = Problem(internal(job.id))
        finally:
            self._free(job)
            if not isinstance(job.final, Done):
                await self._discard(job)
            self.finish(job)

    async def _make(self, job: Job) -> Result:
        try:
            async with asyncio.timeout(None if job.due is None else max(0.0, job.due - Clock())) as deadline:
                await job.turn.wait()
                await self._speak(job)
                self._free(job)  # the engine is done with it: nobody waits for our disk
                return await self._write(job)
        except TimeoutError:
            if not deadline.expired():
                raise
            seconds = math.ceil(Clock() - job.submitted)
            message = f"This was not finished by its deadline and was given up after {seconds} seconds."
            raise DeadlineError("deadline_passed", f"{message} Allow more time, or try a shorter text.") from None

    def finish(self, job: Job) -> None:
        """Free its place, count it, log it, tell its reader. Also for a job that was cancelled before it ran at all."""
        if job.closed:
            return
        job.close()
        self._free(job)
        self.jobs.pop(job.id, None)
        self.outcomes[job.outcome] += 1
        self._log(job)
        try:
            self.on_end(job)
        except Exception:  # its reader must hear of the end, whatever happens
            logger.exception("end_not_told", extra={"fields": {"request_id": job.id}})
        job.mailbox.put(job.final)

    def engines_changed(self) -> None:
        """An engine got ready, or is not any more: there may be more places, or fewer."""
        if self._client.places:  # while all of them start again, those that have a place keep it
            self._queue.set_places(self._client.places)
        for job, limit in self._limits.items():
            if not self._is_ready(job.engine) and not limit.expired():
                limit.reschedule(None)  # until another process has it: loading is not its time
        self._clock()
        self._tell_all()

    def announce(self) -> None:
        """Tell every waiting job its position and ETA, and every running one how far it is.

        That costs time for all jobs: where one announcement follows another, it comes a little later.
        """
        self._clock()
        wait = self._next_telling - Clock()
        if wait <= 0:
            self._tell_all()
        elif self._later is None:
            self._later = asyncio.get_running_loop().call_later(wait, self._tell_all)

    def _tell_all(self) -> None:
        if self._later is not None:
            self._later.cancel()
            self._later = None
        began = Clock()
        for job, outlook in self._queue.outlook().items():
            self._tell_waiting(job, *outlook)
        for job in self._queue.running:
            self._tell(job)
        self._next_telling = began + max(TELL_EVERY, (Clock() - began) / TELL_SHARE)

    def _tell(self, job: Job) -> None:
        """One that has its place."""
        if job.started is None:
            job.mailbox.put(Waiting(0, None, self._client.state))
        else:
            left, expected = self._queue.left(job), job.expected_seconds
            job.mailbox.put(Running(job.done_seconds, job.segments, expected, left, job.retried, job.redone))

    def _tell_waiting(self, job: Job, position: int, eta: float | None) -> None:
        engine = self._client.state
        job.mailbox.put(Waiting(position, eta if engine == "ready" else None, engine))

    def _clock(self, speech: float = 0.0) -> None:
        """Keep the measured speed up to date: ``speech`` seconds were made, and this many requests are at work."""
        load = sum(job.started is not None for job in self._queue.running) if self._client.state == "ready" else 0
        self._queue.speed.work(Clock(), min(load, self._queue.places), speech)

    def _free(self, job: Job) -> None:
        if job in self._queue.running or job in self._queue.waiting:
            self._queue.leave(job)
            self.announce()

    async def _speak(self, job: Job) -> None:
        job.state = "running"
        self._tell(job)
        try:
            async with (
                asyncio.timeout(None) as limit,
                contextlib.aclosing(self._client.events(job.request)) as events,
            ):
                async for event in events:
                    if isinstance(event, HandedOver):  # only now: a big model may load for long
                        self._limits[job] = limit
                        until = asyncio.get_running_loop().time() + self._timeout
                        limit.reschedule(until if self._is_ready(event.engine) else None)  # it may have died since
                    self._take(job, event)
                    await job.recorder.spill()
        except TimeoutError:
            raise EngineError("request_timeout", await self._end_of_patience(job)) from None
        finally:
            self._limits.pop(job, None)

    async def _end_of_patience(self, job: Job) -> str:
        """What to say; an engine that gives nothing to anybody is replaced: cancelling does not reach into a step."""
        quiet = Clock() - self._heard.get(job.engine, job.submitted)
        if quiet < QUIET_SHARE * self._timeout:
            return f"This was not done within {self._timeout:g} seconds. Try a shorter text, or when less is going on."
        if self._is_ready(job.engine):  # else another one comes already
            await self._client.restart(job.engine)
        return f"The engine gave no result within {self._timeout:g} seconds and was restarted. Try again."

    def _is_ready(self, engine: int) -> bool:
        return self._client.engines[engine].state == "ready"

    def _extend(self, limit: asyncio.Timeout) -> None:
        until, last = asyncio.get_running_loop().time() + self._timeout, limit.when()
        if last is None or until - last > EXTEND_SHARE * self._timeout:  # not with every event
            limit.reschedule(until)

    def _take(self, job: Job, event: Event | HandedOver) -> None:
        if not isinstance(event, HandedOver):
            self._heard[job.engine] = Clock()
            # A long job is put aside while others are worked on: any sign of life of its engine is one for it.
            for other, limit in self._limits.items():
                if other.request.long and other.engine == job.engine and not limit.expired():
                    self._extend(limit)
        done, redone = job.done_seconds, job.redone
        match event:
            case Started():
                job.started = job.started or Clock()
                job.segments = event.segments
            case Progress():
                job.add_progress(event.speech_seconds, redone=event.redone)
            case AudioChunk():
                first = job.first_chunk is None
                job.add_chunk(event.pcm)
                if first:
                    self.on_first_chunk(Clock() - job.submitted)
                if job.request.stream:
                    job.mailbox.put(Chunk(event.pcm))
            case HandedOver():
                job.retried, job.engine, job.attempts = event.attempt > 1, event.engine, event.attempt
            case Finished():
                job.stats, job.memory = event.stats, event.stats.memory
                if event.stats.speech_seconds > 0:
                    self._queue.rtf.add(event.stats.rtf)
                    self._queue.stretch.add(job.stretch * event.stats.speech_seconds / job.expected_seconds)
                    self._queue.speed.finished()
            case Failed():
                job.memory = event.memory
                raise failure(event)
            case Cancelled():
                raise EngineError("engine_died", "The engine dropped this request. Try again.")
        self.speech_seconds += job.done_seconds - done
        self._clock(job.done_seconds - done)
        if isinstance(event, HandedOver | Started | Finished) or job.redone != redone:
            self._tell(job)
        self.announce()

    async def _write(self, job: Job) -> Result:
        assert job.stats is not None
        if not job.samples:
            raise EngineError("output_bad", "The engine made no sound for this text. Try another text or seed.")
        job.state = "writing"
        path = await job.recorder.finish()
        now = Clock()
        started = job.started if job.started is not None else now
        first = job.first_chunk if job.first_chunk is not None else now
        return Result(
            id=job.id,
            path=path,
            seconds=job.sound_seconds,
            seed=job.request.seed,
            stats=job.stats,
            waited_seconds=started - job.submitted,
            first_chunk_seconds=first - job.submitted,
            total_seconds=now - job.submitted,
            notices=job.notices,
        )

    async def _discard(self, job: Job) -> None:
        try:
            await job.recorder.discard()
        except CosyuiError as error:
            log(logger, logging.WARNING, "leftover", request_id=job.id, code=error.code, reason=error.message)

    def _log(self, job: Job) -> None:
        """The request's line in the journal: figures only."""
        stats = job.stats
        log(
            logger,
            logging.WARNING if job.outcome == "failed" else logging.INFO,
            "request",
            request_id=job.id,
            client=job.client,
            outcome=job.outcome,
            code=job.final.error.code if isinstance(job.final, Problem) else None,
            mode=job.request.mode.value,
            long=job.request.long,
            characters=len(job.request.text),
            prompt_seconds=job.request.prompt.seconds,
            waited_seconds=(job.started - job.submitted) if job.started is not None else None,
            first_chunk_seconds=(job.first_chunk - job.submitted) if job.first_chunk is not None else None,
            total_seconds=job.age,
            speech_seconds=job.sound_seconds,
            segments=job.segments,
            speech_tokens=stats.speech_tokens if stats else None,
            rtf=stats.rtf if stats else None,
            precision=stats.precision if stats else None,
            retries=stats.retries if stats else None,
            process_retried=job.retried,
        )


def failure(event: Failed) -> CosyuiError:
    """The error a Failed event stands for; 4xx ones are the user's to mend."""
    kind = InputError if event.status == InputError.status else EngineError
    return kind(event.code, event.message, event.field)


def internal(take_id: str) -> CosyuiError:
    """A fault of our own, whose traceback stands in the log under the request's id."""
    message = f"Something went wrong inside the service. Try again; if it stays, look for {take_id} in the log."
    return CosyuiError("internal", message)
