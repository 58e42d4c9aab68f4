"""The takes that were made on the page, each for its owner alone: to be heard, used again, kept or deleted.

Whatever is wrong with it reaches no take: it is told among the problems.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path, PurePath
from typing import NamedTuple

from cosyui.errors import ConflictError, CosyuiError, InputError, MissingError
from cosyui.notice import Notice
from cosyui.ops.journal import DAY
from cosyui.ops.logs import log
from cosyui.ops.purge import is_take
from cosyui.service.history_file import PastTake
from cosyui.service.history_store import HistoryStore
from cosyui.service.in_use import InUse
from cosyui.service.outputs import OutputStore
from cosyui.service.owners import owner_hash
from cosyui.service.types import Result, TakeForm
from cosyui.settings import Settings
from cosyui.speech.clip.intake import read_source

logger = logging.getLogger(__name__)

WAIT_SECONDS = 5.0
"""For takes on their way into the file."""
_ALL, PAGE = "history", "page"


class Shown(NamedTuple):
    """A take and its file, None when that was deleted."""

    take: PastTake
    file: Path | None


@dataclass(frozen=True)
class HistoryPage:
    """Some of the ``total`` takes that were asked for, from the one at ``offset`` on."""

    takes: tuple[Shown, ...] = ()
    total: int = 0
    offset: int = 0


class History:
    """`start`, use, `close`. Blocking, from any thread, unless it says otherwise.

    An owner is any text that only he knows, or that is proven to be his; the file has its hash. ``in_use`` gets the
    files of favourites. ``forget`` is called with the hash of a clip that is to be gone. ``clock`` gives monotonic
    seconds, ``wall`` seconds since the epoch.

    Raises CosyuiError ``history_failed`` wherever the file is needed.
    """

    def __init__(
        self,
        settings: Settings,
        outputs: OutputStore,
        in_use: InUse,
        forget: Callable[[str], None],
        *,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._settings = settings
        self._outputs = outputs
        self._in_use = in_use
        self._clock = clock
        self._wall = wall
        self._offset = wall() - clock()
        self._store = HistoryStore(settings.history_path, self._opened, forget)
        self._adding: set[asyncio.Task[None]] = set()

    @property
    def problems(self) -> tuple[Notice, ...]:
        """What is wrong with it."""
        return self._store.problems

    def start(self) -> None:
        """Keep favourites from the purge, and everything as long as they cannot be told apart. Never raises."""
        self._in_use.hold(_ALL, self._outputs.root)
        try:
            self._store.read(lambda: None, None)
        except CosyuiError as error:
            log(logger, logging.ERROR, "history_failed", reason=error.message)

    async def close(self) -> None:
        """On the event loop: wait for what is on its way, and let the file go."""
        await self.settled()
        await asyncio.to_thread(self._store.close)

    def add(self, owner: str, form: TakeForm, result: Result, voice: str = "") -> None:
        """On the event loop: returns at once, never raises. ``voice``: the one that was chosen in place of a clip."""
        task = asyncio.create_task(asyncio.to_thread(self._add, owner, form, result, voice))
        self._adding.add(task)
        task.add_done_callback(self._adding.discard)

    async def settled(self) -> None:
        """On the event loop: when what was added can be seen."""
        if self._adding:
            await asyncio.wait(self._adding, timeout=WAIT_SECONDS)

    def page(
        self, owner: str, text: str = "", *, favourites: bool = False, limit: int = 20, offset: int = 0
    ) -> HistoryPage:
        """The newest first; ``text`` is a part of theirs. Beyond the last page stands the last page."""
        name = owner_hash(PAGE, owner)

        def work() -> HistoryPage:
            total = self._store.file.count(name, text.strip(), favourites)
            first = max(0, min(offset, (total - 1) // limit * limit))
            takes = self._store.file.page(name, text.strip(), favourites, limit, first)
            return HistoryPage(tuple(self._shown(take) for take in takes), total, first)

        return self._store.read(work, HistoryPage())

    def find(self, owner: str, take_id: str) -> Shown:
        """Raises also MissingError ``history_gone``."""
        take = self._store.read(lambda: self._store.file.find(owner_hash(PAGE, owner), take_id), None)
        if take is None:
            raise MissingError("history_gone", "This take is not in your history any more.")
        return self._shown(take)

    def clip(self, take: PastTake) -> bytes | None:
        """The file of its clip, as it was uploaded; None if there is none, or it is gone."""
        try:
            return self._store.clips.read(take.clip)
        except OSError as error:
            log(logger, logging.ERROR, "history_clip_unread", request_id=take.id, reason=error.strerror)
            return None

    def favour(self, owner: str, take_id: str, favourite: bool) -> Shown:
        """Make it a favourite, or none. Raises also MissingError ``history_gone`` and ConflictError
        ``favourites_full``.
        """
        with self._store.lock:
            shown = self.find(owner, take_id)
            if favourite and not shown.take.favourite:
                self._check_room(owner)
            take = replace(shown.take, favourite=favourite)
            if favourite:  # before anybody is told that it stays
                self._hold(take)
            try:
                self._store.do(lambda: self._store.file.mark(take.id, favourite))
            except CosyuiError:
                if not shown.take.favourite:
                    self._in_use.release(_key(take))
                raise
            if not favourite:
                self._in_use.release(_key(take))
            return self._shown(take)

    def remove(self, owner: str, take_id: str) -> None:
        """All of it: its file, its clip if no other take has it, and the row. Raises also MissingError
        ``history_gone``, and CosyuiError ``history_not_deleted`` when something is left, which is in the history still.
        """
        with self._store.lock:
            self._remove([self.find(owner, take_id).take])

    def remove_all(self, owner: str) -> int:
        """As `remove`, with all that this owner has, favourites, too; how many these were."""
        with self._store.lock:
            nothing: list[PastTake] = []
            takes = self._store.read(lambda: self._store.file.of(owner_hash(PAGE, owner)), nothing)
            if takes:
                self._remove(takes)
            return len(takes)

    def prune(self) -> None:
        """Forget what is old or too much. Its files are left to the purge."""
        self._store.read(self._prune, None)

    def _add(self, owner: str, form: TakeForm, result: Result, voice: str) -> None:
        try:
            with self._store.lock:
                clip, new = ("", False) if voice else self._keep(form)
                take = self._take(owner_hash(PAGE, owner), form, result, voice, clip)
                try:
                    self._store.do(lambda: self._store.file.add(take))
                except BaseException:
                    if new:
                        self._store.clips.remove(clip)
                    raise
                self._prune()
        except CosyuiError as error:
            log(logger, logging.WARNING, "history_not_written", request_id=result.id, reason=error.message)
        except Exception as error:
            logger.exception("history_crashed", extra={"fields": {"request_id": result.id}})
            self._store.crashed(error)

    def _prune(self) -> None:
        # A clock that was set forward must not make takes old: time goes on as fast as the monotonic clock says.
        now = min(self._wall(), self._clock() + self._offset)
        self._store.prune(self._settings.history_rows, now - self._settings.history_days * DAY)

    def _keep(self, form: TakeForm) -> tuple[str, bool]:
        """The name of its clip in our folder, and whether it is new there; empty if it is gone already."""
        try:
            return self._store.clips.keep(read_source(form.clip, self._settings.clip_max_bytes))
        except InputError as error:
            log(logger, logging.WARNING, "history_without_clip", code=error.code)
            return "", False
        except OSError as error:
            raise self._store.problem(error) from error

    def _take(self, owner: str, form: TakeForm, result: Result, voice: str, clip: str) -> PastTake:
        notices = [asdict(notice) for notice in (*result.notices, *result.stats.warnings)]
        return PastTake(
            id=result.id,
            owner=owner,
            made=self._wall(),
            text=form.text,
            mode=form.mode.value,
            voice=voice,
            clip=clip,
            transcript=form.transcript,
            instruction=form.instruction,
            speed=form.speed,
            seed=result.seed,
            language=form.language,
            seconds=result.seconds,
            first_chunk=result.first_chunk_seconds,
            total=result.total_seconds,
            rtf=result.stats.rtf,
            notices=json.dumps(notices, ensure_ascii=False),
            path=result.path.relative_to(self._outputs.root).as_posix(),
        )

    def _shown(self, take: PastTake) -> Shown:
        ours = is_take(PurePath(take.path)) and take.path.endswith(".wav")
        return Shown(take, self._outputs.find(take.path) if ours else None)

    def _check_room(self, owner: str) -> None:
        count = self._store.file.count
        mine = self._store.do(lambda: count(owner_hash(PAGE, owner), favourites=True))
        all_ = self._store.do(lambda: count(None, favourites=True))
        if mine >= self._settings.history_favourites or all_ >= self._settings.history_rows // 2:
            raise ConflictError("favourites_full", f"{mine} takes are your favourites; there is no room for more.")

    def _hold(self, take: PastTake) -> None:
        self._in_use.hold(_key(take), self._outputs.root / take.path)

    def _remove(self, takes: Sequence[PastTake]) -> None:
        """The rows last: what could not be deleted can still be seen."""
        try:
            for take in takes:
                file = self._shown(take).file
                if file is not None:
                    self._outputs.discard(file)
            self._store.forget(takes)
        except OSError as error:
            raise _not_deleted(error.strerror) from error
        except CosyuiError as error:
            raise error if error.code == "history_failed" else _not_deleted(error.message) from error
        for take in takes:
            self._in_use.release(_key(take))
        log(logger, logging.INFO, "history_removed", takes=len(takes))

    def _opened(self, favourites: Sequence[PastTake]) -> None:
        for take in favourites:
            self._hold(take)
        self._in_use.release(_ALL)


def _key(take: PastTake) -> str:
    return f"favourite-{take.id}"


def _not_deleted(reason: str | None) -> CosyuiError:
    return CosyuiError("history_not_deleted", f"Not everything could be deleted ({reason}); it is still listed.")
