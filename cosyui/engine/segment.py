"""One try at speaking one segment: tokens decoded under watch, rendered, trimmed, levelled, and judged at the end."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cosyui.engine.decode import LengthRule, Sampler, SilenceFilter, decode, input_rows
from cosyui.engine.gate import LONGEST_HOLE, LengthBand, TokenWatch, check_spoken, check_wave, doubt, endless
from cosyui.engine.render import ChunkStream, Renderer
from cosyui.model.cosyvoice3 import CosyVoice3
from cosyui.notice import Notice
from cosyui.speech.prompt_format import SegmentInput
from cosyui.speech.sound.joints import SegmentSound

Samples = NDArray[np.float32]
NOTHING = np.zeros(0, np.float32)
SHORTEST_SECONDS = 0.4
"""No text is spoken in less: of a single word the model would now and then say nothing at all."""


@dataclass(frozen=True)
class Part:
    """A segment, its place in the text (from 1), and the band that its length must be in."""

    number: int
    segment: SegmentInput
    band: LengthBand


class WholeSegment:
    """The interface of `ChunkStream` for a segment that is rendered in one piece, when all its tokens are there."""

    def __init__(self, renderer: Renderer, speed: float) -> None:
        self.renderer = renderer
        self.speed = speed
        self.tokens: list[int] = []

    def push(self, tokens: Sequence[int]) -> list[Tensor]:
        self.tokens += tokens
        return []

    def finish(self) -> Tensor:
        return self.renderer.whole(self.tokens, self.speed)


class Attempt:
    """One try; ``sound`` and ``seed`` are its own. After `run`, ``rest`` waits to go out by `finish`.

    ``doubt``: the remark to be made if this try is delivered; ``delivered``: `run` has given some of it away.
    """

    def __init__(
        self,
        part: Part,
        model: CosyVoice3,
        renderer: Renderer,
        sound: SegmentSound,
        seed: int,
        speed: float,
        stream: bool,
    ) -> None:
        self.part = part
        self.model = model
        self.renderer = renderer
        self.sound = sound
        self.speed = speed
        self.voice = ChunkStream(renderer) if stream else WholeSegment(renderer, speed)
        self.sampler = Sampler(model.llm.config.sampling, seed)
        self.watch = TokenWatch(part.band, model.config.token_frame_rate, model.config.silent_tokens)
        self.delivered = False
        self.rest = NOTHING
        self.doubt: Notice | None = None

    @property
    def tokens(self) -> int:
        return len(self.voice.tokens)

    @property
    def decoded_seconds(self) -> float:
        """Of speech, at the speed that is asked for."""
        return self.watch.count / self.watch.rate / self.speed

    @property
    def spoken_seconds(self) -> float:
        """From the first to the last sound, at the model's own speed."""
        return self.sound.spoken_seconds * self.speed

    @property
    def oddness(self) -> float:
        """How far its length is from the expected one, longer or shorter."""
        return abs(math.log(max(self.spoken_seconds, 0.01) / self.part.band.expected))

    def run(self) -> Iterator[Samples]:
        """Yield after each decode step what can go out, mostly nothing. Raises BadOutputError."""
        rule = LengthRule.of(self.model.llm.config, self.part.segment.spoken_ids)
        rule = rule.at_least(math.ceil(SHORTEST_SECONDS * self.watch.rate))
        kept = SilenceFilter(self.model.config.silent_tokens)
        for token in self._decode(rule):
            self.watch(token)
            out = [self._sound(wave) for wave in self.voice.push([token] if kept(token) else [])]
            self._listen()
            fresh = np.concatenate([NOTHING, *out])
            self.delivered = self.delivered or len(fresh) > 0
            yield fresh
        if not self.tokens:
            check_wave(torch.empty(0))
        self.rest = self._sound(self.voice.finish())
        check_spoken(self.sound.edges.peak, self.spoken_seconds)
        at_limit = self.watch.count >= rule.maximum
        self.doubt = doubt(
            self.part.number,
            self.part.band,
            self.spoken_seconds,
            self.sound.hole_seconds * self.speed,
            at_limit=at_limit,
        )

    def finish(self) -> Samples:
        """The last of the segment; this try is the one that counts."""
        return np.concatenate([self.rest, self.sound.finish()])

    def _decode(self, rule: LengthRule) -> Iterator[int]:
        """Speech tokens, their time on the clock."""
        llm, prompt, segment = self.model.llm, self.renderer.prompt, self.part.segment
        speech = prompt.speech_tokens.tolist() if segment.uses_prompt_speech else []
        rows = input_rows(llm, (*segment.prompt_text_ids, *segment.text_ids), speech)
        steps = decode(llm, rows, rule, self.sampler)
        while True:
            with self.renderer.clock.stage("llm"):
                token = next(steps, None)
            if token is None:
                return
            yield token

    def _sound(self, wave: Tensor) -> Samples:
        check_wave(wave)
        return self.sound.push(wave.cpu().numpy())

    def _listen(self) -> None:
        """Raises BadOutputError when the chunks so far end in a long silence that comes too soon."""
        if self.sound.silent_seconds > LONGEST_HOLE and self.spoken_seconds < self.part.band.shortest:
            raise endless("the voice fell silent before the text was said")
