"""A folder for temporary files that is the server's alone, and the end of those that killed servers left behind."""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from cosyui.errors import SetupError
from cosyui.ops.logs import log

logger = logging.getLogger(__name__)

PREFIX = "cosyui-"
LOCK = ".lock"


@contextlib.contextmanager
def scratch_folder() -> Iterator[Path]:
    """Made in the system's place for such folders, for this user only; deleted afterwards.

    A lock in it tells that its owner lives: the system lets go of it when a process ends, however that came.

    Raises:
        SetupError: ``temporary_not_writable``.
    """
    _sweep()
    try:
        folder = Path(tempfile.mkdtemp(prefix=PREFIX))
        lock = _locked(folder)
    except OSError as error:
        message = f"No temporary folder can be made in {tempfile.gettempdir()} ({error.strerror}). Set TMPDIR."
        raise SetupError("temporary_not_writable", message) from error
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def _locked(folder: Path) -> int:
    """The lock appears in its place only when it is held: nobody can take the folder for a dead one's."""
    new = folder / f"{LOCK}-new"
    lock = os.open(new, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    new.rename(folder / LOCK)
    return lock


def _sweep() -> None:
    """Delete the folders whose owner is gone. Those of other users, links, and what has no lock are left alone."""
    with contextlib.suppress(OSError):
        for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
            if not folder.is_symlink() and _is_deserted(folder):
                shutil.rmtree(folder, ignore_errors=True)
                log(logger, logging.INFO, "leftovers_deleted", folder=folder.name)


def _is_deserted(folder: Path) -> bool:
    try:
        if folder.stat().st_uid != os.getuid():
            return False
        lock = os.open(folder / LOCK, os.O_RDWR | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(lock)
    return True
