"""All files below an open folder, without ever following a link."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import PurePath

from cosyui.ops.sightings import Sightings

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
DEEPEST = 16
"""Folders in folders; what is deeper is left alone."""
Report = Callable[[str, OSError], None]


@dataclass(frozen=True)
class Found:
    """A file or link; ``path`` below the root, ``size`` in bytes, ``age`` in seconds. ``mark`` changes with it."""

    path: PurePath
    size: int
    age: float
    mark: tuple[int, int]
    is_link: bool

    @property
    def is_partial(self) -> bool:
        """Whether it was left in the middle of being written, if nobody writes it now."""
        return self.path.name.startswith(".") and self.path.name.endswith(".part")


@dataclass
class Scan:
    """``folders``: their ages in seconds; ``left``: how many entries each has."""

    files: list[Found] = field(default_factory=list)
    folders: dict[PurePath, float] = field(default_factory=dict)
    left: Counter[PurePath] = field(default_factory=Counter)


@contextmanager
def open_folder(root: int, path: PurePath) -> Iterator[int]:
    """A descriptor of the folder at ``path`` below ``root``. Raises OSError, also when a part of the path is a link."""
    folder = os.dup(root)
    try:
        for part in path.parts:
            below = os.open(part, _FOLDER, dir_fd=folder)
            os.close(folder)
            folder = below
        yield folder
    finally:
        os.close(folder)


def scan(root: int, sightings: Sightings, report: Report) -> Scan:
    """What is below the open folder ``root`` and on the same disk; ``report`` is told what cannot be read."""
    seen, disk = Scan(), os.fstat(root).st_dev
    waiting = [PurePath()]
    while waiting:
        path = waiting.pop()
        try:
            with open_folder(root, path) as folder, os.scandir(folder) as entries:
                for entry in entries:
                    seen.left[path] += 1
                    below = _look(entry, path / entry.name, disk, sightings, seen)
                    if below is not None and len(below.parts) < DEEPEST:
                        waiting.append(below)
        except FileNotFoundError:
            pass
        except OSError as error:
            report(str(path), error)
            seen.left[path] += 1  # what is in there is not known
    return seen


def _look(entry: os.DirEntry[str], path: PurePath, disk: int, sightings: Sightings, seen: Scan) -> PurePath | None:
    """Remember an entry; its path if it is a folder to look into."""
    try:
        stat = entry.stat(follow_symlinks=False)
        is_folder = entry.is_dir(follow_symlinks=False)
    except FileNotFoundError:
        return None
    if is_folder:
        if stat.st_dev != disk:
            return None
        seen.folders[path] = sightings.age(path, stat)
        return path
    if not (entry.is_file(follow_symlinks=False) or entry.is_symlink()):
        return None
    mark = (stat.st_ino, stat.st_mtime_ns)
    seen.files.append(Found(path, stat.st_size, sightings.age(path, stat), mark, entry.is_symlink()))
    return None
