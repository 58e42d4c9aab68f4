"""Files of saved voices on their way to a browser: in the server's folder of temporary files, under random paths."""

from __future__ import annotations

import secrets
import shutil
import threading
from collections import OrderedDict
from pathlib import Path

MOST = 200
"""Files at a time; the oldest is deleted first."""


class VoiceCopies:
    """Each goes with its voice. From any thread."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._owners: OrderedDict[Path, str] = OrderedDict()

    def put(self, voice_id: str, name: str, data: bytes) -> Path:
        """Raises OSError."""
        path = self._folder / secrets.token_hex(16) / name
        path.parent.mkdir(parents=True)
        path.write_bytes(data)
        with self._lock:
            self._owners[path] = voice_id
            oldest = list(self._owners)[:-MOST]
            self._delete(oldest)
        return path

    def drop(self, voice_id: str) -> None:
        """Delete all that there is of a voice; what cannot be deleted goes with the other old files."""
        with self._lock:
            self._delete([path for path, owner in self._owners.items() if owner == voice_id])

    def _delete(self, paths: list[Path]) -> None:
        for path in paths:
            del self._owners[path]
            shutil.rmtree(path.parent, ignore_errors=True)
