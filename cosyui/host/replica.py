"""One of several places far away that have an engine: takes a request, tells of itself, does what it is told.

Nothing here knows how the words travel; all that goes over the wire pickles.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Any, Literal

from cosyui.engine.request import EngineFacts, EngineStats, Event, SynthesisRequest
from cosyui.errors import CosyuiError
from cosyui.host.config import EngineState
from cosyui.host.pool import EnginePool
from cosyui.host.stream import HandedOver


class ReplicaLostError(Exception):
    """The replica is gone, or its engine is; the request may be tried elsewhere."""


class NoReplicaError(Exception):
    """There is none at this moment."""


@dataclass(frozen=True)
class Report:
    """A replica by its name, for the panel and for whoever counts places; ``requests`` are in it."""

    replica: str
    device: str
    state: EngineState
    facts: EngineFacts | None = None
    stats: EngineStats | None = None
    problem: CosyuiError | None = None
    restarts: int = 0
    requests: int = 0


@dataclass(frozen=True)
class Taken:
    """The first word of an answer: who gives it, and stays with it to the end."""

    report: Report


@dataclass(frozen=True)
class Order:
    """To all replicas, or to the one named; ``waiting_seconds`` of speech that this replica's share of the queue is.

    ``light``: see `EnginePool.clear`.
    """

    act: Literal["look", "stats", "clear", "restart", "load", "unload"]
    replica: str | None = None
    waiting_seconds: float = 0.0
    light: bool = False


class Replica:
    """``pool`` has the engine's supervised process; ``name`` is unlike that of any other replica, ever."""

    def __init__(self, name: str, pool: EnginePool) -> None:
        self._name = name
        self._pool = pool
        self._waiting_seconds = 0.0

    async def start(self) -> None:
        """Load the model. Raises the CosyuiError that says why it cannot be."""
        await self._pool.start()
        if await self._pool.wait_until() == "broken" and self._pool.problem is not None:
            await self._pool.close()
            raise self._pool.problem

    async def close(self) -> None:
        await self._pool.close()

    def check(self) -> None:
        """Raises ReplicaLostError when the engine died too often: whoever keeps replicas shall make another."""
        if self._pool.state == "broken":
            raise ReplicaLostError(f"the engine of replica {self._name} is out of work: {self._pool.problem}")

    async def speak(self, request: SynthesisRequest) -> AsyncGenerator[Taken | HandedOver | Event, None]:
        """As `EnginePool.events`, which starts a dead engine again by itself; closing it cancels the request."""
        self.check()
        yield Taken(self.report())
        async with contextlib.aclosing(self._pool.events(request)) as events:
            async for event in events:
                yield event

    async def obey(self, order: Order) -> Any:
        """The answer to an order, None for one to another replica."""
        if order.replica not in (None, self._name):
            return None
        match order.act:
            case "look":
                self._waiting_seconds = order.waiting_seconds
                return self.report()
            case "stats":
                return await self._pool.stats()
            case "clear":
                return await self._pool.clear(light=order.light)
            case "restart":
                await self._pool.restart()
                await self._pool.wait_until()
            case "load":
                self._pool.load()
            case "unload":
                await self._pool.unload()
        return self.report()

    def report(self) -> Report:
        pool = self._pool
        requests = sum(view.requests for view in pool.views())
        device = pool.engines[0].device
        return Report(
            self._name, device, pool.state, pool.facts, pool.latest_stats, pool.problem, pool.restarts, requests
        )

    def load_figures(self) -> dict[str, float]:
        """What scaling goes by: seconds of speech that are to be made here, or wait for it, and places."""
        return {
            "speech_seconds": self._pool.ahead_seconds + self._waiting_seconds,
            "places": float(self._pool.places),
        }
