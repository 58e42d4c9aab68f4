"""Takes that nobody holds a connection for: asked for, looked after, fetched."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any

from cosyui.api.bodies import SpeechBody
from cosyui.api.gate import Gate
from cosyui.api.problems import ApiError, error_object
from cosyui.service.service import SynthesisService
from cosyui.service.ticket import Ticket
from cosyui.service.types import Done, Problem, QueueEntry, Result, Running, Stopped, TakeForm, Update, Waiting

REMEMBERED = 1_000
"""Finished jobs; the oldest are forgotten, their files stay until they are purged."""


@dataclass(eq=False)
class SpeechJob:
    """One take of a ``client``; ``update`` is the last that was heard of it."""

    ticket: Ticket
    client: str
    body: SpeechBody
    slot: tuple[str, str] | None = None
    created: int = field(default_factory=lambda: int(time.time()))
    update: Update = field(default_factory=lambda: Waiting(0, None))
    task: asyncio.Task[None] | None = None

    @property
    def id(self) -> str:
        return self.ticket.id

    @property
    def ended(self) -> bool:
        return isinstance(self.update, Done | Problem | Stopped)

    @property
    def result(self) -> Result:
        """Raises ApiError ``job_not_done``."""
        if isinstance(self.update, Done):
            return self.update.result
        message = "This job has no result, since it did not go well." if self.ended else "This job is not done yet."
        raise ApiError("job_not_done", message, status=409)

    def view(self, place: QueueEntry | None = None) -> dict[str, Any]:
        """What a client is told of it; ``place``: where it stands in the queue now."""
        if place is not None:
            self.update = Waiting(place.position, place.eta_seconds)
        told = {"id": self.id, "object": "speech.job", "created": self.created, "seed": self.ticket.seed}
        return told | {"response_format": self.body.response_format} | self._news()

    def _news(self) -> dict[str, Any]:
        match self.update:
            case Waiting(position, seconds):
                return {"status": "queued", "position": position, "estimated_wait_time": rounded(seconds)}
            case Running() as update:
                progress = {
                    "done": rounded(update.speech_seconds_done),
                    "expected": rounded(update.expected_seconds),
                    "left": rounded(update.eta_seconds),
                }
                return {"status": "running", "position": 0, "estimated_wait_time": 0.0, "progress": progress}
            case Done(result):
                notices = [{"code": one.code, "message": one.message} for one in result.notices + result.stats.warnings]
                url = f"/v1/jobs/{self.id}/result"
                return {"status": "done", "url": url, "seconds": rounded(result.seconds), "notices": notices}
            case Problem(error):
                return {"status": "failed", "error": error_object(error)}
        return {"status": "stopped"}


class JobBook:
    """The jobs of one server, on one event loop. Each is there for the client alone that asked for it."""

    def __init__(self, service: SynthesisService, gate: Gate, remembered: int = REMEMBERED) -> None:
        self._service = service
        self._gate = gate
        self._remembered = remembered
        self._jobs: OrderedDict[str, SpeechJob] = OrderedDict()
        self._by_key: dict[tuple[str, str], tuple[bytes, asyncio.Task[SpeechJob]]] = {}

    async def start(self, form: TakeForm, body: SpeechBody, key: str, fingerprint: bytes) -> SpeechJob:
        """A new one, or for a ``key`` that this client has used, the one that it was used for; `""` is none.

        Raises ApiError ``idempotency_conflict`` when that one is not the same, and what `SynthesisService.submit` does.
        """
        if not key:
            return await self._submit(form, body, None)
        slot = (form.client, key)
        known = self._by_key.get(slot)
        if known is None:
            known = fingerprint, asyncio.ensure_future(self._submit(form, body, slot))
            self._by_key[slot] = known
            known[1].add_done_callback(lambda task: self._forget_failed(slot, task))
        elif known[0] != fingerprint:
            message = "This Idempotency-Key was used for another request. Use a new one."
            raise ApiError("idempotency_conflict", message, status=409)
        return await asyncio.shield(known[1])

    def find(self, job_id: str, client: str) -> SpeechJob:
        """Raises ApiError ``job_not_found``."""
        job = self._jobs.get(job_id)
        if job is None or job.client != client:
            raise ApiError("job_not_found", "There is no such job of yours; old ones are forgotten.", status=404)
        return job

    def view(self, job: SpeechJob) -> dict[str, Any]:
        """How it is at this moment: updates of who waits come a little later."""
        places = () if job.ended else self._service.overview().waiting
        return job.view(next((entry for entry in places if entry.id == job.id), None))

    async def cancel(self, job: SpeechJob) -> None:
        """Returns when it has stopped; one that has ended stays as it is."""
        await job.ticket.cancel()
        if job.task is not None:
            await asyncio.wait([job.task])

    async def _submit(self, form: TakeForm, body: SpeechBody, slot: tuple[str, str] | None) -> SpeechJob:
        self._gate.enter(form.client)
        try:
            ticket = await self._service.submit(form)
        except BaseException:
            self._gate.leave(form.client)
            raise
        job = self._jobs[ticket.id] = SpeechJob(ticket, form.client, body, slot)
        job.task = asyncio.ensure_future(self._follow(job))
        self._forget_old()
        return job

    async def _follow(self, job: SpeechJob) -> None:
        try:
            async with contextlib.aclosing(job.ticket.updates()) as updates:
                async for job.update in updates:
                    pass
        finally:
            self._gate.leave(job.client)

    def _forget_old(self) -> None:
        ended = [job for job in self._jobs.values() if job.ended]
        for job in ended[: max(0, len(ended) - self._remembered)]:
            del self._jobs[job.id]
            if job.slot is not None:
                self._by_key.pop(job.slot, None)

    def _forget_failed(self, slot: tuple[str, str], task: asyncio.Task[SpeechJob]) -> None:
        """A request that was not taken in may be sent again."""
        if task.cancelled() or task.exception() is not None:
            self._by_key.pop(slot, None)


def rounded(seconds: float | None) -> float | None:
    """To milliseconds."""
    return None if seconds is None else round(seconds, 3)
