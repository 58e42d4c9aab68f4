"""The way of updates from a job to whoever watches it: nothing is lost, but progress nobody read yet is replaced."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator

from cosyui.service.types import Done, Problem, Running, Stopped, Update, Waiting


class Mailbox:
    """Single-loop; a slow reader costs memory for audio only, because unread Waiting and Running updates coalesce."""

    def __init__(self) -> None:
        self._updates: deque[Update] = deque()
        self._arrived = asyncio.Event()
        self.last: Update | None = None

    @property
    def closed(self) -> bool:
        return isinstance(self.last, Done | Problem | Stopped)

    def put(self, update: Update) -> None:
        """Add an update; after a final one (Done, Problem, Stopped) nothing more is taken."""
        if self.closed:
            return
        if isinstance(update, Waiting | Running):
            if update == self.last:
                return
            if self._updates and type(self._updates[-1]) is type(update):
                self._updates.pop()
        self.last = update
        self._updates.append(update)
        self._arrived.set()

    async def read(self) -> AsyncGenerator[Update, None]:
        """Updates in order, up to and including the final one. For one reader."""
        while True:
            while self._updates:
                update = self._updates.popleft()
                yield update
                if isinstance(update, Done | Problem | Stopped):
                    return
            if self.closed and self.last is not None:  # a late reader hears how it ended
                yield self.last
                return
            self._arrived.clear()
            await self._arrived.wait()
