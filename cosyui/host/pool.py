"""Several engine processes that look like one: a request goes to the one with the least work before it."""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass

from cosyui.engine.loading import LoadProgress
from cosyui.engine.request import Cleared, EngineFacts, EngineStats, Event, SynthesisRequest
from cosyui.errors import CosyuiError, EngineError
from cosyui.host.client import EngineClient
from cosyui.host.config import EngineState, HostConfig
from cosyui.host.joined import joined_facts, joined_stats
from cosyui.host.stream import HandedOver, Stream
from cosyui.host.supervision import RestartPolicy

logger = logging.getLogger(__name__)

ORDER: tuple[EngineState, ...] = ("ready", "starting", "restarting", "unloaded", "broken", "stopped")
"""The state of all is the first of these that one of them is in."""
SEGMENT_SECONDS = 12.0
"""Speech of one segment of a long job: that much of it may be made before a short take that comes later."""


@dataclass(frozen=True)
class EngineView:
    """One engine of several, for the ops panel; ``requests`` are in it, worked on or not."""

    number: int
    device: str
    state: EngineState
    pid: int | None
    facts: EngineFacts | None
    stats: EngineStats | None
    problem: CosyuiError | None
    restarts: int
    requests: int


class EnginePool:
    """One `EngineClient` for each of ``configs``; all methods belong to one event loop.

    ``state`` is ready while any engine is. A request stays with its engine; if that dies, the next one that is ready
    goes on with it. All are unloaded and loaded together; while they are unloaded, the first request loads them.
    ``on_change`` is called after each change of an engine's state.
    """

    def __init__(self, configs: Sequence[HostConfig], policy: RestartPolicy | None = None) -> None:
        self.engines = tuple(EngineClient(config, policy, number) for number, config in enumerate(configs))
        for engine in self.engines:
            engine.on_change = self._engine_changed
            engine.residents.on_leave = self._take_back
        self.on_change: Callable[[], None] = lambda: None
        self._streams: dict[str, Stream] = {}
        self._homes: dict[str, EngineClient] = {}
        self._waiting: list[Stream] = []
        self._changed = asyncio.Event()
        self._restarting: asyncio.Task[None] | None = None

    @property
    def state(self) -> EngineState:
        return min((engine.state for engine in self.engines), key=ORDER.index)

    @property
    def ready(self) -> list[EngineClient]:
        """The engines that would work on a request right away."""
        return [engine for engine in self.engines if engine.state == "ready"]

    @property
    def places(self) -> int:
        """How many requests are worked on at once; 0 while no engine is ready."""
        return sum(engine.facts.places for engine in self.ready if engine.facts is not None)

    @property
    def facts(self) -> EngineFacts | None:
        """Of all engines that are ready, or else of all that were: see `joined_facts`."""
        return joined_facts([engine.facts for engine in self.ready or self.engines if engine.facts is not None])

    @property
    def progress(self) -> LoadProgress | None:
        """How far the slowest engine is that is loading; None when one is ready, or none loads."""
        told = [engine.progress for engine in self.engines]
        loading = [progress for progress in told if progress is not None]
        return min(loading, key=lambda progress: progress.share, default=None) if not self.ready else None

    @property
    def latest_stats(self) -> EngineStats | None:
        """Sums over the engines: see `joined_stats`."""
        return joined_stats([engine.latest_stats for engine in self.engines if engine.latest_stats is not None])

    @property
    def problem(self) -> CosyuiError | None:
        """Of the first engine that is broken, also while others work."""
        return next((engine.problem for engine in self.engines if engine.problem is not None), None)

    @property
    def restarts(self) -> int:
        return sum(engine.restarts for engine in self.engines)

    @property
    def pids(self) -> tuple[int, ...]:
        """Of the living processes."""
        return tuple(pid for engine in self.engines if (pid := engine.pid) is not None)

    @property
    def pid(self) -> int | None:
        """Of the first living process."""
        return next(iter(self.pids), None)

    @property
    def ahead_seconds(self) -> float:
        """Estimated seconds of speech that are still to be made, of all requests."""
        return sum(stream.ahead_seconds for stream in self._streams.values())

    def views(self) -> tuple[EngineView, ...]:
        """Each engine by itself."""
        return tuple(
            EngineView(
                engine.number,
                engine.device,
                engine.state,
                engine.pid,
                engine.facts,
                engine.latest_stats,
                engine.problem,
                engine.restarts,
                len(engine.unfinished),
            )
            for engine in self.engines
        )

    async def start(self, *, lazy: bool = False) -> None:
        """Start all processes, ``lazy``: with the first request. Does not wait for the load (see `wait_until`)."""
        for engine in self.engines:
            await engine.start(lazy=lazy)

    def load(self) -> None:
        """Start the processes that were unloaded."""
        for engine in self.engines:
            engine.load()

    async def unload(self) -> None:
        """End all processes until `load`, or the next request. Requests in them are started again, and load at once."""
        if self._restarting is not None:
            self._restarting.cancel()
        await asyncio.gather(*(engine.unload() for engine in self.engines))

    async def wait_until(self, *states: EngineState) -> EngineState:
        """Wait for one of ``states``; without any: until one engine is ready, or none will ever be."""
        wanted = states or ("ready", "broken", "stopped")
        while self.state not in wanted:
            await self._changed.wait()
        return self.state

    async def events(self, request: SynthesisRequest) -> AsyncGenerator[Event | HandedOver, None]:
        """Submit a request and follow it to its end, as `EngineClient.events` does; it waits while no engine is ready.

        After the death of a process its requests start again one by one: the next comes when the one before has got
        further than it was. One in whose turn a process dies again gets an engine for itself. So a request that kills
        processes is found, and takes no other with it.
        """
        if request.id in self._streams:
            raise ValueError(f"request {request.id} is already running")
        stream = self._streams[request.id] = Stream(request)
        self._waiting.append(stream)
        self._hand_out()
        try:
            while not stream.drained:
                event = await stream.next()
                self._hand_out()
                yield event
        finally:
            del self._streams[request.id]
            home = self._homes.pop(request.id, None)
            if home is not None:
                home.let_go(stream)
            elif stream in self._waiting:
                self._waiting.remove(stream)
            self._hand_out()

    async def cancel(self, request_id: str) -> None:
        """End a request with Cancelled, at once for its reader; unknown ids are ignored."""
        home, stream = self._homes.get(request_id), self._streams.get(request_id)
        if home is not None:
            await home.cancel(request_id)
        elif stream in self._waiting:
            self._waiting.remove(stream)
            stream.cancelled()

    async def stats(self) -> EngineStats | None:
        """Ask the engines between two steps; None if there is none that could answer."""
        answers = await asyncio.gather(*(engine.stats() for engine in self.engines))
        return joined_stats([answer for answer in answers if answer is not None])

    async def clear(self, *, light: bool = False) -> list[Cleared]:
        """Have the engines give back what can be made again, ``light``: what nobody uses; of those that could."""
        answers = await asyncio.gather(*(engine.clear(light=light) for engine in self.engines))
        return [answer for answer in answers if answer is not None]

    async def restart(self, number: int | None = None) -> None:
        """Replace the process of one engine, or all of them, also broken ones; requests in them are started again.

        Of all, those that do not work are replaced now and the others one after another, so that some are always ready.
        """
        if number is not None:
            await self.engines[number].restart()
            self.load()  # the others, if all were unloaded
            return
        if self._restarting is not None:
            self._restarting.cancel()
        healthy = self.ready
        idle = [engine for engine in self.engines if engine not in healthy]
        for engine in idle or [healthy.pop(0)]:
            await engine.restart()
        if healthy:
            self._restarting = asyncio.create_task(self._restart_in_turn(healthy), name="engines-restart")

    async def close(self) -> None:
        """Stop all processes (bounded) and end every request. Calling it twice is fine."""
        if self._restarting is not None:
            self._restarting.cancel()
        await asyncio.gather(*(engine.close() for engine in self.engines))
        self._hand_out()

    async def _restart_in_turn(self, engines: Sequence[EngineClient]) -> None:
        for engine in engines:
            while any(other.state in ("starting", "restarting") for other in self.engines):
                await self._changed.wait()
            if engine.state == "ready":
                await engine.restart()

    def _engine_changed(self) -> None:
        self._hand_out()
        self._changed.set()
        self._changed = asyncio.Event()
        try:
            self.on_change()
        except Exception:  # the engine's supervision goes on
            logger.exception("change_not_told")

    def _take_back(self, stream: Stream) -> bool:
        """A request that was left without a process; False when no engine will ever take it."""
        if self.state in ("broken", "stopped"):
            return False
        self._homes.pop(stream.request.id, None)
        self._waiting.append(stream)
        self._hand_out()
        return True

    def _hand_out(self) -> None:
        """Give what waits to the engines, or end it when there will be none."""
        if not self._waiting:
            return
        if self.state == "unloaded":
            self.load()
        if self.state in ("broken", "stopped"):
            waiting, self._waiting = self._waiting, []
            for stream in waiting:
                stream.fail(self._reason())
        ready = self.ready
        if not ready:
            return
        kept_free = self._kept_free(ready)
        for stream in sorted(self._waiting, key=lambda stream: stream.suspicion < 2):
            homes = [engine for engine in ready if engine is not kept_free or stream.suspicion == 2]
            homes = [engine for engine in homes if _is_open(engine, stream)]
            if homes:
                self._waiting.remove(stream)
                home = min(homes, key=functools.partial(_work_before, stream))
                self._homes[stream.request.id] = home
                home.take_in(stream)

    def _kept_free(self, ready: Sequence[EngineClient]) -> EngineClient | None:
        """The engine that is to get empty for a request that must be alone, unless a new one comes up anyway."""
        coming = any(engine.state in ("starting", "restarting") for engine in self.engines)
        if coming or all(stream.suspicion < 2 for stream in self._waiting):
            return None
        return min(ready, key=lambda engine: len(engine.unfinished))

    def _reason(self) -> CosyuiError:
        if self.state == "broken" and self.problem is not None:
            return self.problem
        return EngineError("engine_not_ready", "The engine is not running. Try again when the service is back.")


def _is_open(engine: EngineClient, stream: Stream) -> bool:
    """Whether ``stream`` may go there: one suspect at a time, and one that is suspected twice is alone."""
    inside = engine.unfinished
    if stream.suspicion == 2:
        return not inside
    trial = max((other.suspicion for other in inside if other.on_trial), default=0)
    return trial + stream.suspicion < 2


def _work_before(stream: Stream, engine: EngineClient) -> tuple[bool, float, int]:
    """Whether its places are taken; seconds of speech that it would make before ``stream`` or beside it; requests."""
    others = engine.unfinished
    seconds = 0.0
    for other in others:
        gives_way = other.request.long and not stream.request.long
        seconds += min(other.ahead_seconds, SEGMENT_SECONDS) if gives_way else other.ahead_seconds
    same_line = sum(other.request.long == stream.request.long for other in others)
    places = engine.facts.places if engine.facts is not None else 1
    return same_line >= places, seconds, len(others)
