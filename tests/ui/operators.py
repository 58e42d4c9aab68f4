"""Who asks for the ops tab, and what he may do."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from cosyui.service import rights
from cosyui.settings import Settings

HOSTILE = "<img src=x onerror=alert(1)>"
ADMIN, READER, ADDRESS = "admin-tab", "reader-tab", "10.0.0.1"


class Rights(rights.Rights):
    """Those of a server whose admin password only ``ADMIN`` has given; every action is counted."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(Settings.load({"admin_password": "open sesame"} | settings, {}))
        assert self.unlock(ADMIN, ADDRESS, "open sesame")
        self.checked: list[tuple[str, str]] = []

    def check_action(self, session: str, address: str) -> None:
        self.checked.append((session, address))
        super().check_action(session, address)


def asking(session: str) -> Any:
    return SimpleNamespace(session_hash=session, client=SimpleNamespace(host=ADDRESS), cookies={}, headers={})
