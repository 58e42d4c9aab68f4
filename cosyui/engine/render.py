"""Speech tokens to waveform: a whole segment at once, or chunk by chunk while tokens arrive.

Source of the chunk schedule: CosyVoice 2 (arXiv:2412.10117), chunk-aware flow matching, as released.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor

from cosyui.model.config import FlowConfig
from cosyui.model.flow import Flow
from cosyui.model.vocoder import CausalHiFT

LONGEST_HOP = 4
"""The first chunk of a stream is one block of the flow's mask (1 s of speech); chunks double up to this many blocks."""


@dataclass(frozen=True)
class PromptFeatures:
    """What the network knows of a prompt clip.

    ``speech_tokens`` (P,) int64, ``mel`` (ratio * P, mel_dim) float32 at 24 kHz, ``speaker`` (spk_dim,) float32.
    """

    speech_tokens: Tensor
    mel: Tensor
    speaker: Tensor

    @property
    def nbytes(self) -> int:
        return sum(t.numel() * t.element_size() for t in (self.speech_tokens, self.mel, self.speaker))


@dataclass
class StageClock:
    """Seconds spent in each stage; waits for the device, so that its work is counted where it belongs."""

    device: torch.device
    flow: float = 0.0
    vocoder: float = 0.0
    llm: float = 0.0

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        setattr(self, name, getattr(self, name) + time.perf_counter() - start)


def stretch(mel: Tensor, speed: float) -> Tensor:
    """Mel (B, C, T) at another speed, by linear interpolation to int(T / speed) frames."""
    if speed == 1.0:
        return mel
    return F.interpolate(mel, size=max(1, int(mel.shape[2] / speed)), mode="linear")


class ChunkSchedule:
    """Where the chunks of a stream end, counted in its generated tokens.

    The first chunk is so long that prompt and chunk end on a block boundary together; the following ones double from
    ``hop`` tokens up to ``LONGEST_HOP`` blocks. Each needs ``lookahead`` tokens behind its end.
    """

    def __init__(self, prompt_tokens: int, block: int, lookahead: int, hop: int | None = None) -> None:
        self.lookahead = lookahead
        self.block = block
        self.hop = hop or block
        self.max_hop = LONGEST_HOP * block
        self.offset = 0
        self.step = self.hop + -prompt_tokens % self.hop

    @classmethod
    def of(cls, config: FlowConfig, prompt_tokens: int, hop: int | None = None) -> ChunkSchedule:
        return cls(prompt_tokens, config.chunk_frames // config.token_mel_ratio, config.pre_lookahead_len, hop)

    def due(self, tokens: int) -> int | None:
        """The end of the next chunk if so many tokens are enough for it."""
        end = self.offset + self.step
        return end if tokens >= end + self.lookahead else None

    def advance(self, affordable: float = math.inf) -> None:
        """The chunk that was due is done. The next is at most ``affordable`` tokens, but never less than a block.

        Where chunks end does not change the sound.
        """
        self.offset += self.step
        wanted = min(self.max_hop, 2 * self.hop, affordable)
        self.step = self.hop = max(1, int(wanted) // self.block) * self.block


@dataclass
class Renderer:
    """Flow and vocoder for the segments of one request with one prompt."""

    flow: Flow
    vocoder: CausalHiFT
    prompt: PromptFeatures
    clock: StageClock = field(init=False)

    def __post_init__(self) -> None:
        self.clock = StageClock(self.vocoder.conv_post.weight.device)

    @property
    def prompt_tokens(self) -> int:
        return len(self.prompt.speech_tokens)

    def mel(self, tokens: Sequence[int], *, streaming: bool = False, finalize: bool = True) -> Tensor:
        """Mel (1, C, frames) of ``tokens`` behind the prompt; the prompt's own frames are cut off."""
        device, prompt = self.clock.device, self.prompt
        rows = torch.cat([prompt.speech_tokens.to(device), torch.tensor(tokens, dtype=torch.int64, device=device)])
        lengths = torch.tensor([len(rows)], device=device)
        known = torch.tensor([len(prompt.mel)], device=device)
        prompt_mel, speaker = prompt.mel.to(device)[None], prompt.speaker.to(device)[None]
        with self.clock.stage("flow"):
            mel: Tensor = self.flow(
                rows[None], lengths, prompt_mel, known, speaker, streaming=streaming, finalize=finalize
            )[0]
        return mel[:, :, len(prompt.mel) :]

    def wave(self, mel: Tensor, *, finalize: bool = True) -> Tensor:
        """Waveform (S,) float32 of a mel (1, C, T)."""
        with self.clock.stage("vocoder"):
            wave: Tensor = self.vocoder(mel, finalize=finalize)[0]
        return wave[0]

    def whole(self, tokens: Sequence[int], speed: float = 1.0) -> Tensor:
        """Waveform (S,) of a whole segment, every frame seeing every other."""
        return self.wave(stretch(self.mel(tokens), speed))


class ChunkStream:
    """Turns the growing tokens of one segment into chunks of waveform.

    A chunk depends on nothing that comes later: its frames see their own block of the flow's mask and earlier ones.
    ``hop`` may be set for a stream that starts with larger chunks; ``upstream_tail`` renders the last chunk without the
    block mask, as the reference does, so that it does not continue the chunks before it exactly.
    """

    def __init__(self, renderer: Renderer, *, hop: int | None = None, upstream_tail: bool = False) -> None:
        self.renderer = renderer
        self.schedule = ChunkSchedule.of(renderer.flow.config, renderer.prompt_tokens, hop)
        self.upstream_tail = upstream_tail
        self.tokens: list[int] = []
        self.mel: Tensor | None = None
        self.sent = 0

    def push(self, tokens: Sequence[int]) -> list[Tensor]:
        """Add tokens; returns the waves (S,) of the chunks that became complete."""
        self.tokens += tokens
        chunks = []
        while (end := self.schedule.due(len(self.tokens))) is not None:
            mel = self.renderer.mel(self.tokens[: end + self.schedule.lookahead], streaming=True, finalize=False)
            chunks.append(self._emit(mel, finalize=False))
            self.schedule.advance()
        return chunks

    def finish(self) -> Tensor:
        """The wave (S,) of what is left, after the last token."""
        mel = self.renderer.mel(self.tokens, streaming=not self.upstream_tail, finalize=True)
        return self._emit(mel, finalize=True)

    def _emit(self, mel: Tensor, *, finalize: bool) -> Tensor:
        fresh = mel[:, :, self.schedule.offset * self.renderer.flow.config.token_mel_ratio :]
        self.mel = fresh if self.mel is None else torch.cat([self.mel, fresh], dim=2)
        wave = self.renderer.wave(self.mel, finalize=finalize)[self.sent :]
        self.sent += len(wave)
        return wave
