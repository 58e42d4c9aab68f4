"""One request on its way through the network: everything it owns, and the events it makes step by step."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cosyui.engine.flow_runner import FlowRunner
from cosyui.engine.gate import BadOutputError, LengthBand, NotFiniteError
from cosyui.engine.needs import Aside, Need
from cosyui.engine.prompts import PromptCache
from cosyui.engine.render import PromptFeatures
from cosyui.engine.request import (
    SAMPLE_RATE,
    AudioChunk,
    Event,
    Finished,
    Mode,
    Progress,
    RequestStats,
    Started,
    SynthesisRequest,
)
from cosyui.engine.segment import Attempt, Part, StageSeconds
from cosyui.engine.vocoder_runner import VocoderRunner
from cosyui.engine.voice import Voice
from cosyui.errors import EngineError
from cosyui.model.config import ModelConfig
from cosyui.notice import Notice
from cosyui.speech.prompt_format import SegmentInput, TextFrontend
from cosyui.speech.sound.audio_out import to_pcm16
from cosyui.speech.sound.joints import Joiner
from cosyui.speech.sound.loudness import speech_level

SEED_STRIDE = 1_000_003
"""Distance between the seeds of a request's segments and retries (prime)."""
MAX_TRIES = 2
SHORT_TEXT_CHARS = 400
"""A text of so many characters is made ready for the model in a few milliseconds."""
MAX_DOUBTS = 5
"""So many remarks about single segments; a long job with more of them says how many."""


Steps = Generator[Need | Event | None, Any, None]


@dataclass(frozen=True)
class Studio:
    """What every take of an engine works with."""

    config: ModelConfig
    frontend: TextFrontend
    prompts: PromptCache
    flow: FlowRunner
    vocoder: VocoderRunner
    precision: str


