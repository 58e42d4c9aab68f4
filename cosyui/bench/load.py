"""Drives an engine in this process as its clients would, and notes what each of them hears and when."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from cosyui.engine.base import EngineProtocol
from cosyui.engine.request import (
    SAMPLE_RATE,
    AudioChunk,
    Cancelled,
    Event,
    Failed,
    Finished,
    RequestStats,
    SynthesisRequest,
)
from cosyui.errors import EngineError

Outcome = Literal["running", "finished", "failed", "cancelled"]


@dataclass(eq=False)
class Client:
    """One request as the one who sent it sees it; moments on `time.perf_counter`'s clock."""

    request: SynthesisRequest
    sent: float
    arrivals: list[tuple[float, int]] = field(default_factory=list)
    """Moment and samples of every chunk that has any."""
    pcm: list[bytes] = field(default_factory=list)
    chunks: int = 0
    outcome: Outcome = "running"
    ended: float = 0.0
    stats: RequestStats | None = None
    error: str = ""

    @property
    def samples(self) -> int:
        return sum(count for _, count in self.arrivals)

    @property
    def speech_seconds(self) -> float:
        return self.samples / SAMPLE_RATE

    @property
    def seconds(self) -> float:
        """From sending to the end."""
        return self.ended - self.sent

    @property
    def first_chunk(self) -> float:
        """From sending to the first sound."""
        return self.arrivals[0][0] - self.sent

    @property
    def audio(self) -> NDArray[np.int16]:
        return np.frombuffer(b"".join(self.pcm), dtype="<i2")

    def margins(self) -> list[float]:
        """Seconds of sound left when each later chunk arrives, for a listener who plays from the first one on.

        Below 0: the stream had run dry for so long; playing goes on from there.
        """
        left, out = 0.0, []
        for (moment, samples), (later, _) in zip(self.arrivals, self.arrivals[1:], strict=False):
            left = max(left, 0.0) + samples / SAMPLE_RATE - (later - moment)
            out.append(left)
        return out


class Load:
    """``keep_audio``: clients keep their sound. ``strays``: events that no running client was waiting for."""

    def __init__(self, engine: EngineProtocol, *, keep_audio: bool = False) -> None:
        self.engine = engine
        self.keep_audio = keep_audio
        self.running: dict[str, Client] = {}
        self.strays: list[str] = []

    def send(self, request: SynthesisRequest) -> Client:
        """Submit now."""
        client = Client(request, time.perf_counter())
        self.running[request.id] = client
        self.engine.submit(request)
        return client

    def step(self) -> list[Client]:
        """One step of the engine; returns those whose request has ended."""
        ended = []
        for event in self.engine.step():
            client = self.running.get(event.request_id)
            if client is None:
                self.strays.append(f"{type(event).__name__} for {event.request_id}, which was not running")
                continue
            self._take(client, event)
            if client.outcome != "running":
                client.ended = time.perf_counter()
                ended.append(self.running.pop(event.request_id))
        return ended

    def drain(self) -> list[Client]:
        """Step until the engine has nothing left to do; who is still running then was lost."""
        ended = []
        while self.engine.has_work:
            ended += self.step()
        return ended

    def alone(self, request: SynthesisRequest) -> Client:
        """One request from sending to its end. Raises EngineError when it fails."""
        client = self.send(request)
        self.drain()
        return checked(client)

    def together(self, requests: Iterable[SynthesisRequest]) -> list[Client]:
        """All at once, until the last has ended. Raises EngineError when one fails."""
        clients = [self.send(request) for request in requests]
        self.drain()
        return [checked(client) for client in clients]

    def keep_busy(self, width: int, requests: Iterator[SynthesisRequest]) -> Iterator[Client]:
        """Yield clients as they end, with ``width`` requests in flight while there are any left."""
        while True:
            while len(self.running) < width and (request := next(requests, None)) is not None:
                self.send(request)
            if not self.engine.has_work:
                return
            yield from self.step()

    def stop(self) -> None:
        """Cancel what is running."""
        for request_id in list(self.running):
            self.engine.cancel(request_id)
        self.drain()

    def _take(self, client: Client, event: Event) -> None:
        match event:
            case AudioChunk():
                if event.index != client.chunks:
                    self.strays.append(f"chunk {event.index} of {event.request_id} came where {client.chunks} was due")
                client.chunks += 1
                if event.samples:
                    client.arrivals.append((time.perf_counter(), event.samples))
                if self.keep_audio:
                    client.pcm.append(event.pcm)
            case Finished():
                client.outcome, client.stats = "finished", event.stats
            case Failed():
                client.outcome, client.error = "failed", f"{event.code}: {event.message}"
            case Cancelled():
                client.outcome = "cancelled"
            case _:
                pass


def checked(client: Client) -> Client:
    """``client`` itself if it has heard everything. Raises EngineError."""
    if client.outcome != "finished" or not client.samples:
        what = client.error or f"it is {client.outcome} with {client.samples} samples"
        raise EngineError("engine_fault", f"A request of the measurement did not end well: {what}")
    return client
