"""What is spoken when speed is measured: a made-up clip, and texts of a wanted length."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray

from cosyui.bench.sentences import WORDS
from cosyui.engine.engine import Engine
from cosyui.engine.request import SAMPLE_RATE, Mode, PromptClip, SynthesisRequest
from cosyui.speech.estimate import speech_seconds

TRANSCRIPT = "You have been very good to me and my people over the last year."
INSTRUCTION = "Please speak like a good old man."
_TRIES = 12


def made_up_clip(seconds: float, rate: int, seed: int) -> NDArray[np.float32]:
    """A buzz with a moving pitch and some noise (S,) at ``rate`` Hz: stands in for a voice where only cost matters."""
    generator = torch.Generator().manual_seed(seed)
    t = torch.arange(int(seconds * rate)) / rate
    phase = 2 * torch.pi * ((110 + 7 * (seed % 13)) * t - 6 * torch.cos(2.1 * t))
    buzz = torch.stack([torch.sin(k * phase) / k for k in range(1, 20)]).sum(0)
    wave = 0.2 * buzz * (0.6 + 0.4 * torch.sin(9 * t)) + 0.01 * torch.randn(len(t), generator=generator)
    return wave.numpy()


@dataclass
class Workload:
    """Makes requests of about ``seconds`` of speech behind a clip of ``prompt_seconds``; the same ``seed`` the same.

    Of a checkpoint whose every text id stands for the same number of speech tokens the length is met to one id; of any
    other it is an estimate, and what was spoken has to be measured.
    """

    engine: Engine
    seconds: float = 10.0
    prompt_seconds: float = 5.0
    seed: int = 0
    texts: dict[tuple[float, int], str] = field(default_factory=dict)
    clips: dict[int, PromptClip] = field(default_factory=dict)

    def __post_init__(self) -> None:
        count = self.engine.frontend.count
        single = [word for word in WORDS if count(word) == 1 and count(f"{word} {word}") == 2]
        self.words = single or list(WORDS)

    @cached_property
    def ratio(self) -> float | None:
        """Speech tokens of every text id, where that is fixed."""
        llm = self.engine.model.config.llm
        return llm.max_token_text_ratio if llm.min_token_text_ratio == llm.max_token_text_ratio else None

    def clip(self, number: int = 0) -> PromptClip:
        """One of any number of different voices."""
        if number not in self.clips:
            wave = made_up_clip(self.prompt_seconds, SAMPLE_RATE, 1000 * self.seed + number)
            self.clips[number] = PromptClip(wave, SAMPLE_RATE, TRANSCRIPT)
        return self.clips[number]

    def request(
        self,
        name: str,
        *,
        seconds: float | None = None,
        number: int = 0,
        clip: int = 0,
        mode: Mode = Mode.ZERO_SHOT,
        stream: bool = False,
    ) -> SynthesisRequest:
        """``number`` chooses text and seed, ``clip`` the voice."""
        text = self.text(self.seconds if seconds is None else seconds, number)
        seed = 7919 * self.seed + number
        return SynthesisRequest(name, text, mode, self.clip(clip), seed, INSTRUCTION, stream=stream)

    def text(self, seconds: float, number: int) -> str:
        """The ``number``-th text of that length."""
        key = (seconds, number)
        if key not in self.texts:
            self.texts[key] = self._compose(seconds, random.Random(f"{self.seed} {seconds} {number}"))
        return self.texts[key]

    def _compose(self, seconds: float, source: random.Random) -> str:
        words = [source.choice(self.words) for _ in range(max(1, round(2.5 * seconds)))]
        best, best_error = words, float("inf")
        for _ in range(_TRIES):
            made = self._length(" ".join(words))
            if (error := abs(made - seconds)) < best_error:
                best, best_error = list(words), error
            missing = round((seconds - made) * len(words) / made) or (1 if made < seconds else -1)
            if error == 0 or (missing < 0 and len(words) == 1):
                break
            if missing > 0:
                words += [source.choice(self.words) for _ in range(missing)]
            else:
                del words[max(1, len(words) + missing) :]
        return " ".join(best)

    def _length(self, text: str) -> float:
        if self.ratio is None:
            return speech_seconds(text)
        probe = SynthesisRequest("", text, Mode.CROSS_LINGUAL, self.clip(), 0)
        segments, _ = self.engine.frontend.segments(probe)
        ids = sum(segment.spoken_ids for segment in segments)
        return ids * self.ratio / self.engine.model.config.token_frame_rate
