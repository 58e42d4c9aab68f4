"""From a file to the lines of a batch: CSV with a header, JSON Lines, or the script of a dialogue. Always UTF-8."""

from __future__ import annotations

import csv
import io
import json
from typing import Any, Literal, NoReturn, get_args

from cosyui.service.batch_lines import FIELDS, BatchError, LineError, Parsed, line_of
from cosyui.service.batch_script import parse_script

Kind = Literal["csv", "jsonl", "txt"]
KINDS: tuple[Kind, ...] = get_args(Kind)
_DELIMITERS = ",;\t"
_ENDINGS: dict[str, Kind] = {"csv": "csv", "tsv": "csv", "jsonl": "jsonl", "ndjson": "jsonl", "txt": "txt"}


def kind_of(file_name: str) -> Kind | None:
    """By the ending of a name; None for another one."""
    return _ENDINGS.get(file_name.rpartition(".")[2].lower())


def parse(data: bytes | str, kind: Kind) -> Parsed:
    """Raises BatchError where nothing can be read at all."""
    text = data if isinstance(data, str) else decode(data)
    text = text.removeprefix("\ufeff")
    match kind:
        case "csv":
            return parse_csv(text)
        case "jsonl":
            return parse_jsonl(text)
    return parse_script(text)


def decode(data: bytes) -> str:
    """Raises BatchError ``batch_encoding`` with the line that is not UTF-8."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        number = data.count(b"\n", 0, error.start) + 1
        message = "This is not UTF-8. Save the file in the encoding UTF-8."
        raise BatchError([LineError("batch_encoding", message, None, number)]) from None


def parse_csv(text: str) -> Parsed:
    """RFC 4180, with commas, semicolons or tabs: the one that makes a column ``text`` of the header."""
    delimiter = next((one for one in _DELIMITERS if "text" in _header(text, one)), None)
    if delimiter is None:
        message = f"The first line must name the columns, one of which is text; the others are {', '.join(FIELDS[1:])}."
        raise BatchError([LineError("batch_header", message, None, 1)])
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    parsed, names = Parsed([], []), [""]
    begin = 1
    try:
        for row in reader:
            number, begin = begin, reader.line_num + 1
            if not any(cell.strip() for cell in row):
                continue
            if names == [""]:
                names = [cell.strip().lower() for cell in row]
                _check_header(names, number)
            elif len(row) != len(names):
                message = (
                    f"It has {len(row)} cells and the header {len(names)}. Quote a text that has {delimiter!r} in it."
                )
                parsed.problems.append(LineError("batch_malformed", message, None, number))
            else:
                _take(parsed, number, dict(zip(names, row, strict=True)), written=True)
    except csv.Error as error:
        parsed.problems.append(LineError("batch_malformed", f"This is no CSV: {error}.", None, begin))
    return parsed


def parse_jsonl(text: str) -> Parsed:
    """An object a line."""
    parsed = Parsed([], [])
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            fields = json.loads(line, parse_constant=_no_number, object_pairs_hook=_once)
        except (ValueError, RecursionError):
            message = "This is no JSON object with each name once: one stands on each line."
            parsed.problems.append(LineError("batch_malformed", message, None, number))
            continue
        if isinstance(fields, dict):
            _take(parsed, number, fields, written=False)
        else:
            parsed.problems.append(LineError("batch_malformed", "This is JSON, but no object.", None, number))
    return parsed


def parse_objects(given: list[Any]) -> Parsed:
    """Objects that were read already, as in a body of JSON; the first is line 1."""
    parsed = Parsed([], [])
    for number, fields in enumerate(given, 1):
        if isinstance(fields, dict):
            _take(parsed, number, fields, written=False)
        else:
            parsed.problems.append(LineError("batch_malformed", "This is no object.", None, number))
    return parsed


def _take(parsed: Parsed, number: int, fields: dict[str, Any], *, written: bool) -> None:
    line, problems = line_of(number, fields, written=written)
    parsed.problems += problems
    if line is not None:
        parsed.lines.append(line)


def _header(text: str, delimiter: str) -> list[str]:
    try:
        for row in csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True):
            if any(cell.strip() for cell in row):
                return [cell.strip().lower() for cell in row]
    except csv.Error:
        pass  # another delimiter may fit
    return []


def _check_header(names: list[str], number: int) -> None:
    unknown = [name for name in names if name not in FIELDS]
    twice = sorted({name for name in names if names.count(name) > 1})
    problems = []
    if unknown:
        message = f"There is no column {unknown[0][:40]!r}; there are {', '.join(FIELDS)}."
        problems.append(LineError("batch_field_unknown", message, None, number))
    if twice:
        problems.append(LineError("batch_header", f"The column {twice[0][:40]!r} is there twice.", None, number))
    if problems:
        raise BatchError(problems)


def _no_number(name: str) -> NoReturn:
    raise ValueError(name)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len({name for name, _ in pairs}) < len(pairs):
        raise ValueError("a name is there twice")
    return dict(pairs)
