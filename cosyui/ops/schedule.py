"""Jobs that come back every so often, on APScheduler: late ones run once, none runs twice at a time, and a wall clock
that is set to another time neither starts nor delays anything.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from apscheduler.schedulers.asyncio import AsyncIOScheduler

from cosyui.ops.logs import log

logger = logging.getLogger(__name__)

CHECK_SECONDS = 60.0
"""How often the plan is compared with the steady clock."""
TOLERANCE = 30.0
"""Seconds that APScheduler's plan, which goes by the wall clock, may differ from it."""


@dataclass(frozen=True)
class JobView:
    """A job as the panel shows it. ``every`` and ``next_in`` in seconds; times in seconds since the epoch, by the wall
    clock of their moment. ``result`` is what the last run gave, None after an ``error``, which is in words.
    """

    name: str
    every: float
    next_in: float | None = None
    next_run: float | None = None
    running: bool = False
    runs: int = 0
    last_run: float | None = None
    last_seconds: float | None = None
    result: Any = None
    error: str | None = None


class _Entry:
    """A job; ``due`` by the steady clock."""

    def __init__(self, view: JobView, work: Callable[[], Any], due: float) -> None:
        self.view = view
        self.work = work
        self.due = due
        self.task: asyncio.Task[JobView] | None = None


class Schedule:
    """`add` jobs, `start` on a running loop, `stop`. Everything on that loop's thread; a job that is no coroutine
    function runs in a thread.

    ``clock`` gives steady seconds, ``wall`` seconds since the epoch.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic, wall: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._wall = wall
        self._entries: dict[str, _Entry] = {}
        # No time is too late, and what was missed is made up for by one run.
        defaults = {"misfire_grace_time": None, "coalesce": True, "max_instances": 1}
        self._scheduler = AsyncIOScheduler(timezone=UTC, job_defaults=defaults)
        self._timer: asyncio.TimerHandle | None = None

    def add(self, name: str, work: Callable[[], Any], every: float, first_in: float | None = None) -> None:
        """Run ``work`` every ``every`` seconds, for the first time in ``first_in`` (default: ``every``).

        Raises ValueError when there is a job of that name.
        """
        if name in self._entries:
            raise ValueError(f"there is a job {name!r} already")
        first = every if first_in is None else first_in
        self._entries[name] = _Entry(JobView(name, every), work, self._clock() + first)
        self._scheduler.add_job(
            self._fire, "interval", (name,), seconds=every, id=name, next_run_time=self._at(self._wall() + first)
        )

    def start(self) -> None:
        """Needs a running event loop."""
        self._scheduler.start()
        self._check_later()

    async def stop(self) -> None:
        """Start nothing more and wait for what runs: a thread cannot be stopped."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._scheduler.running:
            self._scheduler.shutdown(wait=False)
        tasks = [entry.task for entry in self._entries.values() if entry.task is not None]
        await asyncio.gather(*tasks, return_exceptions=True)

    def view(self, name: str) -> JobView:
        """Raises KeyError for an unknown name."""
        entry = self._entries[name]
        wait = max(0.0, entry.due - self._clock()) if self._scheduler.running else None
        return replace(
            entry.view,
            next_in=wait,
            next_run=None if wait is None else self._wall() + wait,
            running=entry.task is not None and not entry.task.done(),
        )

    def views(self) -> tuple[JobView, ...]:
        """Of all jobs, in the order in which they were added."""
        return tuple(self.view(name) for name in self._entries)

    async def run_now(self, name: str) -> JobView:
        """Run a job at once, or wait for the run that is under way; how it went. The plan stays as it is.

        Who is cancelled here does not cancel the run. Raises KeyError for an unknown name.
        """
        return await asyncio.shield(self._begin(self._entries[name]))

    def check(self) -> None:
        """Put the plan right where the wall clock was set: each job comes when the steady clock says."""
        for entry in self._entries.values():
            job = self._scheduler.get_job(entry.view.name)
            wanted = self._wall() + max(0.0, entry.due - self._clock())
            if job is not None and job.next_run_time is not None:
                off = job.next_run_time.timestamp() - wanted
                if abs(off) > TOLERANCE:
                    log(logger, logging.WARNING, "clock_jumped", job=entry.view.name, seconds=off)
                    job.modify(next_run_time=self._at(wanted))

    def _check_later(self) -> None:
        self.check()
        self._timer = asyncio.get_running_loop().call_later(CHECK_SECONDS, self._check_later)

    async def _fire(self, name: str) -> None:
        """Called by APScheduler."""
        entry = self._entries[name]
        now = self._clock()
        if entry.due - now > TOLERANCE:
            return  # the wall clock was set forward; `check` puts the plan right
        missed = max(0.0, now - entry.due) // entry.view.every
        entry.due += (missed + 1) * entry.view.every
        await asyncio.shield(self._begin(entry))

    def _begin(self, entry: _Entry) -> asyncio.Task[JobView]:
        if entry.task is None or entry.task.done():
            entry.task = asyncio.ensure_future(self._run(entry))
        return entry.task

    async def _run(self, entry: _Entry) -> JobView:
        began, wall = self._clock(), self._wall()
        result: Any = None
        error = None
        try:
            result = await (entry.work() if inspect.iscoroutinefunction(entry.work) else asyncio.to_thread(entry.work))
        except Exception as problem:
            logger.exception("job_failed", extra={"fields": {"job": entry.view.name}})
            error = f"{type(problem).__name__}: {problem}"
        entry.view = replace(
            entry.view,
            runs=entry.view.runs + 1,
            last_run=wall,
            last_seconds=self._clock() - began,
            result=result,
            error=error,
        )
        return entry.view

    @staticmethod
    def _at(seconds: float) -> datetime:
        return datetime.fromtimestamp(seconds, UTC)
