"""Where the history is: rows in a SQLite file, clips in a folder beside it; and what becomes of it in trouble.

Blocking, from any thread.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TypeVar

from cosyui.errors import CosyuiError
from cosyui.notice import Notice
from cosyui.ops.logs import log
from cosyui.ops.migrations import NewerFileError
from cosyui.ops.sqlite_file import is_damage
from cosyui.service import remarks
from cosyui.service.history_clips import HistoryClips
from cosyui.service.history_file import HistoryFile, PastTake

logger = logging.getLogger(__name__)

MOST_CLIP_BYTES = 1 << 30
"""Of all clips; beyond it the oldest takes are forgotten, favourites not."""
T = TypeVar("T")


class HistoryStore:
    """``lock`` is for whoever does several things in a row.

    ``opened`` is called with all favourites as soon as the file can be read, or there is none; ``forget`` with the hash
    of a clip that was deleted. What needs the file raises CosyuiError ``history_failed``.
    """

    def __init__(self, path: Path, opened: Callable[[Sequence[PastTake]], None], forget: Callable[[str], None]) -> None:
        self.file = HistoryFile(path)
        self.clips = HistoryClips(path.with_name(f"{path.stem}-clips"))
        self.lock = threading.RLock()
        self._opened: Callable[[Sequence[PastTake]], None] | None = opened
        self._forget = forget
        self._damaged: Notice | None = None
        self._failed: Notice | None = None

    @property
    def problems(self) -> tuple[Notice, ...]:
        return tuple(one for one in (self._damaged, self._failed) if one is not None)

    def read(self, work: Callable[[], T], absent: T) -> T:
        """``absent`` where nothing was ever added: then there is no file, nor shall there be one."""
        with self.lock:
            if self.file.path.exists():
                return self.do(work)
            self._tell([])
            return absent

    def do(self, work: Callable[[], T]) -> T:
        """With the file, which is begun anew if it is damaged."""
        with self.lock:
            try:
                try:
                    return self._tried(work)
                except sqlite3.Error as error:
                    if not is_damage(error):
                        raise
                    self._begin_anew()
                    return self._tried(work)
            except (sqlite3.Error, NewerFileError, OSError) as error:
                self.file.close()  # a new connection may help, and keeps no lock meanwhile
                raise self.problem(error) from error

    def _tried(self, work: Callable[[], T]) -> T:
        if self._opened is not None:
            self._tell(self.file.favourites())
        result = work()
        self._failed = None
        return result

    def _begin_anew(self) -> None:
        aside = self.file.move_aside()
        self._damaged = remarks.history_damaged(aside)
        log(logger, logging.ERROR, "history_damaged", moved_to=str(aside))

    def _tell(self, favourites: Sequence[PastTake]) -> None:
        if self._opened is not None:
            self._opened(favourites)
            self._opened = None

    def forget(self, takes: Iterable[PastTake]) -> None:
        """Their rows, and clips that nobody else uses."""
        listed = list(takes)
        uses = self.do(self.file.clips)
        for take in listed:
            if take.clip:
                uses[take.clip] -= 1
                if not uses[take.clip]:
                    self.clips.remove(take.clip)
                    self._forget(take.clip)
        self.do(lambda: self.file.remove(take.id for take in listed))

    def prune(self, most: int, oldest: float) -> None:
        """Forget all but the last ``most`` takes, and what was made before ``oldest``; favourites stay."""
        self.do(lambda: self._prune(most, oldest))

    def _prune(self, most: int, oldest: float) -> None:
        old = self.file.old(most, oldest)
        if old:
            self.forget(old)
        sizes = self.clips.sizes()
        over = sum(sizes.values()) - MOST_CLIP_BYTES
        if over > 0:
            uses, given_up = self.file.clips(), []
            for take in self.file.with_clips():
                if over <= 0:
                    break
                given_up.append(take)
                uses[take.clip] -= 1
                over -= 0 if uses[take.clip] else sizes.get(take.clip, 0)
            self.forget(given_up)
        self.clips.sweep(self.file.clips(), oldest)

    def problem(self, error: Exception) -> CosyuiError:
        """Told as long as it lasts."""
        reason = getattr(error, "strerror", None) or str(error)
        self._failed = remarks.history_failed(self.file.path, reason)
        message = f"The history cannot be read or written ({reason}). Takes go on without it."
        return CosyuiError("history_failed", message)

    def crashed(self, error: Exception) -> None:
        """A fault of our own; told until something is written again."""
        self._failed = remarks.history_failed(self.file.path, type(error).__name__)

    def close(self) -> None:
        with self.lock:
            self.file.close()
