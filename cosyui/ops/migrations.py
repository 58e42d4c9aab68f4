"""The shape of a SQLite file, changed step by step; the file itself knows how many steps it has seen."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

MIGRATIONS: tuple[str, ...] = (
    """
    CREATE TABLE requests (
        number INTEGER PRIMARY KEY,
        id TEXT NOT NULL,
        client TEXT NOT NULL,
        arrived REAL NOT NULL,
        outcome TEXT NOT NULL,
        code TEXT,
        mode TEXT,
        stream INTEGER,
        long INTEGER,
        precision TEXT,
        engine INTEGER,
        attempts INTEGER,
        retries INTEGER,
        redone INTEGER,
        characters INTEGER,
        segments INTEGER,
        speech_tokens INTEGER,
        prompt_seconds REAL,
        speech_seconds REAL,
        rtf REAL,
        waited REAL,
        first_chunk REAL,
        total REAL,
        text_stage REAL,
        prompt_stage REAL,
        llm_stage REAL,
        flow_stage REAL,
        vocoder_stage REAL,
        beside INTEGER,
        cached_prompts INTEGER,
        allocated_before INTEGER,
        allocated_peak INTEGER,
        allocated_after INTEGER,
        reserved_before INTEGER,
        reserved_peak INTEGER,
        reserved_after INTEGER,
        device_before INTEGER,
        device_peak INTEGER,
        device_after INTEGER,
        engine_rss_after INTEGER,
        page_rss_after INTEGER
    );
    CREATE INDEX requests_arrived ON requests (arrived);
    CREATE INDEX requests_id ON requests (id);
    """,
)
"""Only ever appended to. Each runs as a whole or not at all; it ends every statement with a semicolon."""


class NewerFileError(Exception):
    """The file was written by a later version of this program."""


def migrate(connection: sqlite3.Connection, migrations: Sequence[str] = MIGRATIONS) -> int:
    """Bring the file up to date, one migration a transaction; how many were missing.

    ``connection`` must not be in a transaction. Raises NewerFileError, and sqlite3.Error with the file as it was before
    the migration that failed.
    """
    version = int(connection.execute("PRAGMA user_version").fetchone()[0])
    if version > len(migrations):
        raise NewerFileError(f"its format is {version}, this program knows {len(migrations)}")
    for number, script in enumerate(migrations[version:], version + 1):
        connection.execute("BEGIN IMMEDIATE")
        try:
            for statement in _statements(script):
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {number}")
        except sqlite3.Error:
            connection.rollback()
            raise
        connection.commit()
    return len(migrations) - version


def _statements(script: str) -> list[str]:
    # executescript would commit before it begins: half a migration could stay.
    statements, statement = [], ""
    for piece in script.split(";"):
        statement += piece + ";"
        if sqlite3.complete_statement(statement):
            statements.append(statement.strip())
            statement = ""
    return [text for text in statements if text != ";"]
