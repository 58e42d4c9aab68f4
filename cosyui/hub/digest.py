"""Content digests of downloaded files, and a log of what was verified so that a start need not read gigabytes again."""

from __future__ import annotations

import hashlib
import json
import logging
import re
from pathlib import Path
from typing import Any

logger = logging.getLogger(__name__)

_BLOCK = 1 << 20
_DIGEST = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")


def is_digest(text: str) -> bool:
    """True for 64 hex digits (SHA-256 of the content) or 40 (Git's SHA-1 of a blob)."""
    return _DIGEST.fullmatch(text) is not None


def digest_like(path: Path, example: str) -> str:
    """The digest of the file at ``path`` in the scheme of ``example`` (see `is_digest`)."""
    if len(example) == 64:
        hasher = hashlib.sha256()
    else:
        hasher = hashlib.sha1(f"blob {path.stat().st_size}\0".encode(), usedforsecurity=False)
    with path.open("rb") as stream:
        while block := stream.read(_BLOCK):
            hasher.update(block)
    return hasher.hexdigest()


class VerifiedLog:
    """Remembers size, time and digest of each verified file in a small JSON file; a changed file is read again."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._entries: dict[str, dict[str, Any]] = _load(file)

    def is_intact(self, name: str, path: Path, digest: str | None = None) -> bool:
        """False if the content differs from ``digest`` or from the one noted before; True if nothing is known."""
        entry = self._entries.get(name)
        known = digest or (entry["digest"] if entry else None)
        if known is None:
            return True
        if entry == _entry(path, known):
            return True
        if digest_like(path, known) != known:
            return False
        self.note(name, path, known)
        return True

    def note(self, name: str, path: Path, digest: str) -> None:
        """Note that the file now at ``path`` has ``digest``. A log that cannot be written only costs time later."""
        self._entries[name] = _entry(path, digest)
        try:
            self._file.write_text(json.dumps(self._entries, indent=1), encoding="utf-8")
        except OSError as error:
            logger.warning("cannot note verified files in %s: %s", self._file, error.strerror)


def _entry(path: Path, digest: str) -> dict[str, Any]:
    stat = path.stat()
    return {"size": stat.st_size, "mtime_ns": stat.st_mtime_ns, "digest": digest}


def _load(file: Path) -> dict[str, dict[str, Any]]:
    try:
        entries = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}  # no log yet, or cut short by a crash: the files are read again
    if not isinstance(entries, dict):
        return {}
    return {
        name: entry
        for name, entry in entries.items()
        if isinstance(entry, dict) and is_digest(str(entry.get("digest", "")))
    }
