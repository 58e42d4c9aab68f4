"""The events of one request on their way to its reader, across lives of the engine's process."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, replace

from cosyui.engine.request import AudioChunk, Cancelled, Event, Failed, Finished, Progress, Started, SynthesisRequest
from cosyui.errors import CosyuiError
from cosyui.ops.logs import log
from cosyui.speech.estimate import speech_seconds

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class HandedOver:
    """A loaded engine has been given the request; ``attempt`` is 2 when the process died and it starts again.

    ``engine`` is the number of the engine that has it from now on.
    """

    request_id: str
    attempt: int
    engine: int = 0


class Stream:
    """``in_engine``: the living process has it. After a second start, delivered samples are skipped.

    ``deaths``: how often a process died, unasked, while it was in it. ``suspicion``: whether it may be what killed it:
    0 after it got further than it was then; 2 after another death before it did.
    """

    def __init__(self, request: SynthesisRequest) -> None:
        self.request = request
        self.attempts = 0
        self.deaths = 0
        self.suspicion = 0
        self.in_engine = False
        self.ended = False
        self._events: asyncio.Queue[Event | HandedOver] = asyncio.Queue()
        self._expected = speech_seconds(request.text, request.speed)
        self._spoken = 0.0
        self._started = False
        self._delivered = 0
        self._skip = 0
        self._chunks = 0

    @property
    def drained(self) -> bool:
        """The final event has been read."""
        return self.ended and self._events.empty()

    @property
    def ahead_seconds(self) -> float:
        """Estimated seconds of speech that an engine still has to make."""
        return max(0.0, self._expected - self._spoken)

    @property
    def on_trial(self) -> bool:
        """Started again and not yet further than it was when its process died."""
        return self.in_engine and self.suspicion > 0

    @property
    def heard(self) -> bool:
        """Sound of it was delivered."""
        return self._delivered > 0

    async def next(self) -> Event | HandedOver:
        return await self._events.get()

    def begin(self, engine: int = 0) -> None:
        """It goes into an engine, for the first time or again."""
        self.attempts += 1
        self.in_engine = True
        self._spoken = 0.0
        self._skip = self._delivered
        self._events.put_nowait(HandedOver(self.request.id, self.attempts, engine))

    def resumed(self, engine: int) -> None:
        """Its engine has started it again by itself, and will not repeat what was delivered."""
        self._spoken = 0.0
        self._events.put_nowait(HandedOver(self.request.id, self.attempts + 1, engine))

    def survive(self) -> None:
        """Its process died."""
        self.suspicion = 2 if self.on_trial else 1
        self.deaths += 1
        self.in_engine = False

    def take(self, event: Event) -> None:
        """An event from the engine."""
        if self.ended:
            return
        match event:
            case Started():
                if not self._started:
                    self._started = True
                    self._events.put_nowait(event)
            case Progress():
                self._spoken = max(self._spoken, event.speech_seconds)
                self._events.put_nowait(event)
            case AudioChunk():
                self._take_chunk(event)
            case Finished():
                if self._skip:
                    # Not the same audio as before: what was delivered stays, and the log tells.
                    log(logger, logging.WARNING, "retry_shorter", request_id=self.request.id, samples=self._skip)
                stats = replace(event.stats, retries=event.stats.retries + self.attempts - 1)
                self._end(Finished(event.request_id, stats))
            case Failed() | Cancelled():
                self._end(event)

    def fail(self, error: CosyuiError) -> None:
        self._end(Failed(self.request.id, error.code, error.message, error.field, error.status))

    def cancelled(self) -> None:
        self._end(Cancelled(self.request.id))

    def _take_chunk(self, chunk: AudioChunk) -> None:
        skipped = min(self._skip, chunk.samples)
        self._skip -= skipped
        pcm = chunk.pcm[2 * skipped :]
        if pcm:
            self.suspicion = 0
            self._delivered += len(pcm) // 2
            self._events.put_nowait(AudioChunk(chunk.request_id, self._chunks, pcm))
            self._chunks += 1

    def _end(self, event: Event) -> None:
        self.ended = True
        self.in_engine = False
        self._events.put_nowait(event)
