"""A row for every request, written behind the back of the service: no trouble with the file ever reaches a request."""

from __future__ import annotations

import logging
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from cosyui.ops.journal_file import Filter, JournalFile, Row
from cosyui.ops.logs import log
from cosyui.ops.migrations import NewerFileError
from cosyui.ops.sqlite_file import is_damage

logger = logging.getLogger(__name__)

BACKLOG = 10_000
"""Rows that wait in memory for a file that cannot be written; about 1 KB each. Older ones are given up."""
RECENT = 500
BATCH = 200
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0
"""Seconds between two tries to write, doubled with each failure."""
PRUNE_EVERY = 3600.0
DAY = 86_400.0
_BAD_ROW = (
    sqlite3.IntegrityError,
    sqlite3.InterfaceError,
    sqlite3.ProgrammingError,
    sqlite3.DataError,
    OverflowError,
    ValueError,
    TypeError,
)


@dataclass(frozen=True)
class Page:
    """Some of ``total`` rows, and the ``codes`` of all rows there are; ``problem``: why the file cannot be read."""

    rows: tuple[Row, ...] = ()
    total: int = 0
    codes: tuple[str, ...] = ()
    problem: str | None = None


class Journal:
    """`start`, `add` from any thread, `close`. Keeps at most ``most_rows`` of the last ``days``.

    ``clock`` gives monotonic seconds, ``wall`` seconds since the epoch.
    """

    def __init__(
        self,
        path: Path,
        most_rows: int = 100_000,
        days: float = 30.0,
        *,
        backlog: int = BACKLOG,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._file = JournalFile(path)
        self._most_rows = most_rows
        self._days = days
        self._clock = clock
        self._wall = wall
        self._offset = wall() - clock()
        self._waiting: deque[Row] = deque()
        self._backlog = backlog
        self._recent: deque[Row] = deque(maxlen=RECENT)
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None
        self._closing = False
        self._damaged = self._began_anew = False
        self._pause = FIRST_PAUSE
        self._next_try = self._next_prune = clock()
        self.problem: str | None = None
        """Why rows are not in the file; None while all is well."""
        self.dropped = 0
        """Rows that were given up."""

    @property
    def path(self) -> Path:
        return self._file.path

    @property
    def waiting(self) -> int:
        """Rows that are not in the file yet."""
        return len(self._waiting)

    @property
    def recent(self) -> tuple[Row, ...]:
        """The last rows in the order in which they were added, whether written or not."""
        with self._lock:
            return tuple(self._recent)

    def start(self) -> None:
        """Begin to write, in a thread of its own."""
        thread = threading.Thread(target=self._run, name="journal", daemon=True)
        thread.start()  # raises where there is no thread to be had: then `close` writes
        self._thread = thread

    def close(self, timeout: float = 5.0) -> None:
        """Write what waits, within ``timeout`` seconds, and let the file go. Without `start` it writes here."""
        self._closing = True
        self._wake.set()
        if self._thread is None:
            self._last_try()
        else:
            self._thread.join(timeout)
        if self._waiting:
            log(logger, logging.WARNING, "journal_rows_lost", rows=len(self._waiting), reason=self.problem)

    def add(self, row: Row) -> None:
        """Take a row; never blocks, never raises."""
        with self._lock:
            self._recent.append(row)
            self._waiting.append(row)
            self._trim()
        self._wake.set()

    def page(
        self,
        chosen: Filter = Filter(),  # noqa: B008  (frozen)
        sort: str = "arrived",
        descending: bool = True,
        limit: int = 50,
        offset: int = 0,
    ) -> Page:
        """Rows of the file. Blocks: call it from a thread. Raises ValueError for a ``sort`` that is no column."""
        if not self._file.path.exists():
            return Page()
        try:
            rows = self._file.select(chosen, sort, descending, limit, offset)
            return Page(tuple(rows), self._file.count(chosen), tuple(self._file.codes()))
        except sqlite3.Error as error:
            if is_damage(error):
                self._damaged = True
                self._wake.set()
            return Page(problem=str(error))

    def csv(
        self,
        chosen: Filter = Filter(),  # noqa: B008
        sort: str = "arrived",
        descending: bool = True,
    ) -> Iterator[str]:
        """The rows as CSV, piece by piece. Blocks. Raises sqlite3.Error, and ValueError as `page` does."""
        return self._file.csv(chosen, sort, descending)

    def write(self) -> float | None:
        """Write what waits, as far as that is possible now; seconds until it shall be tried again, None for nothing.

        For the thread that writes.
        """
        if self._clock() < self._next_try:
            return self._next_try - self._clock()
        self._began_anew = False
        try:
            if self._damaged:
                self._begin_anew()
            while rows := self._take():
                self._put(rows)
            self._prune()
        except (sqlite3.Error, NewerFileError, OSError) as error:
            self._failed(error)
            return self._pause
        if self._pause > FIRST_PAUSE or self.problem is not None:
            log(logger, logging.INFO, "journal_written_again", dropped=self.dropped)
        self._pause, self.problem = FIRST_PAUSE, None
        return None

    def _take(self) -> list[Row]:
        with self._lock:
            return [self._waiting.popleft() for _ in range(min(BATCH, len(self._waiting)))]

    def _put(self, rows: Sequence[Row]) -> None:
        try:
            self._file.write(rows)
        except _BAD_ROW:
            self._put_each(rows)
        except (sqlite3.Error, NewerFileError, OSError) as error:
            self._put_back(rows)
            if not is_damage(error) or self._began_anew:
                raise
            self._begin_anew()

    def _put_each(self, rows: Sequence[Row]) -> None:
        """One row cannot be written, ever: the others can."""
        for number, row in enumerate(rows):
            try:
                self._file.write([row])
            except _BAD_ROW as error:
                self.dropped += 1
                log(logger, logging.ERROR, "journal_row_refused", request_id=repr(row.id), reason=str(error))
            except (sqlite3.Error, NewerFileError, OSError):
                self._put_back(rows[number:])
                raise

    def _put_back(self, rows: Sequence[Row]) -> None:
        with self._lock:
            self._waiting.extendleft(reversed(rows))
            self._trim()

    def _trim(self) -> None:
        while len(self._waiting) > self._backlog:
            self._waiting.popleft()
            self.dropped += 1

    def _begin_anew(self) -> None:
        aside = self._file.move_aside()
        self._damaged, self._began_anew = False, True
        log(logger, logging.ERROR, "journal_damaged", moved_to=str(aside))

    def _prune(self) -> None:
        if self._clock() < self._next_prune:
            return
        self._next_prune = self._clock() + PRUNE_EVERY
        # A clock that was set forward must not make rows old: time goes on as fast as the monotonic clock says.
        now = min(self._wall(), self._clock() + self._offset)
        self._file.prune(self._most_rows, now - self._days * DAY)

    def _failed(self, error: Exception) -> None:
        with suppress(sqlite3.Error):
            self._file.close()  # a new connection may help, and keeps no lock meanwhile
        if self.problem is None:
            log(logger, logging.WARNING, "journal_not_written", reason=str(error))
        self.problem = str(error)
        self._next_try = self._clock() + self._pause
        self._pause = min(LONGEST_PAUSE, 2 * self._pause)

    def _last_try(self) -> None:
        self._next_try = self._clock()
        self.write()
        self._file.close()

    def _run(self) -> None:
        wait: float | None = 0.0
        while not self._closing:
            self._wake.wait(wait)
            self._wake.clear()
            try:
                wait = self.write()
            except Exception:
                logger.exception("journal_crashed")
                wait = self._pause
        self._last_try()
