"""The files that somebody still needs: of unfinished requests, and of takes that stand on an open page."""

from __future__ import annotations

import threading
from pathlib import Path


class InUse:
    """Whoever needs a file holds it under a key of his own, and releases that; from any thread.

    Called, it gives the paths of all that is held: what a purge must leave alone.
    """

    def __init__(self) -> None:
        self._paths: dict[str, Path] = {}
        self._lock = threading.Lock()

    def __call__(self) -> frozenset[Path]:
        with self._lock:
            return frozenset(self._paths.values())

    def hold(self, key: str, path: Path) -> None:
        """In place of what the key held before; also a file that is not there yet."""
        with self._lock:
            self._paths[key] = path

    def release(self, key: str) -> None:
        """An unknown key is fine."""
        with self._lock:
            self._paths.pop(key, None)
