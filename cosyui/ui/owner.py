"""Whose things are shown on a page: a login's, or those of a browser, which keeps a random name for it."""

from __future__ import annotations

import re
import secrets
from typing import Any

import gradio as gr

OWNER_KEY = "cosyui_owner"
"""In the browser's storage, where it outlives a reload and the server."""
_NAME = re.compile(r"[0-9a-f]{32}")


def owner_state() -> gr.BrowserState:
    """Made inside of the Blocks; `drawn` fills it when the page is opened."""
    return gr.BrowserState("", storage_key=OWNER_KEY, secret=OWNER_KEY)


def drawn(browser_state: Any) -> str:
    """What the browser has already, or a new name that nobody guesses."""
    return browser_state if _is_name(browser_state) else secrets.token_hex(16)


def owner_of(request: gr.Request, browser_state: Any) -> str:
    """The same for the same login, or browser; of a browser that keeps nothing, for its tab. To be stored hashed only.

    What a browser sends is its own word: only one with a name of our shape is somebody.
    """
    if request.username:
        return f"user:{request.username}"
    return f"browser:{browser_state}" if _is_name(browser_state) else f"tab:{request.session_hash}"


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and bool(_NAME.fullmatch(value))
