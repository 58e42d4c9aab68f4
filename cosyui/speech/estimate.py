"""How long a text takes to speak, before anything is synthesised: for progress, the queue's ETA and the output gate."""

from __future__ import annotations

import re

CJK_CHARS_PER_SECOND = 4.5
"""Measured rate of Mandarin read speech, characters a second; hangul is close enough."""
KANA_PER_SECOND = 7.0
"""A kana is one mora, shorter than a syllable of Mandarin."""
WORDS_PER_SECOND = 2.6
"""Measured rate of English read speech."""
LETTERS_PER_SECOND = 14.0
"""For words longer than the average: a long URL takes as long as its letters."""
SPELLED_SECONDS = 0.3
"""A digit, or a letter of an abbreviation that cannot be read as a word: each has a name of its own."""
MARK_SECONDS = 0.1
"""A sound in brackets: half a pinyin syllable, an English phone, a breath."""
SHORTEST_SECONDS = 0.5

_MARK = re.compile(r"\[[^\]\s]{1,16}\]")
_TAG = re.compile(r"<[^>]{1,24}>")
_KANA = re.compile(r"[\u3040-\u30ff]")
_CJK = re.compile(r"[\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\U00020000-\U000323af]")
_SPELLED = re.compile(r"\d|(?<![^\W_])[B-DF-HJ-NP-TV-Z]{2,5}(?![^\W_])")
_WORD = re.compile(r"[^\W\d_]+(?:['’-][^\W\d_]+)*")


def speech_seconds(text: str, speed: float = 1.0) -> float:
    """Estimated seconds of speech of ``text`` spoken ``speed`` times as fast as usual; tags count nothing."""
    plain, marks = _MARK.subn(" ", _TAG.sub("", text))
    seconds = marks * MARK_SECONDS
    for pattern, rate in ((_KANA, KANA_PER_SECOND), (_CJK, CJK_CHARS_PER_SECOND)):
        plain, count = pattern.subn(" ", plain)
        seconds += count / rate
    seconds += SPELLED_SECONDS * sum(len(piece) for piece in _SPELLED.findall(plain))
    words = _WORD.findall(_SPELLED.sub(" ", plain))
    seconds += sum(max(1 / WORDS_PER_SECOND, len(word) / LETTERS_PER_SECOND) for word in words)
    return max(SHORTEST_SECONDS, seconds) / speed
