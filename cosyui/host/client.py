"""The engine as the server sees it: requests in, events out, whatever happens to the process behind."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Callable

from cosyui.engine.request import Cleared, EngineFacts, EngineStats, Event, SynthesisRequest
from cosyui.errors import CosyuiError, EngineError
from cosyui.host.answers import Answers
from cosyui.host.config import EngineState, HostConfig
from cosyui.host.messages import (
    AskStats,
    Cancel,
    Clear,
    Emptied,
    Events,
    LoadFailed,
    Message,
    Ready,
    Start,
    Stats,
    Submit,
)
from cosyui.host.process import EngineProcess
from cosyui.host.stream import HandedOver, Stream
from cosyui.host.supervision import Deaths, RestartPolicy
from cosyui.ops.logs import log

logger = logging.getLogger(__name__)

DEATHS, MOST_DEATHS = 2, 4
"""So many deaths of its process end a request: when it was alone in it, and in any case."""


class EngineClient:
    """One supervised engine process; all methods belong to one event loop.

    ``state``: ``starting`` (the model loads), ``ready``, ``restarting`` (died, a new one comes), ``broken`` (cannot be
    loaded or dies again and again: see ``problem`` and ``last_words``), ``stopped``. ``facts`` are those of the last
    load, ``latest_stats`` those of at most half a second ago while the engine works. ``on_change`` is called after
    each change of ``state``. ``number`` tells engines apart. ``on_leave`` is asked for each request that is left
    without a process; True means that somebody else takes care of it.
    """

    def __init__(self, config: HostConfig, policy: RestartPolicy | None = None, number: int = 0) -> None:
        self._config = config
        self.number = number
        self._deaths = Deaths(policy if policy is not None else RestartPolicy())
        self._streams: dict[str, Stream] = {}
        self._process: EngineProcess | None = None
        self._supervisor: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()
        self._hurry = asyncio.Event()
        self._asked = False
        self._loaded = False
        self._stats = Answers[EngineStats]()
        self._cleared = Answers[Cleared]()
        self.on_change: Callable[[], None] = lambda: None
        self.on_leave: Callable[[Stream], bool] = lambda stream: False
        self.state: EngineState = "stopped"
        self.facts: EngineFacts | None = None
        self.problem: CosyuiError | None = None
        self.latest_stats: EngineStats | None = None
        self.last_words: tuple[str, ...] = ()
        self.restarts = 0

    @property
    def pid(self) -> int | None:
        """Of the living process, None between two."""
        process = self._process  # asked for in other threads, too
        return process.pid if process is not None else None

    @property
    def device(self) -> str:
        """As it was asked for: ``auto``, ``cuda:1``."""
        return self._config.engine.device

    async def start(self) -> None:
        """Start the process and its supervision; returns before the model is loaded (see `wait_until`)."""
        if self._supervisor is None or self._supervisor.done():
            self._deaths.forget()
            self._asked, self.problem = False, None
            self._set_state("starting")
            process = self._spawn()
            if process is not None:
                self._supervisor = asyncio.create_task(self._supervise(process), name="engine-supervisor")

    async def wait_until(self, *states: EngineState) -> EngineState:
        """Wait for one of ``states``; without any: until the load has gone well or failed for good."""
        wanted = states or ("ready", "broken", "stopped")
        while self.state not in wanted:
            await self._changed.wait()
        return self.state

    async def events(self, request: SynthesisRequest) -> AsyncGenerator[Event | HandedOver, None]:
        """Submit a request and follow it to its end: exactly one Finished, Failed or Cancelled comes last.

        While the engine loads or restarts, this waits. Closing the iterator cancels the request. If the process dies,
        the request is handed to the next one, and audio that was already delivered is not repeated (the same seed
        makes the same audio); if it seems to be what kills the process, it ends with Failed ``engine_died``.
        """
        if request.id in self._streams:
            raise ValueError(f"request {request.id} is already running")
        stream = Stream(request)
        self.take_in(stream)
        try:
            while not stream.drained:
                yield await stream.next()
        finally:
            self.let_go(stream)

    def take_in(self, stream: Stream) -> None:
        """Work on a request that somebody else follows and lets go when it has ended."""
        self._streams[stream.request.id] = stream
        if self.state in ("broken", "stopped"):
            stream.fail(self._reason())
        elif self.state == "ready":
            self._hand_over(stream)

    def let_go(self, stream: Stream) -> None:
        """Forget a request that was taken in; one that has not ended is cancelled in the engine."""
        del self._streams[stream.request.id]
        if not stream.ended and stream.in_engine and self._process is not None:
            self._process.send(Cancel(stream.request.id))

    @property
    def unfinished(self) -> list[Stream]:
        """The requests that have not ended."""
        return [stream for stream in self._streams.values() if not stream.ended]

    async def cancel(self, request_id: str) -> None:
        """End a request with Cancelled, at once for its reader; unknown ids are ignored."""
        stream = self._streams.get(request_id)
        if stream is None or stream.ended:
            return
        if stream.in_engine and self._process is not None:
            self._process.send(Cancel(request_id))
        stream.cancelled()

    async def stats(self) -> EngineStats | None:
        """Ask the engine between two steps; None if there is none that could answer."""
        if self.state != "ready" or self._process is None:
            return None
        answer = self._stats.expect()
        self._process.send(AskStats())
        return await answer

    async def clear(self) -> Cleared | None:
        """Have the engine give back what can be made again; None if there is none that could, or it ended."""
        if self.state != "ready" or self._process is None:
            return None
        answer = self._cleared.expect()
        self._process.send(Clear())
        return await answer

    async def restart(self) -> None:
        """Replace the process now, also a broken one. Requests in it are handed to the next one, within their limit."""
        if self._supervisor is None or self._supervisor.done():
            if self.state != "stopped":
                await self.start()
        elif self._process is not None:
            self._asked = True
            self._process.kill()
            self._set_state("restarting")  # already now: nothing new is to go into this one
        else:
            self._hurry.set()

    async def close(self) -> None:
        """Stop the process (bounded: ask, SIGTERM, SIGKILL) and end every request. Calling it twice is fine."""
        supervisor, process = self._supervisor, self._process
        self._supervisor = None
        if supervisor is not None:
            supervisor.cancel()
            await asyncio.wait([supervisor])
        loaded = self.state == "ready"
        self._set_state("stopped")
        if process is not None:
            await process.stop(ask=loaded)
        self._process = None
        self._end_all(self._reason())

    # supervision

    async def _supervise(self, process: EngineProcess | None) -> None:
        """One round per life of the process."""
        while process is not None:
            await process.ended.wait()
            self._process = None
            pause = self._after(process)
            if pause is None:
                return
            await self._pause(pause)
            self.restarts += 1
            process = self._spawn()

    def _spawn(self) -> EngineProcess | None:
        try:
            process = EngineProcess(self._receive)
        except OSError as error:
            message = (
                f"The system does not start the engine's process: {error.strerror}. Free some memory, then restart."
            )
            self._break(EngineError("engine_died", message))
            return None
        self._process, self._loaded = process, False
        process.send(Start(self._config))
        log(logger, logging.INFO, "engine_started", pid=process.pid, kind=self._config.kind, device=self.device)
        return process

    def _after(self, process: EngineProcess) -> float | None:
        """The process is gone: pause before the next, or None if there is to be no next."""
        self.last_words = tuple(process.tail)
        self.latest_stats = None
        self._answer_nobody()
        end = process.describe_end()
        if self.problem is not None:  # the load failed
            self._break(self.problem)
            return None
        asked, self._asked = self._asked, False
        pause = 0.0 if asked else self._deaths.record(time.monotonic(), self._loaded)
        log(logger, logging.WARNING, "engine_ended", pid=process.pid, end=end, asked=asked, pause=pause)
        if pause is None:
            words = f" Its last words: {self.last_words[-1][:200]}" if self.last_words else ""
            message = f"The engine keeps dying (the last time it {end}) and is no longer started.{words}"
            self._break(EngineError("engine_died", message), end)
            return None
        self._set_state("restarting")
        self._survive(end, counts=not asked)
        return pause

    def _survive(self, end: str, *, counts: bool = True) -> None:
        """End a request that was alone in the process, both times; all others wait for an engine, here or elsewhere.

        An end that was asked for does not count.
        """
        inside = [stream for stream in self.unfinished if stream.in_engine]
        for stream in inside:
            if not counts:
                stream.in_engine = False
                continue
            stream.survive()
            if stream.deaths >= (DEATHS if len(inside) == 1 else MOST_DEATHS):
                message = f"The engine's process {end} twice while it worked on this text. Try another text or clip."
                stream.fail(EngineError("engine_died", message))
        for stream in self.unfinished:
            if self.on_leave(stream):
                del self._streams[stream.request.id]

    async def _pause(self, seconds: float) -> None:
        self._hurry.clear()
        try:
            async with asyncio.timeout(seconds):
                await self._hurry.wait()
        except TimeoutError:
            return

    def _break(self, problem: CosyuiError, end: str = "ended") -> None:
        self.problem = problem
        log(logger, logging.ERROR, "engine_broken", code=problem.code, reason=problem.message)
        self._set_state("broken")
        self._survive(end)
        self._end_all(problem)

    def _end_all(self, problem: CosyuiError) -> None:
        self._answer_nobody()
        for stream in self.unfinished:
            stream.fail(problem)

    # messages

    def _receive(self, message: Message) -> None:
        match message:
            case Ready():
                self.facts, self._loaded = message.facts, True
                self._set_state("ready")
                for stream in self.unfinished:
                    if not stream.in_engine:
                        self._hand_over(stream)
            case LoadFailed():
                self.problem = message.error
            case Stats():
                self.latest_stats = message.stats
                if message.answer:
                    self._stats.give(message.stats)
            case Emptied():
                self._cleared.give(message.cleared)
            case Events():
                for event in message.events:
                    if event.request_id in self._streams:  # else: cancelled a moment ago
                        self._streams[event.request_id].take(event)

    def _hand_over(self, stream: Stream) -> None:
        assert self._process is not None
        stream.begin(self.number)
        self._process.send(Submit(stream.request, again=stream.deaths > 0))

    def _answer_nobody(self) -> None:
        self._stats.give(None)
        self._cleared.give(None)

    def _reason(self) -> CosyuiError:
        if self.state == "broken" and self.problem is not None:
            return self.problem
        return EngineError("engine_not_ready", "The engine is not running. Try again when the service is back.")

    def _set_state(self, state: EngineState) -> None:
        if state == self.state:
            return
        self.state = state
        self._changed.set()
        self._changed = asyncio.Event()
        self.on_change()
