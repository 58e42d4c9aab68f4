"""Flow and vocoder one utterance at a time, by the plain network: every chunk from the start, as the reference does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from cosyui.engine.render import ChunkSchedule, PromptFeatures, stretch
from cosyui.model.flow import Flow
from cosyui.model.vocoder import CausalHiFT


@dataclass
class Renderer:
    """Flow and vocoder for the segments of one request with one prompt."""

    flow: Flow
    vocoder: CausalHiFT
    prompt: PromptFeatures

    @property
    def prompt_tokens(self) -> int:
        return len(self.prompt.speech_tokens)

    def mel(self, tokens: Sequence[int], *, streaming: bool = False, finalize: bool = True) -> Tensor:
        """Mel (1, C, frames) of ``tokens`` behind the prompt; the prompt's own frames are cut off."""
        device, prompt = self.vocoder.conv_post.weight.device, self.prompt
        rows = torch.cat([prompt.speech_tokens.to(device), torch.tensor(tokens, dtype=torch.int64, device=device)])
        lengths = torch.tensor([len(rows)], device=device)
        known = torch.tensor([len(prompt.mel)], device=device)
        prompt_mel, speaker = prompt.mel.to(device)[None], prompt.speaker.to(device)[None]
        mel: Tensor = self.flow(
            rows[None], lengths, prompt_mel, known, speaker, streaming=streaming, finalize=finalize
        )[0]
        return mel[:, :, len(prompt.mel) :]

    def wave(self, mel: Tensor, *, finalize: bool = True) -> Tensor:
        """Waveform (S,) float32 of a mel (1, C, T)."""
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
