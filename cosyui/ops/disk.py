"""How much of a disk a folder takes, and how much is left."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class DiskUse:
    """Bytes: of the files in a folder, free for us on its disk, and of the whole disk."""

    used: int
    free: int
    total: int


def disk_use(root: Path) -> DiskUse:
    """Of the folder ``root`` with all below it; links count as themselves, what vanishes meanwhile does not count.

    Blocks for as long as it takes to look at every file. Raises OSError when ``root`` is not there.
    """
    disk = shutil.disk_usage(root)
    return DiskUse(_bytes(root), disk.free, disk.total)


def _bytes(folder: Path) -> int:
    total, waiting = 0, [os.fspath(folder)]
    while waiting:
        with suppress(OSError), os.scandir(waiting.pop()) as entries:
            for entry in entries:
                with suppress(OSError):
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
                    else:
                        total += entry.stat(follow_symlinks=False).st_size
    return total
