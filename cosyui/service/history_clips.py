"""The clips of past takes: each once, as it was uploaded, in a folder beside the history. Blocking; raises OSError."""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

_NAME = re.compile(r"[0-9a-f]{64}")
_NEW = ".new-"


class HistoryClips:
    """Files are named by the SHA-256 of what is in them; the folder is made with the first."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def keep(self, data: bytes) -> tuple[str, bool]:
        """The clip's name, and whether it is new."""
        name = hashlib.sha256(data).hexdigest()
        if self.read(name) is not None:
            return name, False
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle, new = tempfile.mkstemp(prefix=_NEW, dir=self.folder)  # 0600
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
            Path(new).replace(self.folder / name)
        except OSError:
            with suppress(OSError):
                Path(new).unlink()
            raise
        return name, True

    def read(self, name: str) -> bytes | None:
        """None where it is gone, or is not what was kept."""
        if not _NAME.fullmatch(name):
            return None
        try:
            data = (self.folder / name).read_bytes()
        except FileNotFoundError:
            return None
        return data if hashlib.sha256(data).hexdigest() == name else None

    def remove(self, name: str) -> None:
        if _NAME.fullmatch(name):
            (self.folder / name).unlink(missing_ok=True)

    def sizes(self) -> dict[str, int]:
        """Bytes by name."""
        if not self.folder.is_dir():
            return {}
        with os.scandir(self.folder) as found:
            return {entry.name: entry.stat().st_size for entry in found if _NAME.fullmatch(entry.name)}

    def sweep(self, used: Collection[str], before: float) -> None:
        """Delete what no take uses and was written before that time, and what was never finished."""
        if not self.folder.is_dir():
            return
        with os.scandir(self.folder) as found:
            for entry in found:
                ours = _NAME.fullmatch(entry.name) and entry.name not in used and entry.stat().st_mtime < before
                if ours or entry.name.startswith(_NEW):
                    Path(entry).unlink(missing_ok=True)
