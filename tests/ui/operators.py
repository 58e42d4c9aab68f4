"""Who asks for the ops tab, and what he may do."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from cosyui.errors import InputError

HOSTILE = "<img src=x onerror=alert(1)>"


class Rights:
    """Only the ``admin`` session may; every action is counted."""

    def __init__(self) -> None:
        self.checked: list[tuple[str, str]] = []

    def is_admin(self, session: str, address: str) -> bool:
        return session == "admin"

    def check_action(self, session: str, address: str) -> None:
        self.checked.append((session, address))
        if session != "admin":
            raise InputError("admin_only", f"Not you, {HOSTILE}.")


def asking(session: str) -> Any:
    return SimpleNamespace(session_hash=session, client=SimpleNamespace(host="10.0.0.1"), cookies={}, headers={})
