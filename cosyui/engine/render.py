"""What is known of a prompt, and where the chunks of a stream end.

Source of the chunk schedule: CosyVoice 2 (arXiv:2412.10117), chunk-aware flow matching, as released.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor

from cosyui.model.config import FlowConfig

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
