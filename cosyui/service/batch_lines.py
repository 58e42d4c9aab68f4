"""A line of a batch as it was given, and what may be wrong with lines, all of it at once."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict

from cosyui.errors import InputError

FIELDS = ("text", "voice", "instruction", "speed", "seed", "language", "name")
LONGEST_NAME = 80
MOST_TOLD = 20
"""Problems that are told one by one; of the others only how many there are."""


class Line(BaseModel):
    """``number`` is that of the line in what was given, from 1. ``name``: who speaks, or what the line is called.

    ``voice`` as it was given, and once it was looked up ``voice_key``, which stays when the voice gets another name.
    """

    model_config = ConfigDict(frozen=True)

    number: int
    text: str
    voice: str = ""
    voice_key: str = ""
    instruction: str = ""
    speed: float = 1.0
    seed: int | None = None
    language: str | None = None
    name: str = ""


class LineError(InputError):
    """What is wrong with line ``line``."""

    def __init__(self, code: str, message: str, field: str | None, line: int) -> None:
        super().__init__(code, message, field)
        self.line = line

    def __reduce__(self) -> tuple[type[LineError], tuple[str, str, str | None, int]]:
        return type(self), (self.code, self.message, self.field, self.line)


class BatchError(InputError):
    """Every problem of a batch: the first of them in ``problems``, in order, and in ``count`` how many there are."""

    def __init__(self, problems: Sequence[LineError]) -> None:
        ordered = sorted(problems, key=lambda problem: problem.line)
        told = " ".join(f"Line {one.line}: {one.message}" for one in ordered[:MOST_TOLD])
        more = f" And {len(ordered) - MOST_TOLD} more problems." if len(ordered) > MOST_TOLD else ""
        super().__init__("batch_invalid", f"Nothing was started. {told}{more}", "lines")
        self.problems = tuple(ordered[:MOST_TOLD])
        self.count = len(ordered)
        self._all = tuple(problems)

    def __reduce__(self) -> tuple[type[BatchError], tuple[tuple[LineError, ...]]]:
        return type(self), (self._all,)


@dataclass
class Parsed:
    """What was read, and what could not be."""

    lines: list[Line]
    problems: list[LineError]


def line_of(number: int, given: Mapping[str, Any], *, written: bool) -> tuple[Line | None, list[LineError]]:
    """A line of the fields of one; ``written``: numbers come as texts, and nothing is an empty text."""
    values: dict[str, Any] = {}
    problems: list[LineError] = []
    for name, value in given.items():
        if name not in FIELDS:
            shown = name[:40].encode("utf-8", "replace").decode()
            message = f"There is no field {shown!r}; there are {', '.join(FIELDS)}."
            problems.append(LineError("batch_field_unknown", message, None, number))
        elif value is not None and value != "":
            try:
                values[name] = _value(name, value, written=written)
            except ValueError as error:
                problems.append(LineError("batch_field_invalid", f"The field {name} {error}.", name, number))
    if problems:
        return None, problems
    return Line(number=number, **({"text": ""} | values)), []


def _value(name: str, value: Any, *, written: bool) -> Any:
    if name in ("speed", "seed"):
        return _number(name, value, written=written)
    if not isinstance(value, str):
        raise ValueError("must be a text")
    if "\0" in value or any("\ud800" <= char <= "\udfff" for char in value):
        raise ValueError("has a NUL or half a character in it")
    if name == "text":
        return value
    value = " ".join(value.split())
    if name == "name" and len(value) > LONGEST_NAME:
        raise ValueError(f"is longer than {LONGEST_NAME} characters")
    return value or (None if name == "language" else "")


def _number(name: str, value: Any, *, written: bool) -> float | int:
    kind = "a whole number" if name == "seed" else "a number, with a point as in 1.25"
    try:
        if isinstance(value, str) and written and len(value) < 40:
            value = int(value) if name == "seed" else float(value)
    except ValueError:
        raise ValueError(f"must be {kind}") from None
    good = isinstance(value, int if name == "seed" else int | float) and not isinstance(value, bool)
    if not good or not abs(value) <= sys.float_info.max:  # neither NaN nor a whole number beyond every float
        raise ValueError(f"must be {kind}")
    return int(value) if name == "seed" else float(value)
