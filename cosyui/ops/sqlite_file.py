"""A SQLite file of our own: its connections, and what becomes of it when it is damaged."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from cosyui.ops.migrations import migrate

BUSY_SECONDS = 2.0
"""How long to wait for another program that writes into the file."""
DAMAGED_FILES = 3
"""At most so many are kept, for whoever wants to know what happened."""
_DAMAGED = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}


class SqliteFile:
    """One connection that writes, made at the first need. Reading makes connections of its own, in any thread.

    ``private``: nobody else on this machine may read the file.
    """

    def __init__(self, path: Path, migrations: Sequence[str], *, private: bool = False) -> None:
        self.path = path
        self._migrations = migrations
        self._private = private
        self._connection: sqlite3.Connection | None = None
        self._inode = 0

    def writer(self) -> sqlite3.Connection:
        """To the file as it is now, up to date. Raises sqlite3.Error, OSError and NewerFileError."""
        if self._connection is not None and not self._is_ours():
            self.close()
        if self._connection is None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            if self._private:  # the files beside it get the same rights from SQLite
                os.close(os.open(self.path, os.O_WRONLY | os.O_CREAT, 0o600))
            connection = sqlite3.connect(self.path, timeout=BUSY_SECONDS, check_same_thread=False)
            try:
                connection.execute("PRAGMA journal_mode = WAL")
                connection.execute("PRAGMA synchronous = NORMAL")
                migrate(connection, self._migrations)
                self._inode = self.path.stat().st_ino
            except BaseException:
                connection.close()
                raise
            self._connection = connection
        return self._connection

    def reader(self) -> sqlite3.Connection:
        """A new connection, to be closed. Raises sqlite3.Error, also where there is no file."""
        # A pool of threads may read a stream of lines, each a piece.
        uri = f"{self.path.absolute().as_uri()}?mode=ro"
        return sqlite3.connect(uri, uri=True, timeout=BUSY_SECONDS, check_same_thread=False)

    def move_aside(self) -> Path:
        """Give a damaged file another name, so that a new one is begun; that name. The last of many is overwritten."""
        self.close()
        names = [self.path.with_name(f"{self.path.name}.damaged-{number}") for number in range(1, DAMAGED_FILES + 1)]
        aside = next((name for name in names if not name.exists()), names[-1])
        with suppress(FileNotFoundError):
            self.path.replace(aside)
        for suffix in ("-wal", "-shm"):  # what belongs to the old file would damage the new one
            self.path.with_name(self.path.name + suffix).unlink(missing_ok=True)
        return aside

    def close(self) -> None:
        """Calling it twice is fine, as is writing afterwards."""
        if self._connection is not None:
            with suppress(sqlite3.Error):
                self._connection.close()
            self._connection = None

    def _is_ours(self) -> bool:
        """Whether the open file is the one under its name: SQLite does not notice when it is deleted."""
        try:
            return self.path.stat().st_ino == self._inode
        except OSError:
            return False


def is_damage(error: Exception) -> bool:
    """Whether the file itself is bad, and not what was asked of it."""
    return (getattr(error, "sqlite_errorcode", 0) or 0) & 0xFF in _DAMAGED
