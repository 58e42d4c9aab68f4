"""Things that are folders of files below a root: they appear and go as a whole, whenever a server is killed."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

NEW, GONE = ".new-", ".gone-"
"""Beginnings of the names of folders that are not there yet, or not any more."""


def read_all(root: Path, pattern: str, read: Callable[[Path], T]) -> tuple[list[T], dict[str, str]]:
    """What ``read`` makes of each folder, and why others cannot be read, by name. Finishes deletions and clears away

    what was not finished. ``read`` may raise OSError and ValueError.

    Raises OSError when the root is there and cannot be read.
    """
    found: list[T] = []
    damaged: dict[str, str] = {}
    if not root.exists():
        return found, damaged
    for folder in sorted(root.iterdir()):
        if folder.name.startswith((NEW, GONE)):
            shutil.rmtree(folder, ignore_errors=True)
        elif re.fullmatch(pattern, folder.name):
            try:
                found.append(read(folder))
            except (OSError, ValueError) as error:
                damaged[folder.name] = (getattr(error, "strerror", None) or str(error)).partition("\n")[0]
    return found, damaged


def create(root: Path, name: str, files: Mapping[str, bytes]) -> None:
    """Raises OSError; then nothing is left of it."""
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    new = root / f"{NEW}{name}"
    try:
        new.mkdir(mode=0o700)
        for file, data in files.items():
            _write(new / file, data)
        new.rename(root / name)
    except OSError:
        shutil.rmtree(new, ignore_errors=True)
        raise
    _sync(root)


def replace_file(path: Path, data: bytes) -> None:
    """Raises OSError; then the old one is there."""
    new = path.with_name(f".{path.name}.part")
    try:
        _write(new, data)
        new.replace(path)
    except OSError:
        with suppress(OSError):
            new.unlink()
        raise
    _sync(path.parent)


def put_away(root: Path, name: str) -> None:
    """It is there no more; `sweep` deletes it. Raises OSError; then it is there as it was."""
    with suppress(FileNotFoundError):
        (root / name).rename(root / f"{GONE}{name}")


def sweep(root: Path, name: str) -> None:
    """Raises OSError when something of it is left, which `read_all` deletes."""
    with suppress(FileNotFoundError):
        shutil.rmtree(root / f"{GONE}{name}")


def read_file(path: Path, most: int) -> bytes:
    """Raises OSError, and ValueError when it has more bytes than ``most``."""
    with path.open("rb") as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise ValueError(f"{path.name} is too large")
    return data


def _write(path: Path, data: bytes) -> None:
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _sync(folder: Path) -> None:
    """So that what was renamed in it stays renamed, whatever happens to the machine; not every disk can."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
