"""Segments to one recording: silence at their edges trimmed, faded, levelled, and joined by the pauses they ask for."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cosyui.engine.request import SAMPLE_RATE
from cosyui.speech.sound.audio_out import FADE_SECONDS, fade
from cosyui.speech.sound.loudness import FRAME_SECONDS, Leveller, frame_powers

Samples = NDArray[np.float32]

HEAD_SECONDS, TAIL_SECONDS = 0.05, 0.1
"""Silence that is kept before and after the speech of a segment: a soft consonant or a breath may be in it."""
BELOW_SPEECH_DB = 35.0
"""What is quieter than the clip's speech by this is silence."""
THRESHOLD_DBFS = (-65.0, -50.0)
"""Bounds of that threshold."""
SOUND_FRAMES = 3
"""Frames in a row above the threshold that make a sound; less is a click, such as a wave may begin with."""

_FRAME = round(FRAME_SECONDS * SAMPLE_RATE)
_FADE = round(FADE_SECONDS * SAMPLE_RATE)


def samples_of(seconds: float) -> int:
    return round(seconds * SAMPLE_RATE)


class Edges:
    """Trims the silence before and after the speech of one segment that comes in pieces; what is inside stays.

    Silence is held back until it is known whether speech follows, and always as much as the fade at the end needs.
    ``threshold`` in dBFS; ``head`` and ``tail`` in samples. Positions in the fields are samples since the start.
    """

    def __init__(self, threshold: float, head: int, tail: int) -> None:
        self.power = 10 ** (threshold / 10)
        self.head, self.tail = head, tail
        self.held = np.zeros(0, np.float32)
        self.offset = 0
        self.scanned = 0
        self.run = 0
        self.first: int | None = None
        self.last = 0
        self.hole = 0
        self.peak = 0.0
        self.faded_in = False
        self.head_silence = self.tail_silence = 0

    @property
    def spoken(self) -> int:
        """Samples from the first to the last sound."""
        return self.last - self.first if self.first is not None else 0

    def push(self, wave: Samples) -> Samples:
        """Add a piece (S,); returns what can go out now."""
        self.held = np.concatenate([self.held, wave])
        self.peak = max(self.peak, float(np.abs(wave).max(initial=0.0)))
        self._scan()
        ready = self.last - _FADE - self.offset
        if ready < 2 * _FADE:
            return np.zeros(0, np.float32)
        return self._release(ready)

    def finish(self) -> Samples:
        """The rest, with its fade-out; empty if the segment was silent."""
        if self.first is None:
            return np.zeros(0, np.float32)
        length = min(len(self.held), self.last + self.tail - self.offset)
        self.tail_silence = self.offset + length - self.last
        return fade(self._release(length), start=False)

    def _scan(self) -> None:
        """Find the sound in the frames that are complete and were not looked at yet."""
        loud = frame_powers(self.held[self.scanned - self.offset :]) >= self.power
        if not len(loud):
            return
        edges = np.flatnonzero(np.diff(loud.astype(np.int8), prepend=0, append=0))
        base, before = self.scanned, self.run
        self.scanned += len(loud) * _FRAME
        self.run = 0
        for start, end in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True):
            run = end - start + (before if start == 0 else 0)  # it may have begun in the last piece
            if run >= SOUND_FRAMES:
                self._sound(base + (end - run) * _FRAME, base + end * _FRAME)
            if end == len(loud):
                self.run = run
        if self.first is None:
            self._drop(self.scanned - self.run * _FRAME - self.head - self.offset)

    def _sound(self, start: int, end: int) -> None:
        """There is sound from ``start`` to ``end``."""
        if self.first is None:
            self.first = start
            self.head_silence = min(self.head, start - self.offset)
            self._drop(start - self.head_silence - self.offset)
        elif start > self.last:
            self.hole = max(self.hole, start - self.last)
        self.last = end

    def _drop(self, count: int) -> None:
        if count > 0:
            self.held = self.held[count:]
            self.offset += count

    def _release(self, length: int) -> Samples:
        out = self.held[:length]
        self._drop(length)
        if not self.faded_in:
            self.faded_in = True
            return fade(out, end=False)
        return out


class Joiner:
    """The state of a recording between its segments. ``clip_level``: of the prompt's speech in dBFS, None if silent."""

    def __init__(self, clip_level: float | None) -> None:
        self.leveller = Leveller(clip_level)
        low, high = THRESHOLD_DBFS
        self.threshold = min(high, max(low, self.leveller.reference - BELOW_SPEECH_DB))
        self.begun = False
        self.pause = 0
        self.tail_silence = 0

    def segment(self, pause: float) -> SegmentSound:
        """The next segment, with ``pause`` seconds wanted after it; one that is dropped unfinished leaves no trace."""
        return SegmentSound(self, samples_of(pause))


class SegmentSound:
    """One segment on its way into the recording. Give it waves (S,) by `push`, then call `finish`."""

    def __init__(self, joiner: Joiner, pause: int) -> None:
        self.joiner = joiner
        self.pause = pause
        # A short pause is shared out: what is kept of the silence around it may not be longer than the pause itself.
        head = min(samples_of(HEAD_SECONDS), joiner.pause // 3) if joiner.begun else samples_of(HEAD_SECONDS)
        tail = min(samples_of(TAIL_SECONDS), pause * 2 // 3) if pause else samples_of(TAIL_SECONDS)
        self.edges = Edges(joiner.threshold, head, tail)
        self.gain = joiner.leveller.segment()
        self.begun = False

    @property
    def spoken_seconds(self) -> float:
        """From the first to the last sound so far."""
        return self.edges.spoken / SAMPLE_RATE

    @property
    def hole_seconds(self) -> float:
        """The longest silence between two sounds so far."""
        return self.edges.hole / SAMPLE_RATE

    @property
    def silent_seconds(self) -> float:
        """Silence since the last sound."""
        return (self.edges.scanned - self.edges.last) / SAMPLE_RATE

    def push(self, wave: Samples) -> Samples:
        """What of the recording can go out now, pause included."""
        return self._out(self.edges.push(wave))

    def finish(self) -> Samples:
        """The last of this segment."""
        out = self._out(self.edges.finish())
        self.gain.close()
        joiner = self.joiner
        joiner.begun, joiner.pause, joiner.tail_silence = True, self.pause, self.edges.tail_silence
        return out

    def _out(self, wave: Samples) -> Samples:
        if not len(wave):
            return wave
        levelled = self.gain(wave)
        first, self.begun = not self.begun, True
        if not (first and self.joiner.begun):
            return levelled
        gap = self.joiner.pause - self.joiner.tail_silence - self.edges.head_silence
        return np.concatenate([np.zeros(max(0, gap), np.float32), levelled])
