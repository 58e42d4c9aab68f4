"""Answers that several may wait for: whoever asked before one comes gets it."""

from __future__ import annotations

import asyncio
from typing import Generic, TypeVar

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
