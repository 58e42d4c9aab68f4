"""The files that somebody still needs: of unfinished requests, of takes on an open page, and of favourites."""

from __future__ import annotations

import threading
from pathlib import Path


class InUse:
    """Whoever needs a file holds it under a key of his own, and releases that; from any thread.

    Called, it gives the paths of all that is held: what a purge must leave alone. It gives the same set until that
    changes.
    """

    def __init__(self) -> None:
        self._paths: dict[str, Path] = {}
        self._held: frozenset[Path] | None = frozenset()
        self._lock = threading.Lock()

    def __call__(self) -> frozenset[Path]:
        with self._lock:
            if self._held is None:
                self._held = frozenset(self._paths.values())
            return self._held

    def hold(self, key: str, path: Path) -> None:
        """In place of what the key held before; also a file that is not there yet."""
        with self._lock:
            self._paths[key], self._held = path, None

    def release(self, key: str) -> None:
        """An unknown key is fine."""
        with self._lock:
            if self._paths.pop(key, None) is not None:
                self._held = None
