"""What watches and tidies while the service runs. Whatever goes wrong here is shown, and reaches no request."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePath

import psutil

from cosyui.engine.request import EngineStats
from cosyui.errors import CosyuiError
from cosyui.notice import Notice
from cosyui.ops.disk import disk_use
from cosyui.ops.journal import Journal
from cosyui.ops.journal_file import Row
from cosyui.ops.leaks import Leak, find_leaks
from cosyui.ops.logs import log
from cosyui.ops.metrics import Metrics
from cosyui.ops.monitor import Monitor
from cosyui.ops.purge import HOUR, Folder, Purge, is_anything, is_take
from cosyui.ops.sampler import Sample, Sampler, ServiceSample, Sources
from cosyui.ops.schedule import JobView, Schedule
from cosyui.service import remarks
from cosyui.service.batch_files import BATCHES
from cosyui.service.in_use import InUse
from cosyui.service.job import Job
from cosyui.service.rows import ended_row, rejected_row
from cosyui.service.types import TakeForm
from cosyui.settings import Settings

logger = logging.getLogger(__name__)

PURGE_EVERY, FIRST_PURGE = 3600.0, 90.0
LEAKS_EVERY = 30.0
STOP_SECONDS = 5.0
"""How long a thread may take to its end; then it is left behind: a driver or a disk hangs."""


@dataclass(frozen=True)
class Health:
    """What the panel shows of the watching itself. ``waiting_rows``: not in the journal's file yet."""

    sample: Sample
    problems: tuple[Notice, ...]
    leaks: tuple[Leak, ...]
    purge: JobView
    waiting_rows: int


