"""Typed access to the two configuration files of a checkpoint; every error names file, key and what is expected."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn, TypeGuard

from cosyui.errors import CheckpointError
from cosyui.model.files import check_file
from cosyui.model.yaml_data import Unresolved, read_yaml

_READ_LIMIT = 1 << 20


def config_error(file: Path, key: str, expected: str, found: str) -> CheckpointError:
    """The error ``checkpoint_config`` for one key of ``file``."""
    message = f"{file}: {key} must be {expected}; {found}. Use the model's original file."
    return CheckpointError("checkpoint_config", message)


def open_yaml(file: Path) -> ConfigNode:
    """The top of a yaml file. Raises CheckpointError ``checkpoint_missing_file`` or ``checkpoint_config``."""
    return ConfigNode(file, "", _parse(file, read_yaml))


def open_json(file: Path) -> ConfigNode:
    """The top of a JSON file. Raises as `open_yaml`."""
    return ConfigNode(file, "", _parse(file, _read_json))


def _parse(file: Path, parse: Callable[[str], dict[str, Any]]) -> dict[str, Any]:
    check_file(file)
    try:
        with file.open("rb") as stream:
            content = stream.read(_READ_LIMIT + 1)
        if len(content) > _READ_LIMIT:
            raise ValueError("too large for a configuration file")
        return parse(content.decode("utf-8"))
    except (OSError, ValueError) as error:
        message = f"{file} cannot be read: {error}. Download this file again."
        raise CheckpointError("checkpoint_config", message) from error


def _read_json(text: str) -> dict[str, Any]:
    try:
        top = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not readable as JSON: {error}") from error
    if not isinstance(top, dict):
        raise ValueError("not a JSON object")
    return top


class ConfigNode:
    """A mapping of one of the files that knows where it stands, so that every error names file and key."""

    def __init__(self, file: Path, path: str, data: dict[str, Any]) -> None:
        self._file, self._path, self._data = file, path, data

    def fail(self, key: str, expected: str) -> NoReturn:
        """Raise the error for ``key``: what is expected, and what stands there."""
        value = self._data.get(key)
        if isinstance(value, Unresolved):
            found = f"its reference {value.text} cannot be resolved ({value.reason})"
        elif key not in self._data:
            found = "the key is missing"
        else:
            found = f"found {str(value)[:60]!r}"
        raise config_error(self._file, self._path + key, expected, found)

    def has(self, key: str) -> bool:
        return self._data.get(key) is not None

    def child(self, key: str) -> ConfigNode:
        value = self._data.get(key)
        if not isinstance(value, dict):
            self.fail(key, "a mapping")
        return ConfigNode(self._file, f"{self._path}{key}.", value)

    def integer(self, key: str) -> int:
        """A positive integer."""
        value = self._data.get(key)
        if not _is_size(value):
            self.fail(key, "a positive integer")
        return value

    def number(self, key: str, above: float | None = None) -> float:
        """A finite number >= 0, or > ``above``."""
        value = self._data.get(key)
        wanted = "a number of at least 0" if above is None else f"a number above {above:g}"
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
            self.fail(key, wanted)
        if value < 0 or (above is not None and value <= above):
            self.fail(key, wanted)
        return float(value)

    def string(self, key: str) -> str:
        value = self._data.get(key)
        if not isinstance(value, str) or not value:
            self.fail(key, "a text")
        return value

    def flag(self, key: str, *, default: bool) -> bool:
        value = self._data.get(key, default)
        if not isinstance(value, bool):
            self.fail(key, "true or false")
        return value

    def strings(self, key: str) -> tuple[str, ...]:
        value = self._data.get(key)
        if not isinstance(value, list) or not value or not all(isinstance(item, str) for item in value):
            self.fail(key, "a list of texts")
        return tuple(value)

    def integers(self, key: str, length: int | None = None) -> tuple[int, ...]:
        value = self._data.get(key)
        if not _is_size_list(value) or (length is not None and len(value) != length):
            self.fail(key, f"a list of {'' if length is None else f'{length} '}positive integers")
        return tuple(value)

    def ids(self, key: str) -> tuple[int, ...]:
        """A list, perhaps empty, of integers from 0."""
        value = self._data.get(key)
        if not isinstance(value, list) or not all(_is_size(item) or item == 0 for item in value):
            self.fail(key, "a list of ids")
        return tuple(value)

    def integer_lists(self, key: str, length: int) -> tuple[tuple[int, ...], ...]:
        value = self._data.get(key)
        if not isinstance(value, list) or len(value) != length or not all(_is_size_list(item) for item in value):
            self.fail(key, f"a list of {length} lists of positive integers")
        return tuple(tuple(item) for item in value)


def _is_size(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _is_size_list(value: Any) -> TypeGuard[list[int]]:
    return isinstance(value, list) and len(value) > 0 and all(_is_size(item) for item in value)
