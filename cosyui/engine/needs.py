"""What a take waits for. A take is a generator: it yields events, or one of these and is resumed with the answer.

That way a take reads like a program for one request, while the engine serves the needs of many in batches.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from cosyui.engine.decode import LengthRule
from cosyui.engine.token_stream import TokenStream
from cosyui.engine.voice import Voice


@dataclass(frozen=True)
class Aside:
    """Run ``work`` on a thread for CPU work; answered with what it returns."""

    work: Callable[[], Any]


@dataclass(frozen=True)
class Decode:
    """Decode behind ``[sos] text [task] prompt speech``; answered with a `TokenStream` once a slot is free.

    ``safe``: in float32, because half precision has failed.
    """

    text_ids: Sequence[int]
    prompt_speech: Sequence[int]
    rule: LengthRule
    seed: int
    safe: bool = False


@dataclass(frozen=True)
class NewTokens:
    """Answered with a `Decoded`: at least one token, or the end. ``deadline`` as in `Render`."""

    stream: TokenStream
    deadline: float | None = None


@dataclass(eq=False)
class Render:
    """Turn the tokens of ``voice`` up to ``end`` into sound; ``final``: no more will come.

    Answered with the new samples (S,) float32 on the CPU. ``deadline``: on `time.perf_counter`'s clock, when the
    listener runs dry; None for one who waits for the whole, ``long`` for one who has time.
    """

    voice: Voice
    end: int
    final: bool
    deadline: float | None = None
    long: bool = False
    since: float = field(default_factory=time.perf_counter)


Need = Aside | Decode | NewTokens | Render
