"""Texts of every kind in both languages with the words that a person would read out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cosyui.speech.reading.normalise import normalise
from cosyui.speech.text.sanitise import sanitise

DATA = Path(__file__).parent / "data"


def cases(language: str) -> dict[str, list[dict[str, str]]]:
    """The table of a language by kind; each row has ``kind``, ``text`` and ``spoken``."""
    kinds: dict[str, list[dict[str, str]]] = {}
    for line in (DATA / f"spoken_{language}.jsonl").read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        kinds.setdefault(row["kind"], []).append(row)
    return kinds


TABLES = [(language, kind, rows) for language in ("zh", "en") for kind, rows in cases(language).items()]
IDS = [f"{language}-{kind}" for language, kind, _ in TABLES]


@pytest.mark.parametrize(("language", "kind", "rows"), TABLES, ids=IDS)
def test_written_texts_are_read_as_people_do(language: str, kind: str, rows: list[dict[str, str]]) -> None:
    del kind
    spoken = {row["text"]: normalise(sanitise(row["text"]), language) for row in rows}
    assert spoken == {row["text"]: row["spoken"] for row in rows}


@pytest.mark.parametrize(("language", "kind", "rows"), TABLES, ids=IDS)
def test_spoken_texts_stay_as_they_are(language: str, kind: str, rows: list[dict[str, str]]) -> None:
    del kind
    assert [normalise(row["spoken"], language) for row in rows] == [row["spoken"] for row in rows]
