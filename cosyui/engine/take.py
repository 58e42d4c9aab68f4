"""One request on its way through the network: everything it owns, and the events it makes step by step."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from types import TracebackType

import numpy as np
from numpy.typing import NDArray

from cosyui.engine.gate import BadOutputError, LengthBand
from cosyui.engine.prompts import PromptCache
from cosyui.engine.render import Renderer
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
from cosyui.engine.segment import Attempt, Part
from cosyui.errors import EngineError
from cosyui.model.cosyvoice3 import CosyVoice3
from cosyui.notice import Notice
from cosyui.speech.prompt_format import TextFrontend
from cosyui.speech.sound.audio_out import to_pcm16
from cosyui.speech.sound.joints import Joiner
from cosyui.speech.sound.loudness import speech_level

SEED_STRIDE = 1_000_003
"""Distance between the seeds of a request's segments and retries (prime)."""
MAX_TRIES = 2
MAX_DOUBTS = 5
"""So many remarks about single segments; a long job with more of them says how many."""


class Stopwatch:
    """Seconds inside its ``with`` blocks, the present one included: a request that was put aside costs no time."""

    def __init__(self) -> None:
        self._past = 0.0
        self._since: float | None = None

    @property
    def seconds(self) -> float:
        return self._past + (0.0 if self._since is None else time.perf_counter() - self._since)

    def __enter__(self) -> None:
        self._since = time.perf_counter()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._past, self._since = self.seconds, None


@dataclass
class Take:
    """State of one request. `events` does the work; dropping the generator frees all of it.

    ``at_border``: the last event ended a segment, so that other work may come in between.
    """

    request: SynthesisRequest
    model: CosyVoice3
    frontend: TextFrontend
    prompts: PromptCache
    precision: str
    clock: Stopwatch = field(default_factory=Stopwatch)
    at_border: bool = False
    segment_start: float = 0.0
    first_chunk: float = 0.0
    text_seconds: float = 0.0
    prompt_seconds: float = 0.0
    tokens: int = 0
    samples: int = 0
    chunks: int = 0
    retries: int = 0
    warnings: list[Notice] = field(default_factory=list)
    doubts: list[Notice] = field(default_factory=list)

    def events(self) -> Iterator[Event | None]:
        """Yield events as they come, None after other decode steps. Raises CosyuiError when the take fails."""
        request = self.request
        began = self.clock.seconds
        segments, warnings = self.frontend.segments(request)
        self.warnings += warnings
        self.text_seconds = self.clock.seconds - began
        if request.mode is Mode.INSTRUCT and not self.model.config.instruct_supported:
            sentence = "This model does not follow instructions: the text is spoken as usual."
            self.warnings.append(Notice.of("instruction_ignored", sentence))
        yield from self._border(Started(request.id, len(segments)))
        began = self.clock.seconds
        features = self.prompts(request.prompt)
        self.prompt_seconds = self.clock.seconds - began
        renderer = Renderer(self.model.flow, self.model.vocoder, features)
        joiner = Joiner(speech_level(request.prompt.samples, request.prompt.sample_rate))
        spoken_before = {Mode.ZERO_SHOT: request.prompt.transcript, Mode.INSTRUCT: request.instruction}
        for index, segment in enumerate(segments):
            band = LengthBand.of(segment.text, spoken_before.get(request.mode, ""))
            if self.model.config.untrained:
                band = LengthBand.any_length()
            part = Part(index + 1, segment, band)
            try:
                chosen = yield from self._best_try(part, renderer, joiner)
            except BadOutputError as error:
                raise self._failure(error, part, len(segments)) from error
            self.tokens += chosen.tokens
            if chosen.doubt is not None:
                self.doubts.append(chosen.doubt)
            yield from self._border(self._chunk(chosen.finish()))
        yield Finished(request.id, self._stats(len(segments), renderer))

    def _best_try(self, part: Part, renderer: Renderer, joiner: Joiner) -> Generator[Event | None, None, Attempt]:
        """Make a segment, and once more by another seed if it is broken or doubtful and nothing of it was heard yet.

        Returns the try to deliver: of two doubtful ones that whose length is less odd. Raises BadOutputError.
        """
        stream = self.request.stream and self.request.speed == 1.0
        problem: BadOutputError | None = None
        tries: list[Attempt] = []
        for number in range(MAX_TRIES):
            seed = self.request.seed + SEED_STRIDE * (MAX_TRIES * (part.number - 1) + number)
            sound = joiner.segment(part.segment.pause)
            attempt = Attempt(part, self.model, renderer, sound, seed, self.request.speed, stream)
            if number:
                self.retries += 1
                yield self._progress(attempt, redone=True)
            try:
                yield from self._run(attempt, redone=number > 0)
            except BadOutputError as error:
                if attempt.delivered:
                    raise
                problem = error
                continue
            tries.append(attempt)
            if attempt.doubt is None or attempt.delivered:
                return attempt
        if not tries:
            assert problem is not None
            raise problem
        return min(tries, key=lambda attempt: attempt.oddness)

    def _run(self, attempt: Attempt, *, redone: bool) -> Iterator[Event | None]:
        """The chunks of a try as far as they come before its end, and its progress once a second."""
        told = 0
        for fresh in attempt.run():
            if len(fresh):
                yield self._chunk(fresh)
            elif int(attempt.decoded_seconds) > told:
                told = int(attempt.decoded_seconds)
                yield self._progress(attempt, redone=redone)
            else:
                yield None

    def _progress(self, attempt: Attempt, *, redone: bool) -> Progress:
        return Progress(self.request.id, self.segment_start + attempt.decoded_seconds, redone)

    def _border(self, event: Event) -> Iterator[Event]:
        self.at_border = True
        yield event
        self.at_border = False
        self.segment_start = self.samples / SAMPLE_RATE

    def _chunk(self, wave: NDArray[np.float32]) -> AudioChunk:
        if not self.chunks:
            self.first_chunk = self.clock.seconds
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

    def _stats(self, segments: int, renderer: Renderer) -> RequestStats:
        return RequestStats(
            speech_seconds=self.samples / SAMPLE_RATE,
            total_seconds=self.clock.seconds,
            first_chunk_seconds=self.first_chunk,
            speech_tokens=self.tokens,
            segments=segments,
            text_seconds=self.text_seconds,
            prompt_seconds=self.prompt_seconds,
            llm_seconds=renderer.clock.llm,
            flow_seconds=renderer.clock.flow,
            vocoder_seconds=renderer.clock.vocoder,
            retries=self.retries,
            precision=self.precision,
            warnings=(*self.warnings, *self._remarks()),
        )
