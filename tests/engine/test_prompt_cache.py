"""Features of prompt clips are kept by the sound alone, up to a number of bytes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from cosyui.engine.engine import Engine
from cosyui.engine.prompts import PromptCache
from cosyui.engine.request import PromptClip


def other(clip: PromptClip, number: int) -> PromptClip:
    """Another sound of half a second."""
    return replace(clip, samples=np.roll(clip.samples, 997 * number)[: clip.sample_rate // 2].copy())


def test_the_same_sound_is_found_again_and_another_is_not_mistaken_for_it(engine: Engine, clip: PromptClip) -> None:
    cache = PromptCache(engine.model, 64 << 20)
    first, second = cache(other(clip, 1)), cache(other(clip, 2))
    again = cache(replace(other(clip, 1), transcript="other words"))
    assert again is first
    assert not torch.equal(first.speaker, second.speaker)
    assert torch.equal(second.speaker, PromptCache(engine.model, 1 << 20)(other(clip, 2)).speaker)


def test_many_clips_stay_within_the_limit(engine: Engine, clip: PromptClip) -> None:
    size = PromptCache(engine.model, 0)(other(clip, 0)).nbytes
    cache = PromptCache(engine.model, 10 * size)
    for number in range(500):
        cache(other(clip, number))
        assert cache.nbytes <= cache.limit
    assert len(cache) == 10
    assert cache.nbytes == sum(features.nbytes for features in cache.entries.values())
    kept = cache.entries[other(clip, 499).key]
    assert cache(other(clip, 499)) is kept
