"""The batches of one server: taken in, worked on, stopped, resumed, handed out, deleted. They outlive the server."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable, Mapping
from pathlib import Path, PurePath

from cosyui.errors import ConflictError, CosyuiError, MissingError, RightsError
from cosyui.host.engines import Engines
from cosyui.notice import Notice
from cosyui.ops.logs import log
from cosyui.ops.purge import FRESH_SECONDS, HOUR, SETTLE_SECONDS
from cosyui.ops.sightings import Sightings
from cosyui.service import remarks
from cosyui.service.batch_check import Checker
from cosyui.service.batch_files import BATCHES, PROGRESS, BatchFiles
from cosyui.service.batch_lines import Parsed
from cosyui.service.batch_record import Batch
from cosyui.service.batch_work import BatchWork, Room, Submit, not_stored
from cosyui.service.batch_zip import build
from cosyui.service.operations import STOP_SECONDS
from cosyui.service.voices import SavedVoices
from cosyui.settings import Settings

logger = logging.getLogger(__name__)

MOST_KEPT, MOST_OF_ONE = 2_000, 100
"""Batches of all owners, and of one."""


class Batches:
    """`start`, use, `close`, on one event loop. A batch is there for its owner alone: see `owner_hash`.

    ``problems`` tells of what `start` could not read; ``room`` wants to be told of every request that has ended. What
    ``check_open`` raises, `add` and `resume` do, too: then none is begun.
    """

    def __init__(
        self,
        settings: Settings,
        outputs: Path,
        voices: SavedVoices,
        submit: Submit,
        engines: Engines,
        check_open: Callable[[], None],
    ) -> None:
        self.room = Room()
        self.problems: tuple[Notice, ...] = ()
        self.files = BatchFiles(outputs / BATCHES)
        self._settings = settings
        self._voices = voices
        self._submit = submit
        self._engines = engines
        self._check_open = check_open
        self._batches: dict[str, Batch] = {}
        self._work: dict[str, tuple[BatchWork, asyncio.Task[None]]] = {}
        self._locks: dict[str, asyncio.Lock] = {}
        self._built: dict[str, int] = {}
        self._sightings = Sightings()

    async def start(self) -> None:
        """Read what there is, and go on with what was at work. Never raises: what cannot be read is told."""
        try:
            found, damaged = await asyncio.to_thread(self.files.read_all)
        except OSError as error:
            log(logger, logging.ERROR, "batches_unread", reason=error.strerror)
            self.problems = (remarks.batches_unread(self.files.root, error),)
            return
        for batch_id, reason in damaged.items():
            log(logger, logging.ERROR, "batch_damaged", batch=batch_id, reason=reason)
        reasons = [f"{batch_id} ({reason})" for batch_id, reason in damaged.items()]
        self.problems = (remarks.batches_damaged(reasons),) if reasons else ()
        self._batches = {batch.id: batch for batch in found}
        for batch in found:
            if batch.state == "working":
                log(logger, logging.INFO, "batch_resumed", batch=batch.id, left=len(batch.left()))
                self._begin(batch)

    async def close(self) -> None:
        """Stop all work; what was at work goes on after the next start. Bounded in time: a disk may hang."""
        stopping = [asyncio.ensure_future(work.stop()) for work, _ in self._work.values()]
        stopping += [task for _, task in self._work.values()]
        if stopping:
            await asyncio.wait(stopping, timeout=STOP_SECONDS)

    async def add(
        self,
        owner: str,
        client: str,
        parsed: Parsed,
        *,
        cast: Mapping[str, str] | None = None,
        voice: str = "",
        pause: float | None = None,
        script: bool = False,
    ) -> Batch:
        """Check every line and begin. ``voice``: of lines that have none; ``pause``: seconds between two lines.

        Raises what `Checker.check` does, RightsError ``batches_off``, ConflictError ``batches_full`` and CosyuiError
        ``batch_not_stored``.
        """
        if not self._settings.batch_lines:
            raise RightsError("batches_off", "This server takes no batches: its operator can set COSYUI_BATCH_LINES.")
        self._check_open()
        if len(self.of(owner)) >= MOST_OF_ONE or len(self._batches) >= MOST_KEPT:
            message = f"{len(self.of(owner))} of your batches are kept, or too many of all. Delete one first."
            raise ConflictError("batches_full", message)
        checker = Checker(self._settings, self._voices, self._engines.facts)
        lines = await asyncio.to_thread(checker.check, parsed, cast or {}, voice, script=script)
        pause = self._settings.batch_pause if pause is None else pause
        batch = Batch.new(owner, client, lines, pause)
        try:
            await asyncio.to_thread(self.files.create, batch)
        except OSError as error:
            raise not_stored(error) from error
        self._batches[batch.id] = batch
        log(logger, logging.INFO, "batch_begun", batch=batch.id, client=client, lines=len(lines))
        self._begin(batch)
        return batch

    def of(self, owner: str) -> list[Batch]:
        """The newest first."""
        return [batch for batch in reversed(self._batches.values()) if batch.order.owner == owner]

    def find(self, batch_id: str, owner: str) -> Batch:
        """Raises MissingError ``batch_not_found``."""
        batch = self._batches.get(batch_id)
        if batch is None or batch.order.owner != owner:
            raise MissingError("batch_not_found", "There is no such batch of yours; old ones are deleted.")
        return batch

    def work(self, batch: Batch) -> BatchWork | None:
        """The run that is under way."""
        return self._work[batch.id][0] if batch.id in self._work else None

    async def ended(self, batch: Batch) -> None:
        """Wait until nothing is at work for it."""
        while batch.id in self._work:
            await asyncio.wait([self._work[batch.id][1]])

    async def stop(self, batch: Batch) -> None:
        """Returns when nothing is at work for it any more; what is made is kept."""
        running = self._work.get(batch.id)
        if running is None:
            return
        if batch.state == "working":
            batch.progress.state = "stopped"
        await running[0].stop()
        await self.ended(batch)

    async def resume(self, batch: Batch) -> None:
        """Make what is missing, also what has failed; nothing if all is there, or at work."""
        async with self._lock(batch):
            if batch.id in self._work or batch.id not in self._batches or not batch.left():
                return
            self._check_open()
            progress = batch.progress
            progress.state, progress.code, progress.message = "working", None, None
            for line in progress.lines:
                if line.status == "failed":
                    line.status, line.code, line.message = "waiting", None, None
            batch.touch()
            self._begin(batch)

    async def remove(self, batch: Batch) -> None:
        """Delete all of it. Raises CosyuiError ``batch_not_removed``."""
        async with self._lock(batch):
            await self.stop(batch)
            for known in (self._batches, self._locks, self._built):
                known.pop(batch.id, None)
            try:
                await asyncio.to_thread(self.files.remove, batch.id)
            except OSError as error:
                message = f"Some of the batch is still on the disk ({error.strerror}); the next start tries again."
                raise CosyuiError("batch_not_removed", message) from error

    async def result(self, batch: Batch) -> Path:
        """The ZIP file of what is made; made once for each state of the batch.

        Raises ConflictError ``batch_not_done`` while it is at work or nothing is made, MissingError
        ``batch_not_found``, and CosyuiError ``batch_not_stored`` or ``batch_broken``.
        """
        async with self._lock(batch):
            self.find(batch.id, batch.order.owner)
            if batch.id in self._work or not batch.counts()["done"]:
                message = "The batch is still at work, or nothing of it is made. Wait, or stop it first."
                raise ConflictError("batch_not_done", message)
            path, revision = self.files.archive(batch.id), batch.revision
            batch.changed = time.monotonic()  # whoever fetches it shall have time for it
            if self._built.get(batch.id) != revision or not path.exists():
                await asyncio.to_thread(build, batch, self.files)
                self._built[batch.id] = revision
            return path

    async def purge(self) -> None:
        """Delete those that nothing was done with for the age of old takes, and the oldest beyond the quota."""
        idle = [batch for batch in self._batches.values() if batch.id not in self._work]
        limit = self._settings.purge_hours * HOUR or math.inf
        ages, sizes = await asyncio.to_thread(self._look)
        if self._sightings.watched < SETTLE_SECONDS:
            return
        quota = self._settings.outputs_quota or math.inf
        over = sum(sizes.values()) - quota
        for batch in sorted(idle, key=lambda batch: -ages.get(batch.id, 0.0)):
            age = ages.get(batch.id, 0.0)
            quiet = min(age, time.monotonic() - batch.changed)
            if quiet <= FRESH_SECONDS or batch.id in self._work or (age <= limit and over <= 0):
                continue
            over -= sizes.get(batch.id, 0)
            log(logger, logging.INFO, "batch_purged", batch=batch.id)
            try:
                await self.remove(batch)
            except CosyuiError as error:
                log(logger, logging.WARNING, "batch_not_purged", batch=batch.id, reason=error.message)

    def _begin(self, batch: Batch) -> None:
        work = BatchWork(batch, self.files, self._voices, self._submit, self.room, lambda: self._engines.places)
        self._work[batch.id] = work, asyncio.create_task(self._run(work), name=f"batch-{batch.id}")

    async def _run(self, work: BatchWork) -> None:
        try:
            await work.run()
        finally:
            del self._work[work.batch.id]

    def _lock(self, batch: Batch) -> asyncio.Lock:
        """Its files are packed, or it begins anew, or it is deleted: one of them at a time."""
        return self._locks.setdefault(batch.id, asyncio.Lock())

    def _look(self) -> tuple[dict[str, float], dict[str, int]]:
        """How long ago something was written down for each, in seconds, and its bytes."""
        ages: dict[str, float] = {}
        sizes: dict[str, int] = {}
        self._sightings.look()
        for batch_id in list(self._batches):
            path = self.files.folder(batch_id) / PROGRESS
            try:
                ages[batch_id] = self._sightings.age(PurePath(batch_id), path.stat())
            except OSError:
                continue  # it has just been deleted, or the disk is gone
            sizes[batch_id] = self.files.size(batch_id)
        self._sightings.looked()
        return ages, sizes
