"""Deletes what nobody needs any more: old takes, what a crash left behind, empty folders; and keeps a disk quota.

Only what is ours, only below its folder, never what is in use. Links are removed, never followed: every step goes
through an open folder, so that a folder cannot be exchanged for a link meanwhile.
"""

from __future__ import annotations

import errno
import os
import re
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path, PurePath
from typing import Literal

from cosyui.ops.purge_scan import Found, Scan, open_folder, scan
from cosyui.ops.sightings import Sightings, steady_clock

HOUR = 3600.0
LEFTOVER_SECONDS = HOUR
"""From then on a file that is only half written belongs to nobody."""
FRESH_SECONDS = 600.0
"""Somebody may just be about to fetch it: kept also when the quota is exceeded."""
SETTLE_SECONDS = 60.0
"""After its start a machine may still be setting its clock: nothing is old before that."""
MOST_PROBLEMS = 5
DAY_FOLDER = re.compile(r"\d{4}-\d{2}-\d{2}")
TAKE_NAME = re.compile(r"\.?\d{6}-[0-9a-f]{8}\..+")
Protected = Callable[[], Collection[Path]]
Outcome = Literal["done", "gone", "changed", "failed"]


def is_take(path: PurePath) -> bool:
    """Whether a path below the outputs is a take, finished or not, or a folder of a day."""
    day, *name = path.parts or ("",)
    return bool(DAY_FOLDER.fullmatch(day)) and (not name or (len(name) == 1 and bool(TAKE_NAME.fullmatch(name[0]))))


def is_anything(_: PurePath) -> bool:
    """For a folder that is all ours, as that of temporary files."""
    return True


@dataclass(frozen=True)
class Folder:
    """What to delete below ``root``: what ``own`` is true for (given the path below root), when it was not changed for
    ``max_age`` seconds, and the oldest beyond ``quota`` bytes (0: no quota). Links count as own where their folder is.
    """

    root: Path
    max_age: float = 24 * HOUR
    quota: int = 0
    own: Callable[[PurePath], bool] = is_take


@dataclass
class PurgeResult:
    """``kept`` counts files by reason: young, protected, foreign, settling, error. ``bytes`` are those of the deleted
    files, ``over_quota`` those that are still too many; ``problems`` are the first of ``errors`` in words.

    After a dry run: what would have been.
    """

    dry_run: bool = False
    files: int = 0
    bytes: int = 0
    folders: int = 0
    errors: int = 0
    over_quota: int = 0
    seconds: float = 0.0
    kept: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)

    def failed(self, what: Path | str, error: OSError) -> None:
        self.errors += 1
        if len(self.problems) < MOST_PROBLEMS:
            self.problems.append(f"{what}: {os.strerror(error.errno) if error.errno else error}")


class Purge:
    """Make it when the service starts, and let it run soon and often: what is seen of the files tells later how old
    they are.

    ``protected`` gives the files and folders that must stay, at the moment when it is called: it is called before every
    deletion, and must be quick; best it gives the same frozenset while that is true. A file that is being written is
    protected by the name it will have.
    ``clock`` gives steady seconds, ``wall`` seconds since the epoch.
    """

    def __init__(
        self,
        folders: Collection[Folder],
        protected: Protected = frozenset,
        *,
        clock: Callable[[], float] = steady_clock,
        wall: Callable[[], float] = time.time,
    ) -> None:
        for folder in folders:
            if folder.own is is_anything and _is_shared(folder.root):
                raise ValueError(f"{folder.root} is not a folder of our own")
        self._folders = [(folder, Sightings(clock, wall)) for folder in folders]
        self._protected = protected
        self._clock = clock
        self._wall = wall
        self._lock = threading.Lock()

    def run(self, dry_run: bool = False) -> PurgeResult:
        """Purge all folders, one run at a time. Blocks. Raises only what ``protected`` raises."""
        with self._lock:
            result, began = PurgeResult(dry_run), self._clock()
            for folder, sightings in self._folders:
                _FolderRun(folder, sightings, self._protected, self._today(), result).purge()
            result.seconds = self._clock() - began
            return result

    def _today(self) -> str:
        return f"{datetime.fromtimestamp(self._wall()).astimezone():%Y-%m-%d}"


