"""How long a text will take to speak, before anything is synthesised: the unit of work of the queue's ETA."""

from __future__ import annotations

import re

CJK_CHARS_PER_SECOND = 4.5
"""Measured rate of Mandarin read speech, characters a second; kana and hangul are close enough."""
WORDS_PER_SECOND = 2.6
"""Measured rate of English read speech."""
LETTERS_PER_SECOND = 14.0
"""For words longer than the average: a long number or URL takes as long as its letters."""
SHORTEST_SECONDS = 0.5

_MARK = re.compile(r"\[[^\]\s]{1,16}\]|<[^>]{1,24}>")
_CJK = re.compile(r"[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\U00020000-\U000323af]")
_WORD = re.compile(r"[^\W_]+(?:['’-][^\W_]+)*")


def speech_seconds(text: str, speed: float = 1.0) -> float:
    """Estimated seconds of speech of ``text`` spoken ``speed`` times as fast as usual; marks count nothing."""
    plain = _MARK.sub(" ", text)
    cjk = len(_CJK.findall(plain))
    words = _WORD.findall(_CJK.sub(" ", plain))
    seconds = cjk / CJK_CHARS_PER_SECOND + sum(
        max(1 / WORDS_PER_SECOND, len(word) / LETTERS_PER_SECOND) for word in words
    )
    return max(SHORTEST_SECONDS, seconds) / speed


class MovingAverage:
    """Exponentially weighted: the newest value has weight ``weight``; ``value`` is None before the first."""

    def __init__(self, weight: float = 0.3) -> None:
        self._weight = weight
        self.value: float | None = None

    def add(self, sample: float) -> None:
        self.value = sample if self.value is None else self.value + self._weight * (sample - self.value)
