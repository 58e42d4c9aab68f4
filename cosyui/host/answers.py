"""Answers that several may wait for: whoever asked before one comes gets it."""

from __future__ import annotations

import asyncio
from typing import Generic, TypeVar

from cosyui.engine.request import Cleared, EngineStats
from cosyui.host.messages import AskStats, Clear, Emptied, Stats
from cosyui.host.process import EngineProcess

T = TypeVar("T")


class Answers(Generic[T]):
    """None is for those whose question nobody can answer any more."""

    def __init__(self) -> None:
        self._waiting: list[asyncio.Future[T | None]] = []

    def expect(self) -> asyncio.Future[T | None]:
        """To be awaited, after the question is asked."""
        waiter: asyncio.Future[T | None] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        return waiter

    def give(self, answer: T | None) -> None:
        """Tell all who wait, once."""
        waiting, self._waiting = self._waiting, []
        for waiter in waiting:
            if not waiter.done():
                waiter.set_result(answer)


class Questions:
    """What a process is asked between two of its steps; None when it ends before it answers."""

    def __init__(self) -> None:
        self._stats = Answers[EngineStats]()
        self._cleared = {light: Answers[Cleared]() for light in (False, True)}

    async def stats(self, process: EngineProcess) -> EngineStats | None:
        answer = self._stats.expect()
        process.send(AskStats())
        return await answer

    async def clear(self, process: EngineProcess, light: bool) -> Cleared | None:
        answer = self._cleared[light].expect()
        process.send(Clear(light))
        return await answer

    def answered(self, answer: Stats | Emptied) -> None:
        """It has come."""
        if isinstance(answer, Stats):
            self._stats.give(answer.stats)
        else:
            self._cleared[answer.light].give(answer.cleared)

    def nobody(self) -> None:
        """There is no process any more that could answer."""
        self._stats.give(None)
        for cleared in self._cleared.values():
            cleared.give(None)
