"""Text that arrives in pieces, as a language model writes it, in parts that can be spoken before the rest is there."""

from __future__ import annotations

import re
from dataclasses import dataclass

from cosyui.speech.estimate import speech_seconds
from cosyui.speech.text.passages import PARAGRAPH_PAUSE, SENTENCE_PAUSE
from cosyui.speech.text.prepare import PAUSES
from cosyui.speech.text.screen import has_speech
from cosyui.speech.text.split import SplitLimits, last_cut, sentence_ends, split

FIRST_SECONDS, NEXT_SECONDS = 1.0, 4.0
"""Speech of a part at least: of the first, which somebody waits for, and of the others, which sound better longer."""
_LINE_END = re.compile(r"\n\s*(?=\S)")
_PARAGRAPH = re.compile(r"\n\s*\n")
# A full stop that may belong to a word: Mr. Bell, J. S. Bach, 5 p.m. today, 2. Second.
_UNSURE = re.compile(r"\b(?:[A-Z][a-z]{0,2}|\d{1,2}|[a-zA-Z]\.[a-zA-Z]|vs)\.$")


@dataclass(frozen=True)
class Part:
    """Whole sentences where there are any; ``pause`` seconds of silence are wanted before what follows."""

    text: str
    pause: float


class Arriving:
    """`add` pieces of a text; the parts are the same however it is cut into pieces. A part has ``longest`` characters

    at most, and something to speak; signs between parts that have no sound are left away.
    """

    def __init__(self, longest: int) -> None:
        self._longest = longest
        self._rest = ""
        self._wanted = FIRST_SECONDS

    def add(self, piece: str) -> list[Part]:
        """The parts that are complete with it: the next sentence, or the next line, has begun."""
        self._rest = (self._rest + piece).lstrip()
        parts: list[Part] = []
        while (end := self._end()) is not None:
            parts += self._cut(end)
        return parts

    def flush(self) -> list[Part]:
        """What is left, as if the text ended here."""
        return self._cut(len(self._rest)) if self._rest else []

    def _end(self) -> int | None:
        """Where the next part ends; known once it does not depend any more on what is still to come."""
        window = self._rest[: self._longest + 1]
        lines = (match.end() for match in _LINE_END.finditer(window))
        for end in sorted({*sentence_ends(window), *lines}):
            head = window[:end].rstrip()
            if has_speech(head) and not _UNSURE.search(head) and speech_seconds(head) >= self._wanted:
                return end
        if len(window) <= self._longest:
            return None
        return len(split(window, len, SplitLimits(max_tokens=self._longest))[0])

    def _cut(self, end: int) -> list[Part]:
        head, self._rest = self._rest[:end], self._rest[end:]
        text = head.strip()
        gap = head[len(head.rstrip()) :] + self._rest[: len(self._rest) - len(self._rest.lstrip())]
        self._rest = self._rest.lstrip()
        if not has_speech(text):
            return []
        self._wanted = NEXT_SECONDS
        if _PARAGRAPH.search(gap):
            return [Part(text, PARAGRAPH_PAUSE)]
        return [Part(text, SENTENCE_PAUSE if "\n" in gap else PAUSES[last_cut(text)])]