@dataclass
class Take:
    """State of one request. `events` does the work; closing the generator frees all of it.

    ``at_border``: the last event ended a segment, so that other work may come in between. ``began``: on
    `time.perf_counter`'s clock; ``aside``: seconds for which it was put aside since then.
    """

    request: SynthesisRequest
    studio: Studio
    began: float = field(default_factory=time.perf_counter)
    aside: float = 0.0
    at_border: bool = False
    segment_start: float = 0.0
    first_chunk: float = 0.0
    text_seconds: float = 0.0
    prompt_seconds: float = 0.0
    spent: StageSeconds = field(default_factory=StageSeconds)
    tokens: int = 0
    samples: int = 0
    chunks: int = 0
    retries: int = 0
    redone: int = 0
    warnings: list[Notice] = field(default_factory=list)
    doubts: list[Notice] = field(default_factory=list)
    parts: list[tuple[int, int]] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        """That it was worked on."""
        return time.perf_counter() - self.began - self.aside

    def events(self) -> Steps:
        """Yield events and needs, None after other steps. Raises CosyuiError when the take fails."""
        request, config = self.request, self.studio.config
        segments, warnings = yield from self._text()
        self.warnings += warnings
        if request.mode is Mode.INSTRUCT and not config.instruct_supported:
            sentence = "This model does not follow instructions: the text is spoken as usual."
            self.warnings.append(Notice.of("instruction_ignored", sentence))
        yield from self._border(Started(request.id, len(segments)))
        prompt = yield from self._prompt()
        joiner = Joiner(speech_level(request.prompt.samples, request.prompt.sample_rate))
        spoken_before = {Mode.ZERO_SHOT: request.prompt.transcript, Mode.INSTRUCT: request.instruction}
        for index, segment in enumerate(segments):
            band = LengthBand.of(segment.text, spoken_before.get(request.mode, ""))
            if config.untrained:
                band = LengthBand.any_length()
            part = Part(index + 1, segment, band)
            try:
                chosen = yield from self._best_try(part, prompt, joiner)
            except BadOutputError as error:
                raise self._failure(error, part, len(segments)) from error
            self.tokens += chosen.tokens
            if chosen.doubt is not None:
                self.doubts.append(chosen.doubt)
            chunk = self._chunk(chosen.finish())
            self.parts.append((self.samples, len(segment.text)))
            yield from self._border(chunk)
        yield Finished(request.id, self._stats(len(segments)))

    def _text(self) -> Generator[Need, Any, tuple[list[SegmentInput], tuple[Notice, ...]]]:
        """The segments; a long text is prepared aside, so that nobody's stream waits for it."""
        began = self.seconds
        request, frontend = self.request, self.studio.frontend
        if len(request.text) > SHORT_TEXT_CHARS:
            segments, warnings = yield Aside(lambda: frontend.segments(request))
        else:
            segments, warnings = frontend.segments(request)
        self.text_seconds = self.seconds - began
        return segments, warnings

    def _prompt(self) -> Generator[Need, PromptFeatures, PromptFeatures]:
        began = self.seconds
        clip, prompts = self.request.prompt, self.studio.prompts
        prompt = prompts.known(clip)
        if prompt is None:
            prompt = yield Aside(lambda: prompts(clip))
        self.prompt_seconds = self.seconds - began
        return prompt

    def _best_try(
        self, part: Part, prompt: PromptFeatures, joiner: Joiner
    ) -> Generator[Need | Event | None, Any, Attempt]:
        """Make a segment, and once more by another seed if it is broken or doubtful and nothing of it was heard yet.

        Where a number of the language model was not finite, it is the same seed in float32 instead.

        Returns the try to deliver: of two doubtful ones that whose length is less odd. Raises BadOutputError.
        """
        request, studio = self.request, self.studio
        stream = request.stream and request.speed == 1.0
        speech = prompt.speech_tokens.tolist() if part.segment.uses_prompt_speech else []
        problem: BadOutputError | None = None
        tries: list[Attempt] = []
        safe = False
        for number in range(MAX_TRIES):
            seed = request.seed + SEED_STRIDE * (MAX_TRIES * (part.number - 1) + (0 if safe else number))
            voice = Voice(studio.flow, studio.vocoder, prompt, stream=stream, speed=request.speed)
            attempt = Attempt(part, studio.config, voice, joiner.segment(part.segment.pause), seed)
            if number:
                self.retries += 1
                yield self._progress(attempt, redone=True)
            try:
                yield from self._run(attempt, speech, redone=number > 0, safe=safe)
            except BadOutputError as error:
                if attempt.delivered:
                    raise
                problem = error
                safe = isinstance(error, NotFiniteError)
                continue
            finally:
                self.spent.add(attempt.seconds)
                self.redone += voice.safe
            tries.append(attempt)
            if attempt.doubt is None or attempt.delivered:
                return attempt
        if not tries:
            assert problem is not None
            raise problem
        return min(tries, key=lambda attempt: attempt.oddness)

    def _run(self, attempt: Attempt, speech: list[int], *, redone: bool, safe: bool) -> Steps:
        """The needs and chunks of a try as far as they come before its end, and its progress once a second."""
        told, answer = 0, None
        run = attempt.run(speech, self._deadline, long=self.request.long, safe=safe)
        with contextlib.closing(run):
            while True:
                try:
                    step = run.send(answer)
                except StopIteration:
                    return
                answer = None
                if not isinstance(step, np.ndarray):
                    answer = yield step
                elif len(step):
                    yield self._chunk(step)
                elif int(attempt.decoded_seconds) > told:
                    told = int(attempt.decoded_seconds)
                    yield self._progress(attempt, redone=redone)
                else:
                    yield None

    def _deadline(self) -> float:
        """When the listener has heard all that was delivered; now, if that is nothing yet."""
        heard_from = self.began + self.aside + self.first_chunk if self.chunks else time.perf_counter()
        return heard_from + self.samples / SAMPLE_RATE

    def _progress(self, attempt: Attempt, *, redone: bool) -> Progress:
        return Progress(self.request.id, self.segment_start + attempt.decoded_seconds, redone)

    def _border(self, event: Event) -> Iterator[Event]:
        self.at_border = True
        yield event
        self.at_border = False
        self.segment_start = self.samples / SAMPLE_RATE

    def _chunk(self, wave: NDArray[np.float32]) -> AudioChunk:
        if not self.chunks:
            self.first_chunk = self.seconds
        chunk = AudioChunk(self.request.id, self.chunks, to_pcm16(wave))
        self.chunks += 1
        self.samples += chunk.samples
        return chunk

    def _failure(self, error: BadOutputError, part: Part, parts: int) -> EngineError:
        what = "The speech" if parts == 1 else f"Part {part.number} of {parts}"
        message = f"{what} could not be made: {error}. Try another seed, a shorter text or another prompt clip."
        return EngineError(error.code, message)

    def _remarks(self) -> list[Notice]:
        more = len(self.doubts) - MAX_DOUBTS
        if more <= 0:
            return self.doubts
        sentence = "{count} more parts came out odd in length: listen to the whole."
        return [*self.doubts[:MAX_DOUBTS], Notice.of("more_doubts", sentence, count=more)]

    def _stats(self, segments: int) -> RequestStats:
        return RequestStats(
            speech_seconds=self.samples / SAMPLE_RATE,
            total_seconds=self.seconds,
            first_chunk_seconds=self.first_chunk,
            speech_tokens=self.tokens,
            segments=segments,
            text_seconds=self.text_seconds,
            prompt_seconds=self.prompt_seconds,
            llm_seconds=self.spent.llm,
            flow_seconds=self.spent.flow,
            vocoder_seconds=self.spent.vocoder,
            retries=self.retries,
            precision=self.studio.precision,
            warnings=(*self.warnings, *self._remarks()),
            redone=self.redone,
            parts=tuple(self.parts),
        )
