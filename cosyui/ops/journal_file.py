"""The journal's SQLite file: rows in, rows out. Blocking; what can go wrong is raised as sqlite3.Error or OSError."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from typing import Any

from cosyui.ops.migrations import MIGRATIONS
from cosyui.ops.sqlite_file import SqliteFile

MOST_ROWS = 1000
"""Of one page."""
BATCH = 500
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")


@dataclass(frozen=True)
class Row:
    """One request that ended. No text and no audio, only figures and names from fixed lists.

    ``arrived`` in seconds since the epoch; ``outcome``: done, failed, stopped or rejected, with the error's ``code``.
    ``prompt_seconds``, ``speech_seconds`` are lengths of sound; ``waited``, ``first_chunk``, ``total``: seconds since
    the arrival, the ``*_stage`` seconds of work. ``attempts``: engines that had it; ``retries``: segments made again;
    ``redone``: pieces made again in float32. ``beside``: requests that were at work when it ended.

    Memory in bytes when it began, at most, and when it ended: ``allocated`` and ``reserved`` of PyTorch, ``device`` of
    the whole card, resident of the engine's process and the page's.
    """

    id: str
    client: str
    arrived: float
    outcome: str
    code: str | None = None
    mode: str | None = None
    stream: bool | None = None
    long: bool | None = None
    precision: str | None = None
    engine: int | None = None
    attempts: int | None = None
    retries: int | None = None
    redone: int | None = None
    characters: int | None = None
    segments: int | None = None
    speech_tokens: int | None = None
    prompt_seconds: float | None = None
    speech_seconds: float | None = None
    rtf: float | None = None
    waited: float | None = None
    first_chunk: float | None = None
    total: float | None = None
    text_stage: float | None = None
    prompt_stage: float | None = None
    llm_stage: float | None = None
    flow_stage: float | None = None
    vocoder_stage: float | None = None
    beside: int | None = None
    cached_prompts: int | None = None
    allocated_before: int | None = None
    allocated_peak: int | None = None
    allocated_after: int | None = None
    reserved_before: int | None = None
    reserved_peak: int | None = None
    reserved_after: int | None = None
    device_before: int | None = None
    device_peak: int | None = None
    device_after: int | None = None
    engine_rss_after: int | None = None
    page_rss_after: int | None = None


COLUMNS = tuple(field.name for field in fields(Row))
_FLAGS = tuple(COLUMNS.index(name) for name in ("stream", "long"))
_INSERT = f"INSERT INTO requests ({', '.join(COLUMNS)}) VALUES ({', '.join('?' * len(COLUMNS))})"  # noqa: S608


@dataclass(frozen=True)
class Filter:
    """Which rows; None and "" let all pass. ``since`` and ``until`` in seconds since the epoch, ``until`` not with it;
    ``text`` is a part of the id or of the client.
    """

    outcome: str | None = None
    client: str | None = None
    code: str | None = None
    mode: str | None = None
    since: float | None = None
    until: float | None = None
    text: str = ""

    def where(self) -> tuple[str, list[Any]]:
        """The SQL condition and its values."""
        conditions, values = ["1"], []
        for column in ("outcome", "client", "code", "mode"):
            wanted = getattr(self, column)
            if wanted:
                conditions.append(f"{column} = ?")
                values.append(wanted)
        for sign, time in ((">=", self.since), ("<", self.until)):
            if time is not None:
                conditions.append(f"arrived {sign} ?")
                values.append(time)
        if self.text:
            conditions.append("(instr(id, ?) > 0 OR instr(client, ?) > 0)")
            values += [self.text, self.text]
        return " AND ".join(conditions), values


class JournalFile(SqliteFile):
    def __init__(self, path: Path) -> None:
        super().__init__(path, MIGRATIONS)

    def write(self, rows: Sequence[Row]) -> None:
        """All of ``rows`` or none. Raises also NewerFileError."""
        connection = self.writer()
        with connection:
            connection.executemany(_INSERT, [astuple(row) for row in rows])

    def prune(self, most: int, oldest: float) -> int:
        """Delete all but the last ``most`` rows, and what arrived before ``oldest``; how many rows that were."""
        with (connection := self.writer()):
            return connection.execute(
                "DELETE FROM requests WHERE arrived < ? OR number <= (SELECT max(number) FROM requests) - ?",
                (oldest, most),
            ).rowcount

    def count(self, chosen: Filter) -> int:
        """How many rows a filter lets pass."""
        where, values = chosen.where()
        with closing(self.reader()) as connection:
            (count,) = connection.execute(f"SELECT count(*) FROM requests WHERE {where}", values).fetchone()  # noqa: S608
        return int(count)

    def codes(self) -> list[str]:
        """All codes of errors in the file."""
        with closing(self.reader()) as connection:
            found = connection.execute("SELECT DISTINCT code FROM requests WHERE code IS NOT NULL ORDER BY code")
            return [str(code) for (code,) in found]

    def select(
        self, chosen: Filter, sort: str = "arrived", descending: bool = True, limit: int = 50, offset: int = 0
    ) -> list[Row]:
        """A page of rows, unknown values last. Raises ValueError for a ``sort`` that is no column."""
        statement, values = _select(chosen, sort, descending)
        page = [min(max(0, limit), MOST_ROWS), max(0, offset)]
        with closing(self.reader()) as connection:
            return [_row(found) for found in connection.execute(f"{statement} LIMIT ? OFFSET ?", values + page)]

    def csv(self, chosen: Filter, sort: str = "arrived", descending: bool = True) -> Iterator[str]:
        """The rows as CSV, some lines at a time, with a head; for a spreadsheet, which shall run none of it.

        Raises ValueError as `select` does, at once.
        """
        return self._csv(*_select(chosen, sort, descending))

    def _csv(self, statement: str, values: list[Any]) -> Iterator[str]:
        yield _lines([COLUMNS])
        if not self.path.exists():
            return
        with closing(self.reader()) as connection:
            found = connection.execute(statement, values)
            while rows := found.fetchmany(BATCH):
                yield _lines([_harmless(value) for value in row] for row in rows)


def _select(chosen: Filter, sort: str, descending: bool) -> tuple[str, list[Any]]:
    if sort not in COLUMNS:
        raise ValueError(f"no column {sort!r}; there are {', '.join(COLUMNS)}")
    where, values = chosen.where()
    order = f"{sort} IS NULL, {sort} {'DESC' if descending else 'ASC'}, number DESC"
    return f"SELECT {', '.join(COLUMNS)} FROM requests WHERE {where} ORDER BY {order}", values  # noqa: S608


def _row(values: Sequence[Any]) -> Row:
    given = list(values)
    for column in _FLAGS:
        given[column] = None if given[column] is None else bool(given[column])
    return Row(*given)


def _harmless(value: Any) -> Any:
    """A spreadsheet takes a text that begins so for a formula."""
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value


def _lines(rows: Iterable[Sequence[Any]]) -> str:
    buffer = io.StringIO()
    csv.writer(buffer).writerows(rows)
    return buffer.getvalue()
