"""What is spoken under load: sentences of ordinary words, in the voices of recorded clips. Needs no torch."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

CLIPS = Path(__file__).parents[1] / "assets" / "evaluation"
CLIPS_SAY = "This is what somebody says in the clip that comes with it."
# One id each, with the released tokenizer and with that of a random checkpoint; no numbers, which are read otherwise.
_WORDS = (
    "the of and to in is that it was for on as with be at by this had not but from have an they which you were "
    "all her she there would their we him been has when who will no more if out so said what its about than into "
    "them can only other time new some could these may then do any like my now over such our man me even most "
    "made after also did many"
)
WORDS = tuple(_WORDS.split())


def sentence(source: random.Random, words: int) -> str:
    """Of half to one and a half times so many words."""
    count = max(1, round(words * source.uniform(0.5, 1.5)))
    return spoken(source, count)


def spoken(source: random.Random, count: int) -> str:
    """A sentence of ``count`` words."""
    return " ".join(source.choice(WORDS) for _ in range(count)).capitalize() + "."


def percentile(ordered: Sequence[float], share: float) -> float:
    """The value that ``share`` of them do not exceed."""
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
