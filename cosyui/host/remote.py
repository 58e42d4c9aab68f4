"""Engines on other machines that look like a pool: a request stays with the replica that took it, to its end.

Whoever is behind `Fleet` keeps the replicas, finds one for each request and tells when one is lost. A request whose
replica is lost starts once more on another, and what was delivered is not repeated; its reader sees no error.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from typing import Any, Protocol

from cosyui.engine.request import Cleared, EngineFacts, EngineStats, Event, SynthesisRequest
from cosyui.errors import CosyuiError, EngineError
from cosyui.host.config import EngineState
from cosyui.host.joined import joined_stats
from cosyui.host.replica import NoReplicaError, Order, ReplicaLostError, Taken
from cosyui.host.seats import Seat, Seats, alike
from cosyui.host.stream import HandedOver, Stream
from cosyui.ops.logs import log

logger = logging.getLogger(__name__)

LOOK_SECONDS = 1.0
"""Between two looks at the replicas."""
PAUSE_SECONDS = 0.2
"""Before a request asks again for a replica that nobody had for it."""
MOST_LOSSES = 2
"""So many replicas lost while they worked on it end a request: it may be what kills them."""


class Fleet(Protocol):
    """The way to the replicas."""

    def speak(self, request: SynthesisRequest) -> AsyncGenerator[Taken | HandedOver | Event, None]:
        """`Replica.speak` of the one that has the least to do; waits where none is there.

        Raises:
            ReplicaLostError: it is gone.
            NoReplicaError: there is none, and there is nothing to wait for.
        """

    async def ask(self, order: Order) -> list[Any]:
        """`Replica.obey` of all that live; those that are gone are left out.

        Raises:
            TimeoutError: not all have answered.
        """


class RemoteEngines(Seats):
    """See `Engines`. All methods belong to one event loop.

    ``waiting_seconds`` tells how much speech waits for a place; each replica is told its share, for scaling.
    """

    def __init__(self, fleet: Fleet, look_seconds: float = LOOK_SECONDS) -> None:
        super().__init__()
        self._fleet = fleet
        self._look_seconds = look_seconds
        self._streams: dict[str, Stream] = {}
        self._told: list[tuple[str, EngineState]] = []
        self._changed = asyncio.Event()
        self._hurry = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._watching: asyncio.Task[None] | None = None
        self.on_change: Callable[[], None] = lambda: None
        self.waiting_seconds: Callable[[], float] = lambda: 0.0

    async def start(self, *, lazy: bool = False) -> None:
        """Begin to look; the replicas start by themselves, so ``lazy`` means nothing here.

        What is there already is told by ``on_change``, too.
        """
        self._told = []
        self._hurry.set()
        if self._watching is None:
            self._watching = self._begin(self._watch(), "replicas-watch")

    def load(self) -> None:
        self._begin(self._tell(Order("load")), "replicas-load")

    async def unload(self) -> None:
        await self._tell(Order("unload"))

    async def wait_until(self, *states: EngineState) -> EngineState:
        wanted = states or ("ready", "broken", "stopped")
        while self.state not in wanted:
            await self._changed.wait()
        return self.state

    async def events(self, request: SynthesisRequest) -> AsyncGenerator[Event | HandedOver, None]:
        """See `EnginePool.events`."""
        if request.id in self._streams:
            raise ValueError(f"request {request.id} is already running")
        stream = self._streams[request.id] = Stream(request)
        if self._closed:
            stream.fail(_stopped())
        carrying = asyncio.create_task(self._carry(stream), name=f"carry-{request.id}")
        try:
            while not stream.drained:
                yield await stream.next()
        finally:
            del self._streams[request.id]
            carrying.cancel()
            await asyncio.wait([carrying])

    async def cancel(self, request_id: str) -> None:
        stream = self._streams.get(request_id)
        if stream is not None and not stream.ended:
            stream.cancelled()  # its reader hears of it and lets go

    async def stats(self) -> EngineStats | None:
        answers = await self._ask(Order("stats"))
        return joined_stats([answer for answer in answers if answer is not None])

    async def clear(self, *, light: bool = False) -> list[Cleared]:
        return [cleared for answer in await self._ask(Order("clear", light=light)) for cleared in answer]

    async def restart(self, number: int | None = None) -> None:
        """One engine, or all of them one after another, so that some are always ready."""
        if number is not None:
            await self._tell(Order("restart", self._seats[number].report.replica))
            return
        self._begin(self._restart_in_turn(self._living), "replicas-restart")

    async def close(self) -> None:
        """End every request; the replicas are not ours to stop."""
        self._closed = True
        for stream in self._streams.values():
            if not stream.ended:
                stream.fail(_stopped())
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        self._tell_changed()

    # requests

    async def _carry(self, stream: Stream) -> None:
        """From replica to replica until it has ended."""
        facts: EngineFacts | None = None
        try:
            while not stream.ended:
                facts = await self._attempt(stream, facts) or facts
        except CosyuiError as error:
            stream.fail(error)
        except Exception:
            logger.exception("request_not_carried", extra={"fields": {"request_id": stream.request.id}})
            stream.fail(EngineError("engine_died", "The way to the engines is broken. Try again."))

    async def _attempt(self, stream: Stream, facts: EngineFacts | None) -> EngineFacts | None:
        """On one replica; ``facts`` of the one before, the answer those of this one, None where nobody took it."""
        seat: Seat | None = None
        request = stream.request
        try:
            async with contextlib.aclosing(self._fleet.speak(request)) as events:
                async for event in events:
                    match event:
                        case Taken():
                            seat = self._seat(event.report)
                            seat.requests.add(request.id)
                            self._settle()
                            if stream.heard and not alike(facts, seat.report.facts):
                                raise _other_voice()
                        case HandedOver(attempt=1) if seat is not None:
                            stream.begin(seat.number)
                        case HandedOver() if seat is not None:
                            stream.resumed(seat.number)
                        case HandedOver():
                            raise AssertionError("a replica tells first who it is")
                        case _:
                            stream.take(event)
            if not stream.ended:
                raise ReplicaLostError("its answer has no end")
            return seat.report.facts if seat is not None else None
        except (NoReplicaError, ReplicaLostError) as loss:
            self._hurry.set()
            if seat is None:  # nobody had it
                await asyncio.sleep(PAUSE_SECONDS)
                return None
            self._lost(stream, seat, loss)
            return seat.report.facts
        finally:
            if seat is not None:
                seat.requests.discard(request.id)

    def _lost(self, stream: Stream, seat: Seat, loss: Exception) -> None:
        stream.survive()
        fields = {"request_id": stream.request.id, "replica": seat.report.replica, "losses": stream.deaths}
        log(logger, logging.WARNING, "replica_lost", reason=str(loss)[:200], **fields)
        if stream.deaths >= MOST_LOSSES:
            message = "Two engines were lost while they worked on this text. Try again, or try another text or clip."
            stream.fail(self.problem or EngineError("engine_died", message))

    # replicas

    async def _watch(self) -> None:
        while True:
            self._hurry.clear()
            await self._look()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._look_seconds):
                    await self._hurry.wait()

    async def _look(self) -> None:
        share = self.waiting_seconds() / max(1, len(self._living))
        try:
            reports = await self._fleet.ask(Order("look", waiting_seconds=share))
        except NoReplicaError:
            reports = []
        except Exception as error:  # noqa: BLE001  (whatever the way is made of: the next look may go better)
            log(logger, logging.WARNING, "replicas_silent", reason=f"{type(error).__name__}: {error}"[:200])
            return
        self._seat_all(reports)
        self._settle()

    def _settle(self) -> None:
        """Tell of replicas that came, went or changed since this was told last."""
        if self._shape != self._told:
            self._told = self._shape
            self._tell_changed()

    def _tell_changed(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
        try:
            self.on_change()
        except Exception:  # the watch goes on
            logger.exception("change_not_told")

    async def _ask(self, order: Order) -> list[Any]:
        try:
            return await self._fleet.ask(order)
        except (NoReplicaError, TimeoutError) as error:
            log(logger, logging.WARNING, "replicas_silent", order=order.act, reason=type(error).__name__)
            return []

    async def _tell(self, order: Order) -> None:
        await self._ask(order)
        await self._look()

    async def _restart_in_turn(self, seats: Sequence[Seat]) -> None:
        for seat in sorted(seats, key=lambda seat: seat.state == "ready"):
            await self._tell(Order("restart", seat.report.replica))

    def _begin(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


def _other_voice() -> EngineError:
    message = "The engine that spoke this was lost in the middle, and those left would go on differently. Try again."
    return EngineError("engine_died", message)


def _stopped() -> EngineError:
    return EngineError("engine_not_ready", "The engine is not running. Try again when the service is back.")
