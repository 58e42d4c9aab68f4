"""What a request that was taken in looks like to the one who asked."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

from cosyui.service.job import Job
from cosyui.service.types import Update


class Ticket:
    """A request that was taken in. ``seed`` is the one it uses, drawn if the form had none; ``sound`` grows with it."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self.id = job.id
        self.seed = job.request.seed
        self.sound = job.recorder

    async def updates(self) -> AsyncGenerator[Update, None]:
        """Updates in order, ending with exactly one Done, Problem or Stopped; for one reader.

        Closing this iterator early (``aclose``, or cancelling the task that reads it) cancels the request: a reader
        that is gone must not keep the engine busy. Use `contextlib.aclosing` around it.
        """
        ended = False
        try:
            async for update in self._job.mailbox.read():
                ended = self._job.mailbox.closed
                yield update
        finally:
            if not ended:
                await self.cancel()

    async def cancel(self) -> None:
        """Stop the request, in whatever state it is, and free its place at once. A finished one stays finished."""
        task = self._job.task
        if task is not None and not task.done():
            task.cancel()
            await asyncio.wait([task])
