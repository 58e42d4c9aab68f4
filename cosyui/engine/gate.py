"""The output gate: whether what the network made of a segment can be what its text says.

Two verdicts. A broken segment (nothing, silent, not finite, without end) never leaves the engine. A doubtful one has an
odd length: it is made once more, and if that is no better it is delivered with a remark.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cosyui.errors import EngineError
from cosyui.notice import Notice
from cosyui.speech.estimate import speech_seconds

SILENT_PEAK = 1e-3
"""A segment whose loudest sample stays below this (-60 dBFS) is not speech."""
SHORTEST_SOUND = 0.12
"""Seconds; less than the shortest syllable is a click or a breath."""
BAND = (0.5, 2.5)
"""Speech of this many times the expected length is plausible. Good takes of the embedded voice: 0.6 to 1.7."""
SHORT_TEXT_SECONDS = (0.2, 4.0)
"""What a text of a word or two (up to a second) may take: the estimate says little about a drawn-out "well"."""
LEAK_FROM = 1.6
"""From this ratio on, a surplus as long as the clip's transcript is taken for the transcript."""
LEAK_SHARE = (0.7, 1.4)
"""Surplus over the transcript's expected length that looks like the transcript spoken along."""
WATCHED_SECONDS = 2.0
"""Stretch in which the tokens of endless repetition or silence are looked for."""
LONGEST_PERIOD = 1.0
"""Seconds of the longest pattern whose repetition is noticed."""
SAME_SHARE = 0.8
"""Share of tokens that equal the one a period before. Good takes: below 0.1, chance being 1 in thousands."""
FEW_SOUNDS = 8
"""At most so many different tokens in the stretch mean a stuck sound. Good takes: over 40."""
LONGEST_HOLE = 3.0
"""Seconds of silence inside a segment; longer ones no text asks for."""


class BadOutputError(EngineError):
    """A segment is broken; the message is what was seen, as the end of a sentence."""

    def __init__(self, code: str, seen: str) -> None:
        super().__init__(code, seen)


class NotFiniteError(BadOutputError):
    """A logit of the language model was not finite: half precision could not hold it."""

    def __init__(self) -> None:
        super().__init__("output_bad", "the numbers of the language model were not finite")


def endless(seen: str) -> BadOutputError:
    """The model would not have stopped by itself."""
    return BadOutputError("output_endless", seen)


def bad(seen: str) -> BadOutputError:
    return BadOutputError("output_bad", seen)


@dataclass(frozen=True)
class LengthBand:
    """Seconds of speech that a text may take, at the model's own speed. ``transcript`` is 0 if none can leak."""

    expected: float
    shortest: float
    longest: float
    transcript: float

    @classmethod
    def of(cls, text: str, transcript: str = "") -> LengthBand:
        """The band of a segment's text next to the transcript that stands before it in the model's input."""
        expected = speech_seconds(text)
        brief, slow = SHORT_TEXT_SECONDS
        shortest = brief if expected < 1.0 else BAND[0] * expected
        return cls(expected, shortest, max(slow, BAND[1] * expected), speech_seconds(transcript) if transcript else 0.0)

    @classmethod
    def any_length(cls) -> LengthBand:
        """For random weights, whose speech has nothing to do with the text."""
        return cls(1.0, 0.0, math.inf, 0.0)

    def looks_leaked(self, seconds: float) -> bool:
        """Whether a length is that of the text and the transcript together."""
        surplus = seconds - self.expected
        low, high = (share * self.transcript for share in LEAK_SHARE)
        return seconds > LEAK_FROM * self.expected and self.transcript > 0 and low <= surplus <= high


class TokenWatch:
    """Sees the speech tokens of one segment as they are decoded, and stops decoding that will not end by itself.

    ``rate``: tokens a second. ``silent``: ids that sound like silence, if they are known.
    """

    def __init__(self, band: LengthBand, rate: float, silent: Collection[int] = ()) -> None:
        self.band = band
        self.rate = rate
        self.silent = silent
        self.count = 0
        self.silence = 0
        self.size = round(WATCHED_SECONDS * rate)
        self.periods = round(LONGEST_PERIOD * rate)
        self.recent: deque[int] = deque(maxlen=self.size + self.periods)
        self.same = [deque[bool](maxlen=self.size) for _ in range(self.periods)]
        self.hits = [0] * self.periods

    def __call__(self, token: int) -> None:
        """Take the next token. Raises BadOutputError ``output_endless``."""
        self.count += 1
        seconds = self.count / self.rate
        if seconds > self.band.longest:
            raise endless(self._too_long(seconds))
        self.silence = self.silence + 1 if token in self.silent else 0
        if self.silence > LONGEST_HOLE * self.rate:
            raise endless(f"the voice fell silent for {LONGEST_HOLE:g} seconds")
        self._compare(token)
        self.recent.append(token)
        if self.count < self.size or self.silence:
            return
        if max(self.hits) >= SAME_SHARE * self.size:
            raise endless("the same sounds came over and over")
        if len(set(list(self.recent)[-self.size :])) <= FEW_SOUNDS:
            raise endless("the voice got stuck in one sound")

    def _compare(self, token: int) -> None:
        """Keep count, for every period, of the tokens that equal the one a period before."""
        for index, same in enumerate(self.same):
            period = index + 1
            equal = len(self.recent) >= period and self.recent[-period] == token
            if len(same) == self.size:
                self.hits[index] -= same[0]
            same.append(equal)
            self.hits[index] += equal

    def _too_long(self, seconds: float) -> str:
        seen = f"it ran on for more than {seconds:.0f} seconds, where about {self.band.expected:.0f} were expected"
        return f"{seen}; perhaps the words of the clip were spoken too" if self.band.looks_leaked(seconds) else seen


def check_wave(wave: NDArray[np.float32]) -> None:
    """Raises BadOutputError unless ``wave`` (S,) is finite and not empty."""
    if not len(wave):
        raise bad("the model stopped before it said anything")
    if not np.isfinite(wave).all():
        raise bad("the sound was not finite")


def check_spoken(peak: float, seconds: float) -> None:
    """Raises BadOutputError for a whole segment with this ``peak`` and these ``seconds`` of sound between its edges."""
    if peak < SILENT_PEAK:
        raise bad("the sound was silent")
    if seconds < SHORTEST_SOUND:
        raise bad("the model stopped before it said anything")


def doubt(part: int, band: LengthBand, seconds: float, hole: float, *, at_limit: bool) -> Notice | None:
    """The remark about a segment that is not broken but odd, or None. Seconds at the model's own speed.

    ``hole`` is the longest silence inside; ``at_limit``: decoding ended at the most tokens that the text may have.
    """
    if at_limit and math.isfinite(band.longest):
        return Notice.of("length_limit", "Part {part} reached its length limit: it may run on or be cut.", part=part)
    if hole > LONGEST_HOLE:
        sentence = "Part {part} has a silence of {seconds:.1f} s inside."
        return Notice.of("long_silence", sentence, part=part, seconds=hole)
    if seconds < band.shortest:
        sentence = (
            "Part {part} is only {seconds:.1f} s long, about {expected:.1f} s were expected: words may be missing."
        )
        return Notice.of("length_short", sentence, part=part, seconds=seconds, expected=band.expected)
    if band.looks_leaked(seconds):
        sentence = "Part {part} is {seconds:.1f} s long: perhaps the words of the clip were spoken too."
        return Notice.of("length_leak", sentence, part=part, seconds=seconds)
    return None
