"""Features of prompt clips, computed once per sound and kept in a cache with a byte bound."""

from __future__ import annotations

import contextlib
import threading
from collections import OrderedDict

import torch
from torch import Tensor

from cosyui.engine.render import PromptFeatures
from cosyui.engine.request import PromptClip
from cosyui.model.cosyvoice3 import CosyVoice3
from cosyui.speech.features import kaldi_fbank, mel_24k, resample, whisper_log_mel

ENCODER_RATE = 16_000
"""Hz that both prompt encoders listen at."""


def prompt_features(model: CosyVoice3, wave_16k: Tensor, wave_24k: Tensor) -> PromptFeatures:
    """Speech tokens, mel and speaker vector of one clip given as (S,) float32 at both rates, all on the CPU.

    Tokens and mel are cut to the same length: n tokens and ratio * n frames.
    """
    tokens = torch.from_numpy(model.speech_tokenizer(whisper_log_mel(wave_16k[None])[0].numpy()))
    speaker = torch.from_numpy(model.speaker_encoder(kaldi_fbank(wave_16k.numpy())))
    mel = mel_24k(wave_24k[None])[0].transpose(0, 1)
    ratio = model.config.flow.token_mel_ratio
    count = min(len(mel) // ratio, len(tokens))
    return PromptFeatures(tokens[:count], mel[: ratio * count].contiguous(), speaker)


class PromptCache:
    """Least recently used prompt features by content hash, at most ``limit`` bytes. May be called from any thread."""

    def __init__(self, model: CosyVoice3, limit: int) -> None:
        self.model = model
        self.limit = limit
        self.entries: OrderedDict[str, PromptFeatures] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self.entries)

    @property
    def nbytes(self) -> int:
        """Of all features, counted anew: others may be added or forgotten in other threads."""
        return sum(features.nbytes for features in list(self.entries.values()))

    def known(self, clip: PromptClip) -> PromptFeatures | None:
        """Features of ``clip`` if its sound was seen before; never waits for another clip's computation."""
        features = self.entries.get(clip.key)
        if features is not None:
            with contextlib.suppress(KeyError):  # dropped by another thread a moment ago
                self.entries.move_to_end(clip.key)
        return features

    def __call__(self, clip: PromptClip) -> PromptFeatures:
        """Features of ``clip``, from the cache when its sound was seen before."""
        with self._lock:  # two requests with one clip compute it once
            features = self.known(clip)
            return self._compute(clip) if features is None else features

    def _compute(self, clip: PromptClip) -> PromptFeatures:
        wave = torch.from_numpy(clip.samples)[None]
        wave_16k = resample(wave, clip.sample_rate, ENCODER_RATE)[0]
        wave_24k = resample(wave, clip.sample_rate, self.model.config.sample_rate)[0]
        features = prompt_features(self.model, wave_16k, wave_24k)
        self.entries[clip.key] = features
        while self.nbytes > self.limit and len(self.entries) > 1:
            with contextlib.suppress(KeyError):  # forgotten by another thread a moment ago
                self.entries.popitem(last=False)
        return features

    def clear(self) -> None:
        """Forget everything."""
        self.entries.clear()
