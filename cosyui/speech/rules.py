"""What the reading rules of both languages share: the form of a rule, addresses, and how rules are applied."""

from __future__ import annotations

import re
from collections.abc import Callable

Rule = tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]]
"""A pattern and what it becomes."""

URL = r"(?:https?://|www\.)[A-Za-z0-9./?=&%#_~:+@-]*[A-Za-z0-9/=]"
MAIL = r"(?<![A-Za-z0-9._%+-])[A-Za-z0-9._%+-]{1,64}@[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+"
LONG_URL = 40
"""Characters beyond which an address is named, not read out."""


def apply(text: str, rules: tuple[Rule, ...]) -> str:
    """One rule after another over the whole text."""
    for pattern, replacement in rules:
        text = pattern.sub(replacement, text)
    return text


def apply_outside(text: str, kept: re.Pattern[str], rules: tuple[Rule, ...]) -> str:
    """The rules over the stretches between matches of ``kept``, which stay as they are."""
    pieces: list[str] = []
    start = 0
    for match in kept.finditer(text):
        pieces += [apply(text[start : match.start()], rules), match.group()]
        start = match.end()
    return "".join([*pieces, apply(text[start:], rules)])
