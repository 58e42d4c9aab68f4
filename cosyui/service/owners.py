"""Whose something is, where it is stored."""

from __future__ import annotations

import hashlib


def owner_hash(kind: str, name: str) -> str:
    """What is stored of an owner: the same for the same ``name``, which is not."""
    return f"{kind}-{hashlib.sha256(name.encode('utf-8', 'replace')).hexdigest()[:32]}"
