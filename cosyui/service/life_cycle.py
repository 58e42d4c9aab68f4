"""The engines' life apart from faults: unloaded on purpose or after a time without requests, and loaded again.

While they are unloaded nothing of them is in memory; the next request loads them and waits. Nobody is cut off.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from cosyui.host.config import EngineState
from cosyui.host.engines import Engines
from cosyui.ops.logs import log
from cosyui.service.admission import AdmissionQueue
from cosyui.service.job import Clock
from cosyui.service.soft_restart import PATIENCE

logger = logging.getLogger(__name__)

MINUTE = 60.0
Later = Callable[[float, Callable[[], None]], asyncio.TimerHandle]
"""As ``loop.call_later``."""


@dataclass(frozen=True)
class Unload:
    """What came of one.

    ``outcome``: ``unloaded``; ``reloading``, because ``held_back`` takes had come meanwhile; ``busy``: given up, since
    ``running`` takes did not end; ``nothing`` was loaded. ``waited_seconds`` for takes in work, ``seconds`` in all.
    """

    outcome: Literal["unloaded", "reloading", "busy", "nothing"]
    waited_seconds: float = 0.0
    seconds: float = 0.0
    held_back: int = 0
    running: int = 0


@dataclass(frozen=True)
class Load:
    """``state`` that it led to, ``ready`` if all went well; ``fresh``: it was not loaded before."""

    state: EngineState
    fresh: bool
    seconds: float


class LifeCycle:
    """One unload at a time: who asks while one is under way gets its result.

    ``has_requests``: whether any is in the service. ``idle_seconds`` without one lead to an unload, 0 to none;
    `watch` is to be called when a request came or went and when an engine's state changed. ``later`` is for tests.
    """

    def __init__(
        self,
        queue: AdmissionQueue,
        client: Engines,
        has_requests: Callable[[], bool],
        idle_seconds: float = 0.0,
        patience: float = PATIENCE,
        later: Later | None = None,
    ) -> None:
        self._queue = queue
        self._client = client
        self._has_requests = has_requests
        self._idle_seconds = idle_seconds
        self._patience = patience
        self._later = later
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[Unload] | None = None

    @property
    def unloading(self) -> bool:
        return self._task is not None and not self._task.done()

    async def unload(self) -> Unload:
        """Let takes in work end, then the engines' processes. It goes on when the one who asked is gone."""
        return await asyncio.shield(self._begin_unload())

    async def load(self) -> Load:
        """Start what is unloaded, without a request, and wait until it is ready or cannot be."""
        began = Clock()
        if self._task is not None:
            await asyncio.wait([self._task])
        fresh = self._client.state != "ready"
        self._client.load()
        state = await self._client.wait_until("ready", "unloaded", "broken", "stopped")
        return Load(state, fresh, Clock() - began)

    def watch(self) -> None:
        """The time without requests begins, goes on, or is over."""
        idle = self._client.state == "ready" and not self._has_requests()
        if not idle and self._timer is not None:
            self._timer.cancel()
            self._timer = None
        elif idle and self._timer is None and self._idle_seconds:
            later = self._later or asyncio.get_running_loop().call_later
            self._timer = later(self._idle_seconds, self._fall_asleep)

    async def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    def _fall_asleep(self) -> None:
        self._timer = None
        log(logger, logging.INFO, "engines_idle", seconds=self._idle_seconds)
        self._begin_unload()

    def _begin_unload(self) -> asyncio.Task[Unload]:
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._unload(), name="unload")
        return self._task

    async def _unload(self) -> Unload:
        began = Clock()
        if self._client.state in ("unloaded", "broken", "stopped"):
            return Unload("nothing")
        async with self._queue.paused(self._patience):
            waited, running = Clock() - began, len(self._queue.running)
            if not running:
                await self._client.unload()
            held_back = len(self._queue.waiting)
        if running:
            outcome: Literal["unloaded", "reloading", "busy", "nothing"] = "busy"
        elif self._client.state == "broken":  # meanwhile
            outcome = "nothing"
        elif held_back:
            outcome = "reloading"
            self._client.load()  # those that wait have their places by now
        else:
            outcome = "unloaded"
        result = Unload(outcome, waited, Clock() - began, held_back, running)
        log(logger, logging.INFO, "unload", outcome=outcome, seconds=result.seconds, held_back=held_back)
        return result
