"""The words that the model itself reads before every text, and what clients make of them."""

from __future__ import annotations

import re

SYSTEM_PROMPT = "You are a helpful assistant."
"""What the released model reads before every prompt; `prompt_format` puts it there."""

_PREFIX = re.compile(r"(?i)(?:\s*you are a helpful assistant\s*[.。][\s.。,，]*)+")
_MARKED_PREFIX = re.compile(r"(?i)(?:\s*you are a helpful assistant[\s.。,，]*)+")


def strip_prefix(text: str, *, marked: bool) -> tuple[str, bool]:
    """A sanitised text without the model's prompt prefix that a client put before it, and whether there was one.

    A text that is nothing but the prefix stays, unless it was ``marked`` as one by a control token.
    """
    head = (_MARKED_PREFIX if marked else _PREFIX).match(text)
    if head is None or (head.end() == len(text) and not marked):
        return text, False
    return text[head.end() :], True
