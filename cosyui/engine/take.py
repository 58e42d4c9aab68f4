"""One request on its way through the network: everything it owns, and the events it makes step by step."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cosyui.engine.decode import LengthRule, Sampler, SilenceFilter, decode, input_rows
from cosyui.engine.prompts import PromptCache
from cosyui.engine.render import ChunkStream, Renderer
from cosyui.engine.request import (
    SAMPLE_RATE,
    AudioChunk,
    Event,
    Finished,
    Mode,
    RequestStats,
    Started,
    SynthesisRequest,
)
from cosyui.errors import EngineError
from cosyui.model.cosyvoice3 import CosyVoice3
from cosyui.notice import Notice
from cosyui.speech.audio_out import fade, pause_seconds, to_pcm16
from cosyui.speech.prompt_format import SegmentInput, TextFrontend

SILENT_PEAK = 1e-3
"""A segment whose loudest sample stays below this (-60 dBFS) is not speech."""
SEED_STRIDE = 1_000_003
"""Distance between the seeds of a request's segments and retries (prime)."""
MAX_TRIES = 2


class BadOutputError(Exception):
    """A segment came out unusable; the message says what was seen."""


def check_wave(wave: Tensor) -> None:
    """Raises BadOutputError unless ``wave`` (S,) is finite, not empty and not silent."""
    if not len(wave):
        raise BadOutputError("the model stopped before it said anything")
    if not bool(torch.isfinite(wave).all()):
        raise BadOutputError("the sound was not finite")
    if float(wave.abs().max()) < SILENT_PEAK:
        raise BadOutputError("the sound was silent")


@dataclass
class Take:
    """State of one request. `events` does the work; dropping the generator frees all of it."""

    request: SynthesisRequest
    model: CosyVoice3
    frontend: TextFrontend
    prompts: PromptCache
    precision: str
    started: float = field(default_factory=time.perf_counter)
    first_chunk: float = 0.0
    text_seconds: float = 0.0
    prompt_seconds: float = 0.0
    tokens: int = 0
    samples: int = 0
    chunks: int = 0
    retries: int = 0
    warnings: list[Notice] = field(default_factory=list)

    def events(self) -> Iterator[Event | None]:
        """Yield events as they come, None after each decode step. Raises CosyuiError when the take fails."""
        began = time.perf_counter()
        segments, warnings = self.frontend.segments(self.request)
        self.warnings += warnings
        self.text_seconds = time.perf_counter() - began
        if self.request.mode is Mode.INSTRUCT and not self.model.config.instruct_supported:
            sentence = "This model does not follow instructions: the text is spoken as usual."
            self.warnings.append(Notice.of("instruction_ignored", sentence))
        yield Started(self.request.id, len(segments))
        began = time.perf_counter()
        features = self.prompts(self.request.prompt)
        self.prompt_seconds = time.perf_counter() - began
        renderer = Renderer(self.model.flow, self.model.vocoder, features)
        for index, segment in enumerate(segments):
            speak = self._stream if self.request.stream and self.request.speed == 1.0 else self._whole
            yield from speak(index, segment, renderer)
            if index + 1 < len(segments):
                gap = np.zeros(round(pause_seconds(segment.text) * SAMPLE_RATE), np.float32)
                yield self._chunk(gap)
        yield Finished(self.request.id, self._stats(len(segments), renderer))

    def _whole(self, index: int, segment: SegmentInput, renderer: Renderer) -> Iterator[Event | None]:
        """One chunk for the segment, with one more try by another seed when it comes out bad."""
        for attempt in range(MAX_TRIES):
            tokens: list[int] = []
            try:
                for token in self._decode(index, attempt, segment, renderer):
                    tokens += token
                    yield None
                if not tokens:
                    check_wave(torch.empty(0))
                wave = renderer.whole(tokens, self.request.speed).cpu()
                check_wave(wave)
            except BadOutputError as error:
                if attempt + 1 == MAX_TRIES:
                    raise self._bad_output(error) from error
                self.retries += 1
                continue
            self.tokens += len(tokens)
            yield self._chunk(fade(wave.numpy()))
            return

    def _stream(self, index: int, segment: SegmentInput, renderer: Renderer) -> Iterator[Event | None]:
        """Chunks while tokens arrive. What was heard cannot be taken back, so a bad chunk ends the take."""
        stream = ChunkStream(renderer)
        try:
            for token in self._decode(index, 0, segment, renderer):
                for wave in stream.push(token):
                    yield self._checked(wave)
                yield None
            if not stream.tokens:
                check_wave(torch.empty(0))
            yield self._checked(stream.finish())
        except BadOutputError as error:
            raise self._bad_output(error) from error
        self.tokens += len(stream.tokens)

    def _decode(self, index: int, attempt: int, segment: SegmentInput, renderer: Renderer) -> Iterator[tuple[int, ...]]:
        """Yield after each decode step the speech token to render, or () when the silence filter drops it."""
        llm, prompt = self.model.llm, renderer.prompt
        speech = prompt.speech_tokens.tolist() if segment.uses_prompt_speech else []
        rows = input_rows(llm, (*segment.prompt_text_ids, *segment.text_ids), speech)
        rule = LengthRule.of(llm.config, segment.spoken_ids)
        sampler = Sampler(llm.config.sampling, self.request.seed + SEED_STRIDE * (MAX_TRIES * index + attempt))
        kept, count = SilenceFilter(), 0
        steps = decode(llm, rows, rule, sampler)
        while True:
            with renderer.clock.stage("llm"):
                token = next(steps, None)
            if token is None:
                break
            count += 1
            yield (token,) if kept(token) else ()
        if count == rule.maximum:
            sentence = "Part {part} reached its length limit: it may run on or be cut."
            self.warnings.append(Notice.of("length_limit", sentence, part=index + 1))

    def _checked(self, wave: Tensor) -> AudioChunk:
        if not bool(torch.isfinite(wave).all()):
            raise BadOutputError("the sound was not finite")
        return self._chunk(wave.cpu().numpy())

    def _chunk(self, wave: NDArray[np.float32]) -> AudioChunk:
        if not self.chunks:
            self.first_chunk = time.perf_counter() - self.started
        chunk = AudioChunk(self.request.id, self.chunks, to_pcm16(wave))
        self.chunks += 1
        self.samples += chunk.samples
        return chunk

    def _bad_output(self, error: BadOutputError) -> EngineError:
        message = f"The speech could not be made: {error}. Try another seed, a shorter text or another prompt clip."
        return EngineError("output_bad", message)

    def _stats(self, segments: int, renderer: Renderer) -> RequestStats:
        return RequestStats(
            speech_seconds=self.samples / SAMPLE_RATE,
            total_seconds=time.perf_counter() - self.started,
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
            warnings=tuple(self.warnings),
        )
