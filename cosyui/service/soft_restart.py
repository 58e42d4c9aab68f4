"""The engines give back what they can, between jobs: nobody is cut off, and who waits keeps his place."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from cosyui.engine.request import Cleared
from cosyui.host.engines import Engines
from cosyui.ops.logs import log
from cosyui.service.admission import AdmissionQueue

logger = logging.getLogger(__name__)

PATIENCE = 60.0
"""Seconds that takes in work may need to end. A long job takes longer: then the rest is done around it."""
CLEAR_SECONDS = 30.0
"""An engine that has not answered by then hangs: nobody waits any longer, and what was freed is not told."""


@dataclass(frozen=True)
class Trim:
    """What was freed without anybody waiting: bytes by part, of all ``engines`` that did it; the slowest's seconds."""

    freed: dict[str, int]
    seconds: float
    engines: int


@dataclass(frozen=True)
class SoftRestart:
    """What came of one. ``freed``: bytes by part, of all engines (see `cosyui.engine.request.Cleared`).

    ``waited_seconds`` until the takes in work had ended, or patience had; ``cleared_seconds`` of the slowest engine;
    ``held_back``: takes that waited for it; ``engines``: how many did it; ``around``: takes that were still in work.
    """

    freed: dict[str, int]
    waited_seconds: float
    cleared_seconds: float
    held_back: int
    engines: int
    around: int


class SoftRestarter:
    """One at a time: who asks while one is under way gets its result."""

    def __init__(
        self,
        queue: AdmissionQueue,
        client: Engines,
        patience: float = PATIENCE,
        clear_seconds: float = CLEAR_SECONDS,
    ) -> None:
        self._queue = queue
        self._client = client
        self._patience = patience
        self._clear_seconds = clear_seconds
        self._task: asyncio.Task[SoftRestart] | None = None
        self.last: SoftRestart | None = None

    @property
    def busy(self) -> bool:
        return self._task is not None and not self._task.done()

    async def run(self) -> SoftRestart:
        """It goes on when the one who asked is gone."""
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._restart(), name="soft-restart")
        return await asyncio.shield(self._task)

    async def trim(self) -> Trim:
        """Give back the memory that nobody uses, between two steps: nobody waits, and nothing is made again."""
        cleared = await self._clear(light=True)
        freed, slowest = _summed(cleared)
        log(logger, logging.INFO, "trim", seconds=slowest, **freed)
        return Trim(freed, slowest, len(cleared))

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _clear(self, *, light: bool = False) -> list[Cleared]:
        """In a soft restart nobody gets a place meanwhile, so that nothing else would find an engine that hangs."""
        try:
            async with asyncio.timeout(self._clear_seconds):
                return await self._client.clear(light=light)
        except TimeoutError:
            log(logger, logging.WARNING, "clearing_unanswered", seconds=self._clear_seconds)
            return []

    async def _restart(self) -> SoftRestart:
        began = time.monotonic()
        async with self._queue.paused(self._patience):
            waited, around = time.monotonic() - began, len(self._queue.running)
            cleared = await self._clear()
            held_back = len(self._queue.waiting)
        freed, slowest = _summed(cleared)
        self.last = SoftRestart(freed, waited, slowest, held_back, len(cleared), around)
        log(
            logger, logging.INFO, "soft_restart", waited_seconds=waited, cleared_seconds=slowest, around=around, **freed
        )
        return self.last


def _summed(cleared: Sequence[Cleared]) -> tuple[dict[str, int], float]:
    """Bytes by part of all engines, and the seconds of the slowest."""
    freed: Counter[str] = Counter()
    for one in cleared:
        freed.update(one.freed)
    return dict(freed), max((one.seconds for one in cleared), default=0.0)