class Operations:
    """One monitor, sampler, journal, purge and schedule. Make, `start`, `close`, all on one event loop.

    ``sample`` tells of the service, ``pids`` of the engines' processes (in a thread); ``uploads`` is a folder of
    temporary files that is ours alone. ``in_use`` holds what is not to be purged.
    """

    def __init__(
        self,
        settings: Settings,
        outputs: Path,
        sample: Callable[[], ServiceSample],
        pids: Callable[[], tuple[int, ...]],
        monitor: Monitor | None = None,
        uploads: Path | None = None,
    ) -> None:
        self.in_use = InUse()
        self.monitor = monitor if monitor is not None else Monitor()
        sources = Sources(sample, lambda: self.monitor.sample(*pids()), lambda: disk_use(outputs))
        self.sampler = Sampler(sources, settings.sample_seconds, start=self._in_thread)
        journal = settings.journal.expanduser().absolute()
        self.journal = Journal(journal, settings.journal_rows, settings.journal_days)
        self.metrics = Metrics(lambda: self.sampler.latest)
        self._not_started: list[Notice] = []
        self.purge = self._purge(settings, outputs, uploads)
        self.schedule = Schedule()
        self.schedule.add("purge", self.purge.run, PURGE_EVERY, first_in=FIRST_PURGE)
        self.schedule.add("leaks", self.look_for_leaks, LEAKS_EVERY)
        self.leaks: tuple[Leak, ...] = ()
        self._process = psutil.Process()
        self._threads: list[threading.Thread] = []
        self._sampling: asyncio.Task[None] | None = None
        self._crash: tuple[float, Notice] | None = None
        self._running = False

    async def start(self) -> None:
        """Never raises: what does not start is among the problems."""
        self._running = True
        for name, begin in (
            ("journal", self.journal.start),
            ("sampler", self._begin_sampling),
            ("schedule", self.schedule.start),
        ):
            try:
                begin()
            except Exception as error:
                logger.exception("operations_not_started", extra={"fields": {"part": name}})
                self._not_started.append(remarks.not_started(name, error))

    async def close(self) -> None:
        """Write the rows that wait and end all threads; bounded in time. Calling it twice is fine."""
        if not self._running:
            return
        self._running = False
        if self._sampling is not None:
            self._sampling.cancel()
            await asyncio.wait([self._sampling])
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(STOP_SECONDS):
                await self.schedule.stop()
        await asyncio.to_thread(self._let_go)

    def first_chunk(self, seconds: float) -> None:
        """A request had its first sound ``seconds`` after its submit."""
        self.sampler.first_chunk(seconds)

    def ended(self, job: Job, beside: int, engine: EngineStats | None) -> None:
        """A request that was taken in has ended; ``beside``: others at work then, ``engine``: the last of its own."""
        self.in_use.release(job.id)
        prompts = engine.cached_prompts if engine is not None else None
        self._record(lambda: ended_row(job, beside=beside, cached_prompts=prompts, page_rss=self._rss()))

    def rejected(self, take_id: str, form: TakeForm, error: CosyuiError, *, long: bool) -> None:
        """A request was not taken in."""
        log(logger, logging.INFO, "request_rejected", client=form.client, code=error.code)
        self._record(lambda: rejected_row(take_id, form, error, long=long, page_rss=self._rss()))

    def look_for_leaks(self) -> tuple[Leak, ...]:
        """In the last rows of the journal; takes milliseconds, in any thread."""
        known = {leak.column for leak in self.leaks}
        self.leaks = find_leaks(self.journal.recent)
        for leak in self.leaks:
            if leak.column not in known:
                log(logger, logging.WARNING, "leak", column=leak.column, slope=leak.slope, reason=leak.reason)
        return self.leaks

    def health(self) -> Health:
        """How it is now."""
        return Health(
            sample=self.sampler.latest,
            problems=tuple(self._problems()),
            leaks=self.leaks,
            purge=self.schedule.view("purge"),
            waiting_rows=self.journal.waiting,
        )

    def _record(self, make: Callable[[], Row]) -> None:
        try:
            row = make()
            self.journal.add(row)
            self.metrics.count(row)
        except Exception:
            logger.exception("journal_row_failed")

    def _rss(self) -> int:
        return int(self._process.memory_info().rss)

    def _problems(self) -> Iterator[Notice]:
        yield from self._not_started
        if self._crash is not None and self.sampler.latest.time <= self._crash[0]:
            yield self._crash[1]
        yield from remarks.of_sampler(self.sampler)
        yield from remarks.of_journal(self.journal)
        yield from remarks.of_purge(self.schedule.view("purge"))

    def _purge(self, settings: Settings, outputs: Path, uploads: Path | None) -> Purge:
        age = settings.purge_hours * HOUR or math.inf
        batches = outputs / BATCHES  # they are deleted as a whole, by themselves

        def protected() -> frozenset[Path]:
            return self.in_use() | {batches}

        folders = [Folder(outputs, age, settings.outputs_quota, own=_is_take_or_batch)]
        if uploads is None:
            return Purge(folders, protected)
        try:
            return Purge([*folders, Folder(uploads, age, own=is_anything)], protected)
        except ValueError as error:  # others keep things in there
            self._not_started.append(remarks.uploads_kept(error))
            return Purge(folders, protected)

    def _begin_sampling(self) -> None:
        self._sampling = asyncio.create_task(self._sample(), name="sampler")

    async def _sample(self) -> None:
        first = True
        while True:
            try:
                if first:
                    first = False
                    self.sampler.tick()  # what is asked in threads is there when the second comes
                await self.sampler.run()
            except Exception as error:
                logger.exception("sampler_crashed")
                self._crash = self.sampler.latest.time, remarks.sampler_crashed(error)
            await asyncio.sleep(self.sampler.interval)

    def _in_thread(self, work: Callable[[], None]) -> None:
        thread = threading.Thread(target=work, name="ops-aside", daemon=True)
        thread.start()
        self._threads = [*(one for one in self._threads if one.is_alive()), thread]

    def _let_go(self) -> None:
        try:
            self.journal.close(STOP_SECONDS)
        except Exception:
            logger.exception("journal_not_closed")
        for thread in self._threads:
            thread.join(STOP_SECONDS)
        if any(thread.is_alive() for thread in self._threads):
            log(logger, logging.WARNING, "driver_hangs")  # closing it would wait, too
            return
        closing = threading.Thread(target=self.monitor.close, name="ops-closing", daemon=True)
        closing.start()
        closing.join(STOP_SECONDS)


def _is_take_or_batch(path: PurePath) -> bool:
    return is_take(path) or path.parts[:1] == (BATCHES,)
