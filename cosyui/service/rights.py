"""Who may act on the ops tab: for the time being everyone on this machine."""

from __future__ import annotations

import ipaddress

from cosyui.errors import InputError


class Rights:
    def is_admin(self, session_hash: str, address: str) -> bool:
        try:
            return ipaddress.ip_address(address).is_loopback
        except ValueError:
            return False

    def unlock(self, session_hash: str, address: str, password: str) -> bool:
        return self.is_admin(session_hash, address)

    def lock(self, session_hash: str) -> None: ...

    def check_action(self, session_hash: str, address: str) -> None:
        """Raises CosyuiError ``admin_only``."""
        if not self.is_admin(session_hash, address):
            raise InputError("admin_only", "Only the operator of this machine may do this.")
