"""A remark for the user about something that was done or left out: no error, but not to be kept silent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self


@dataclass(frozen=True)
class Notice:
    """``code`` is stable, ``message`` plain English; ``values`` fill the sentence of another language. Pickles."""

    code: str
    message: str
    values: tuple[tuple[str, str | float], ...] = ()

    @classmethod
    def of(cls, code: str, sentence: str, **values: str | float) -> Self:
        """``sentence`` is a format string over ``values``."""
        return cls(code, sentence.format(**values), tuple(values.items()))

    def __str__(self) -> str:
        return self.message