class _FolderRun:
    """One run over one folder."""

    def __init__(
        self, folder: Folder, sightings: Sightings, protected: Protected, today: str, result: PurgeResult
    ) -> None:
        self._folder = folder
        self._sightings = sightings
        self._protected = protected
        self._today = today
        self._result = result
        self._settling = sightings.watched < SETTLE_SECONDS
        self._roots = {folder.root.absolute(), folder.root.resolve()}
        self._kept: dict[PurePath, str] = {}
        self._held: frozenset[Path] = frozenset()
        self._names: frozenset[PurePath] = frozenset()
        self._fd = -1

    def purge(self) -> None:
        try:
            self._fd = os.open(self._folder.root, os.O_RDONLY | os.O_DIRECTORY)
        except FileNotFoundError:
            return
        except OSError as error:
            self._result.failed(self._folder.root, error)
            return
        try:
            self._sightings.look()
            seen = scan(self._fd, self._sightings, self._result.failed)
            self._sightings.looked()
            for found in seen.files:
                self._by_age(found, seen)
            self._by_quota(seen)
            self._result.kept.update(self._kept.values())
            self._empty_folders(seen)
        finally:
            os.close(self._fd)

    def _by_age(self, found: Found, seen: Scan) -> None:
        limit = min(LEFTOVER_SECONDS, self._folder.max_age) if found.is_partial else self._folder.max_age
        if not self._is_own(found):
            self._kept[found.path] = "foreign"
        elif found.age <= limit:
            self._kept[found.path] = "young"
        elif self._is_protected(found.path):
            self._kept[found.path] = "protected"
        elif self._settling:
            self._kept[found.path] = "settling"
        else:
            self._delete(found, seen)

    def _by_quota(self, seen: Scan) -> None:
        if not self._folder.quota:
            return
        ours = [found for found in seen.files if self._kept.get(found.path, "foreign") != "foreign"]
        over = sum(found.size for found in ours) - self._folder.quota
        for found in sorted(ours, key=lambda found: -found.age):
            if over <= 0:
                break
            if self._kept[found.path] == "error" or found.is_partial or found.age <= FRESH_SECONDS:
                continue
            if self._is_protected(found.path):
                continue
            self._delete(found, seen)
            over -= found.size if found.path not in self._kept else 0
        self._result.over_quota += max(0, over)

    def _empty_folders(self, seen: Scan) -> None:
        for path in sorted(seen.folders, key=lambda path: -len(path.parts)):
            if seen.left[path] or seen.folders[path] <= LEFTOVER_SECONDS or self._settling:
                continue
            if path.name == self._today or not self._folder.own(path) or self._is_protected(path):
                continue
            if self._act(path, os.rmdir) == "done":
                self._result.folders += 1
                seen.left[path.parent] -= 1

    def _is_own(self, found: Found) -> bool:
        return self._folder.own(found.path) or (found.is_link and self._folder.own(found.path.parent))

    def _is_protected(self, path: PurePath) -> bool:
        """By its own name, that of its take, or that of a folder it is in."""
        held = frozenset(self._protected())
        if held is not self._held:  # there may be thousands of them, for each file that is looked at
            self._held, self._names = held, self._names_of(held)
        return _take(path) in self._names or not self._names.isdisjoint((path, *path.parents))

    def _names_of(self, held: frozenset[Path]) -> frozenset[PurePath]:
        names: set[PurePath] = set()
        for given in map(Path.absolute, held):
            for root in self._roots:
                if given.is_relative_to(root):
                    below = given.relative_to(root)
                    names |= {below, _take(below)}
        return frozenset(names)

    def _delete(self, found: Found, seen: Scan) -> None:
        outcome = self._act(found.path, os.unlink, found.mark)
        if outcome in ("changed", "failed"):
            self._kept[found.path] = "young" if outcome == "changed" else "error"
            return
        self._kept.pop(found.path, None)
        seen.left[found.path.parent] -= 1
        if outcome == "done":
            self._result.files += 1
            self._result.bytes += found.size

    def _act(self, path: PurePath, act: Callable[..., None], mark: tuple[int, int] | None = None) -> Outcome:
        """Do it, or see whether it could be done. ``mark``: not when it is another file by now."""
        try:
            with open_folder(self._fd, path.parent) as folder:
                stat = os.stat(path.name, dir_fd=folder, follow_symlinks=False)
                if mark is not None and mark != (stat.st_ino, stat.st_mtime_ns):
                    return "changed"
                if not self._result.dry_run:
                    act(path.name, dir_fd=folder)
        except FileNotFoundError:
            return "gone"
        except OSError as error:
            if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
                return "changed"
            self._result.failed(self._folder.root / path, error)
            return "failed"
        return "done"


def _take(path: PurePath) -> PurePath:
    """A path without its endings: equal for all files of one take, also for one that is being written."""
    return path.parent / path.name.lstrip(".").partition(".")[0]


def _is_shared(root: Path) -> bool:
    """A folder where others keep things, too."""
    real = root.resolve()
    shared = (Path.home(), Path.cwd(), Path(tempfile.gettempdir()).resolve(), Path(real.anchor))
    return any(place.is_relative_to(real) for place in shared)
