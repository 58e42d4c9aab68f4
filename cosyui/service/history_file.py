"""The history's SQLite file: takes in, takes out. Blocking, one thread at a time; raises sqlite3.Error or OSError."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass, fields, replace
from pathlib import Path
from typing import Any

from cosyui.ops.sqlite_file import SqliteFile

MIGRATIONS: tuple[str, ...] = (
    """
    CREATE TABLE takes (
        number INTEGER PRIMARY KEY,
        id TEXT NOT NULL UNIQUE,
        owner TEXT NOT NULL,
        made REAL NOT NULL,
        text TEXT NOT NULL,
        mode TEXT NOT NULL,
        voice TEXT NOT NULL,
        clip TEXT NOT NULL,
        transcript TEXT NOT NULL,
        instruction TEXT NOT NULL,
        speed REAL NOT NULL,
        seed INTEGER NOT NULL,
        language TEXT,
        seconds REAL NOT NULL,
        first_chunk REAL NOT NULL,
        total REAL NOT NULL,
        rtf REAL NOT NULL,
        notices TEXT NOT NULL,
        path TEXT NOT NULL,
        favourite INTEGER NOT NULL
    );
    CREATE INDEX takes_owner ON takes (owner, number);
    CREATE INDEX takes_clip ON takes (clip);
    CREATE INDEX takes_made ON takes (made);
    """,
)
"""Only ever appended to, as those of the journal."""


@dataclass(frozen=True)
class PastTake:
    """A finished take with all that it was made of.

    ``owner`` is a hash; ``made`` in seconds since the epoch; ``voice`` is the saved or built-in voice that was chosen,
    ``clip`` the SHA-256 of the clip's file where there was none. ``seconds`` of speech; ``first_chunk`` and ``total``
    from the submit; ``notices`` are remarks as JSON; ``path`` below the outputs.
    """

    id: str
    owner: str
    made: float
    text: str
    mode: str
    voice: str
    clip: str
    transcript: str
    instruction: str
    speed: float
    seed: int
    language: str | None
    seconds: float
    first_chunk: float
    total: float
    rtf: float
    notices: str
    path: str
    favourite: bool = False


_COLUMNS = ", ".join(field.name for field in fields(PastTake))
_PLACES = ", ".join("?" * len(fields(PastTake)))


class HistoryFile(SqliteFile):
    """Readable for its owner alone; what is deleted from it is overwritten."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, MIGRATIONS, private=True)

    def writer(self) -> sqlite3.Connection:
        connection = super().writer()
        connection.execute("PRAGMA secure_delete = ON")
        connection.create_function("fold", 1, str.casefold, deterministic=True)
        return connection

    def add(self, take: PastTake) -> None:
        with (connection := self.writer()):
            connection.execute(f"INSERT INTO takes ({_COLUMNS}) VALUES ({_PLACES})", astuple(take))  # noqa: S608

    def find(self, owner: str, take_id: str) -> PastTake | None:
        found = self._select("owner = ? AND id = ?", (owner, take_id))
        return found[0] if found else None

    def of(self, owner: str) -> list[PastTake]:
        """All of an owner."""
        return self._select("owner = ?", (owner,))

    def page(self, owner: str, text: str, favourites: bool, limit: int, offset: int) -> list[PastTake]:
        """The newest first, of those whose text has ``text`` in it."""
        where, values = _chosen(owner, text, favourites)
        return self._select(f"{where} ORDER BY number DESC LIMIT ? OFFSET ?", (*values, limit, offset))

    def count(self, owner: str | None, text: str = "", favourites: bool = False) -> int:
        """How many `page` would give in all; of all owners for None."""
        where, values = _chosen(owner, text, favourites)
        (count,) = self.writer().execute(f"SELECT count(*) FROM takes WHERE {where}", values).fetchone()  # noqa: S608
        return int(count)

    def favourites(self) -> list[PastTake]:
        """Of all owners."""
        return self._select("favourite", ())

    def mark(self, take_id: str, favourite: bool) -> None:
        with (connection := self.writer()):
            connection.execute("UPDATE takes SET favourite = ? WHERE id = ?", (favourite, take_id))

    def old(self, most: int, oldest: float) -> list[PastTake]:
        """What is beyond the last ``most``, or was made before ``oldest``; no favourites."""
        beyond = "number <= (SELECT number FROM takes ORDER BY number DESC LIMIT 1 OFFSET ?)"
        return self._select(f"NOT favourite AND (made < ? OR {beyond})", (oldest, most))

    def with_clips(self) -> list[PastTake]:
        """The oldest first; no favourites."""
        return self._select("NOT favourite AND clip != '' ORDER BY number", ())

    def clips(self) -> Counter[str]:
        """How many takes use each clip."""
        found = self.writer().execute("SELECT clip, count(*) FROM takes WHERE clip != '' GROUP BY clip")
        return Counter(dict(found.fetchall()))

    def remove(self, take_ids: Iterable[str]) -> None:
        with (connection := self.writer()):
            connection.executemany("DELETE FROM takes WHERE id = ?", [(take_id,) for take_id in take_ids])
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")  # the log beside the file has them, too

    def _select(self, where: str, values: Sequence[Any]) -> list[PastTake]:
        found = self.writer().execute(f"SELECT {_COLUMNS} FROM takes WHERE {where}", values)  # noqa: S608
        return [replace(PastTake(*row), favourite=bool(row[-1])) for row in found]


def _chosen(owner: str | None, text: str, favourites: bool) -> tuple[str, list[Any]]:
    """The SQL condition and its values."""
    conditions, values = ["1"], []
    if owner is not None:
        conditions, values = ["owner = ?"], [owner]
    if text:
        conditions.append("instr(fold(text), fold(?)) > 0")
        values.append(text)
    if favourites:
        conditions.append("favourite")
    return " AND ".join(conditions), values
