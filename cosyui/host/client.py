"""The engine as the server sees it: requests in, events out, whatever happens to the process behind."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Callable

from cosyui.engine.loading import LoadProgress
from cosyui.engine.request import Cleared, EngineFacts, EngineStats, Event, SynthesisRequest
from cosyui.errors import CosyuiError, EngineError
from cosyui.host.answers import Questions
from cosyui.host.config import EngineState, HostConfig
from cosyui.host.messages import (
    Emptied,
    Events,
    LoadFailed,
    Loading,
    Message,
    Ready,
    Start,
    Stats,
)
from cosyui.host.process import EngineProcess
from cosyui.host.residents import Residents
from cosyui.host.stream import HandedOver, Stream
from cosyui.host.supervision import Deaths, RestartPolicy
from cosyui.ops.logs import log

logger = logging.getLogger(__name__)


class EngineClient:
    """One supervised engine process; all methods belong to one event loop.

    ``state``: ``starting`` (the model loads), ``ready``, ``restarting`` (died, a new one comes), ``unloaded`` (no
    process; the next request starts one), ``broken`` (cannot be loaded or dies again and again: see ``problem`` and
    ``last_words``), ``stopped``. ``facts`` are those of the last load, ``latest_stats`` those of at most half a second
    ago while the engine works. ``on_change`` is called after each change of ``state``. ``number`` tells engines apart.
    """

    def __init__(self, config: HostConfig, policy: RestartPolicy | None = None, number: int = 0) -> None:
        self._config = config
        self.number = number
        self._deaths = Deaths(policy if policy is not None else RestartPolicy())
        self.residents = Residents(number)
        self._process: EngineProcess | None = None
        self._leaving: EngineProcess | None = None
        """Told to end, and not heard any more."""
        self._supervisor: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()
        self._hurry = asyncio.Event()
        self._asked = False
        self._loaded = False
        self._progress: LoadProgress | None = None
        self._questions = Questions()
        self.on_change: Callable[[], None] = lambda: None
        self.state: EngineState = "stopped"
        self.facts: EngineFacts | None = None
        self.problem: CosyuiError | None = None
        self.latest_stats: EngineStats | None = None
        self.last_words: tuple[str, ...] = ()
        self.restarts = 0

    @property
    def pid(self) -> int | None:
        """Of the living process, None between two."""
        process = self._process or self._leaving  # asked for in other threads, too
        return process.pid if process is not None else None

    @property
    def device(self) -> str:
        """As it was asked for: ``auto``, ``cuda:1``."""
        return self._config.engine.device

    @property
    def progress(self) -> LoadProgress | None:
        """How far the load of the process is; None while none loads."""
        return self._progress if self._process is not None and self.state != "ready" and not self._asked else None

    async def start(self, *, lazy: bool = False) -> None:
        """Start the process and its supervision; returns before the model is loaded (see `wait_until`).

        ``lazy``: it is started by `load` or by the first request.
        """
        if self._supervisor is None or self._supervisor.done():
            if lazy:
                self._set_state("unloaded")
            else:
                self._begin()

    def load(self) -> None:
        """Start the process if it was unloaded."""
        if self.state == "unloaded":
            self._begin()

    async def unload(self) -> None:
        """End the process (bounded), which is no death, until `load` or the next request.

        Requests that are in it are started again, and load at once. A broken engine stays broken.
        """
        if self.state in ("starting", "ready", "restarting"):
            await self._stop("unloaded")

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
        if request.id in self.residents:
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
        self.residents.add(stream)
        if self.state in ("broken", "stopped"):
            stream.fail(self._reason())
        elif self.state == "unloaded":
            self.load()
        elif self.state == "ready" and self._process is not None:
            self.residents.enter(self._process)

    def let_go(self, stream: Stream) -> None:
        """Forget a request that was taken in; one that has not ended is cancelled in the engine."""
        self.residents.remove(stream, self._process)

    @property
    def unfinished(self) -> list[Stream]:
        """The requests that have not ended."""
        return self.residents.unfinished

    async def cancel(self, request_id: str) -> None:
        """End a request with Cancelled, at once for its reader; unknown ids are ignored."""
        self.residents.cancel(request_id, self._process)

    async def stats(self) -> EngineStats | None:
        """Ask the engine between two steps; None if there is none that could answer."""
        if self.state != "ready" or self._process is None:
            return None
        return await self._questions.stats(self._process)

    async def clear(self, *, light: bool = False) -> Cleared | None:
        """Have the engine give back what can be made again, ``light``: only what nobody uses.

        None if there is none that could, or it ended.
        """
        if self.state != "ready" or self._process is None:
            return None
        return await self._questions.clear(self._process, light)

    async def restart(self) -> None:
        """Replace the process now, also a broken or unloaded one. Requests in it are handed to the next one."""
        if self._supervisor is None or self._supervisor.done():
            if self.state != "stopped":
                await self.start()
        elif self._process is not None:
            self._asked, self.problem = True, None
            self._process.kill()
            self._set_state("restarting")  # already now: nothing new is to go into this one
        else:
            self._hurry.set()

    async def close(self) -> None:
        """Stop the process (bounded: ask, SIGTERM, SIGKILL) and end every request. Calling it twice is fine."""
        await self._stop("stopped")
        self._end_all(self._reason())

    # supervision

    def _begin(self) -> None:
        self._deaths.forget()
        self.problem = None
        self._set_state("starting")
        leaving = self._leaving
        process = self._spawn() if leaving is None else None
        if process is not None or leaving is not None:
            self._supervisor = asyncio.create_task(self._supervise(process, leaving), name="engine-supervisor")

    async def _stop(self, state: EngineState) -> None:
        """End process and supervision; it is in ``state`` from the beginning, so that nothing new goes in."""
        loaded = self.state == "ready"
        supervisor, self._supervisor = self._supervisor, None
        leaving, self._process = self._process or self._leaving, None
        self._leaving, self.latest_stats = leaving, None
        if supervisor is not None:
            supervisor.cancel()
        self._questions.nobody()
        self._set_state(state)
        if state == "unloaded":
            self.residents.survive("was unloaded", counts=False)
            if self.unfinished:
                self.load()
        if supervisor is not None:
            await asyncio.wait([supervisor])
        if leaving is None:
            return
        await leaving.stop(ask=loaded)
        log(logger, logging.INFO, "engine_left", pid=leaving.pid, state=state)
        if self._leaving is leaving:
            self._leaving = None

    async def _supervise(self, process: EngineProcess | None, leaving: EngineProcess | None) -> None:
        """One round per life of the process; the first begins when the one that is ``leaving`` is gone."""
        if leaving is not None:
            await leaving.stop()  # the card has no room for both
            self._leaving = None
            process = self._spawn()
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
            process = EngineProcess(lambda message: self._receive(process, message))
        except OSError as error:
            message = (
                f"The system does not start the engine's process: {error.strerror}. Free some memory, then restart."
            )
            self._break(EngineError("engine_died", message))
            return None
        self._process, self._loaded, self._asked = process, False, False
        self._progress = LoadProgress("process", 0.0)
        process.send(Start(self._config))
        log(logger, logging.INFO, "engine_started", pid=process.pid, kind=self._config.kind, device=self.device)
        return process

    def _after(self, process: EngineProcess) -> float | None:
        """The process is gone: pause before the next, or None if there is to be no next."""
        self.last_words = tuple(process.tail)
        self.latest_stats = None
        self._questions.nobody()
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
        self.residents.survive(end, counts=not asked)
        return pause

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
        self.residents.survive(end)
        self._end_all(problem)

    def _end_all(self, problem: CosyuiError) -> None:
        self._questions.nobody()
        self.residents.fail(problem)

    # messages

    def _receive(self, process: EngineProcess, message: Message) -> None:
        if process is not self._process:
            return
        match message:
            case Loading():
                self._progress = message.progress
                self._tell_waiting()
            case Ready() if not self._asked:  # else: killed a moment ago
                self.facts, self._loaded = message.facts, True
                self._set_state("ready")
                self.residents.enter(process)
            case LoadFailed() if not self._asked:
                self.problem = message.error
            case Stats():
                self.latest_stats = message.stats
                if message.answer:
                    self._questions.answered(message)
            case Emptied():
                self._questions.answered(message)
            case Events():
                self.residents.take(message.events)

    def _reason(self) -> CosyuiError:
        if self.state == "broken" and self.problem is not None:
            return self.problem
        return EngineError("engine_not_ready", "The engine is not running. Try again when the service is back.")

    def _set_state(self, state: EngineState) -> None:
        if state == self.state:
            return
        self.state = state
        self._tell_waiting()
        self.on_change()

    def _tell_waiting(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
