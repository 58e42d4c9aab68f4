"""One try at speaking one segment: tokens decoded under watch, rendered, trimmed, levelled, and judged at the end."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cosyui.engine.decode import LengthRule, SilenceFilter
from cosyui.engine.gate import (
    LONGEST_HOLE,
    LengthBand,
    NotFiniteError,
    TokenWatch,
    check_spoken,
    check_wave,
    doubt,
    endless,
)
from cosyui.engine.needs import Decode, Need, NewTokens, Render
from cosyui.engine.render_queue import Rendered
from cosyui.engine.slots import Decoded
from cosyui.engine.token_stream import TokenStream
from cosyui.engine.voice import Voice
from cosyui.model.config import ModelConfig
from cosyui.notice import Notice
from cosyui.speech.prompt_format import SegmentInput
from cosyui.speech.sound.joints import SegmentSound

Samples = NDArray[np.float32]
Run = Generator[Need | Samples, Any, None]
Deadline = Callable[[], float]
"""When the listener of a stream runs dry, on `time.perf_counter`'s clock."""
NOTHING = np.zeros(0, np.float32)
SHORTEST_SECONDS = 0.4
"""No text is spoken in less: of a single word the model would now and then say nothing at all."""


@dataclass(frozen=True)
class Part:
    """A segment, its place in the text (from 1), and the band that its length must be in."""

    number: int
    segment: SegmentInput
    band: LengthBand


@dataclass
class StageSeconds:
    """Seconds from the first to the last token, and of the batches that made its sound."""

    llm: float = 0.0
    flow: float = 0.0
    vocoder: float = 0.0

    def add(self, other: StageSeconds) -> None:
        self.llm += other.llm
        self.flow += other.flow
        self.vocoder += other.vocoder


class Attempt:
    """One try; ``sound`` and ``seed`` are its own. After `run`, ``rest`` waits to go out by `finish`.

    ``doubt``: the remark to be made if this try is delivered; ``delivered``: `run` has given some of it away.
    """

    def __init__(self, part: Part, config: ModelConfig, voice: Voice, sound: SegmentSound, seed: int) -> None:
        self.part = part
        self.config = config
        self.voice = voice
        self.sound = sound
        self.seed = seed
        self.watch = TokenWatch(part.band, config.token_frame_rate, config.silent_tokens)
        self.seconds = StageSeconds()
        self.delivered = False
        self.rest = NOTHING
        self.doubt: Notice | None = None

    @property
    def tokens(self) -> int:
        return len(self.voice.tokens)

    @property
    def decoded_seconds(self) -> float:
        """Of speech, at the speed that is asked for."""
        return self.watch.count / self.watch.rate / self.voice.speed

    @property
    def spoken_seconds(self) -> float:
        """From the first to the last sound, at the model's own speed."""
        return self.sound.spoken_seconds * self.voice.speed

    @property
    def oddness(self) -> float:
        """How far its length is from the expected one, longer or shorter."""
        return abs(math.log(max(self.spoken_seconds, 0.01) / self.part.band.expected))

    def run(self, prompt_speech: Sequence[int], deadline: Deadline, *, long: bool, safe: bool = False) -> Run:
        """Yield needs, and after new tokens or a chunk what can go out, mostly nothing. Raises BadOutputError.

        ``prompt_speech``: the prompt's speech tokens, for the language model; ``deadline`` tells when the listener of a
        stream runs dry; ``safe``: decode in float32.
        """
        rule = self._rule()
        try:
            yield from self._speak(prompt_speech, rule, deadline, long, safe)
        finally:
            self.voice.close()
        check_spoken(self.sound.edges.peak, self.spoken_seconds)
        self.doubt = doubt(
            self.part.number,
            self.part.band,
            self.spoken_seconds,
            self.sound.hole_seconds * self.voice.speed,
            at_limit=self.watch.count >= rule.maximum,
        )

    def finish(self) -> Samples:
        """The last of the segment; this try is the one that counts."""
        return np.concatenate([self.rest, self.sound.finish()])

    def _rule(self) -> LengthRule:
        """How many tokens there may be; no more than the gate would let pass."""
        rule = LengthRule.of(self.config.llm, self.part.segment.spoken_ids)
        if math.isfinite(self.part.band.longest):
            bound = math.floor(self.part.band.longest * self.watch.rate) + 1
            rule = LengthRule(min(rule.minimum, bound), min(rule.maximum, bound))
        return rule.at_least(math.ceil(SHORTEST_SECONDS * self.watch.rate))

    def _speak(self, prompt_speech: Sequence[int], rule: LengthRule, deadline: Deadline, long: bool, safe: bool) -> Run:
        segment, kept = self.part.segment, SilenceFilter(self.config.silent_tokens)
        text_ids = [*segment.prompt_text_ids, *segment.text_ids]
        stream: TokenStream = yield Decode(text_ids, prompt_speech, rule, self.seed, safe)
        began = time.perf_counter()
        try:
            while not (stream.ended and not stream.ready):
                decoded: Decoded = yield NewTokens(stream, deadline() if self.voice.streams else None)
                if decoded.bad:
                    raise NotFiniteError
                for token in decoded.tokens:
                    self.watch(token)
                    if kept(token):
                        self.voice.tokens.append(token)
                self.seconds.llm = time.perf_counter() - began
                if decoded.ended:
                    break
                yield NOTHING
                while (end := self.voice.due()) is not None:
                    fresh = yield from self._render(end, deadline, long, final=False)
                    now = time.perf_counter()
                    yield fresh
                    self._plan_chunk(now - began, deadline() - now)
                    self._listen()
        finally:
            stream.close()
        if not self.tokens:
            check_wave(NOTHING)
        self.rest = yield from self._render(self.tokens, deadline, long, final=True)

    def _render(self, end: int, deadline: Deadline, long: bool, *, final: bool) -> Generator[Render, Rendered, Samples]:
        due = deadline() if self.voice.streams else None
        rendered = yield Render(self.voice, end, final, due, long)
        self.seconds.flow += rendered.flow_seconds
        self.seconds.vocoder += rendered.vocoder_seconds
        check_wave(rendered.samples)
        fresh = self.sound.push(rendered.samples)
        self.delivered = self.delivered or (len(fresh) > 0 and not final)
        return fresh

    def _plan_chunk(self, spent: float, left: float) -> None:
        """Make the next chunk so small that it is there before the listener, who has ``left`` seconds, runs dry.

        ``spent``: seconds since decoding began, for all that was rendered so far.
        """
        schedule = self.voice.schedule
        assert schedule is not None
        done = schedule.offset + schedule.step
        schedule.advance(done * max(left, 0.0) / spent)

    def _listen(self) -> None:
        """Raises BadOutputError when the chunks so far end in a long silence that comes too soon."""
        if self.sound.silent_seconds > LONGEST_HOLE and self.spoken_seconds < self.part.band.shortest:
            raise endless("the voice fell silent before the text was said")
