"""Requests for the text path: a clip of no sound with a transcript."""

from __future__ import annotations

import numpy as np

from cosyui.engine.request import Mode, PromptClip, SynthesisRequest

TRANSCRIPT = "今天下午我在公园里散步。"


def request(
    text: str = "明天见。",
    mode: Mode = Mode.ZERO_SHOT,
    *,
    transcript: str = TRANSCRIPT,
    instruction: str = "请用四川话说。",
    language: str | None = None,
) -> SynthesisRequest:
    clip = PromptClip(np.zeros(1, np.float32), 24_000, transcript)
    return SynthesisRequest("id", text, mode, clip, 0, instruction=instruction, language=language)
