"""Speech tokens of one segment, one decode step at a time.

Source of the length rule, the sampling and the row layout: CosyVoice 3 (arXiv:2505.17589) as released.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from cosyui.model.config import SILENT_TOKENS, LLMConfig, SamplingConfig
from cosyui.model.llm import SpeechLM
from cosyui.model.sampler import sample


@dataclass(frozen=True)
class SpecialRows:
    """Rows of the speech table behind the codes. Any id from ``sos`` on ends ordinary decoding."""

    sos: int
    eos: int
    task: int
    fill: int

    @classmethod
    def of(cls, config: LLMConfig) -> SpecialRows:
        first = config.speech_token_size
        return cls(first, first + 1, first + 2, first + 3)


@dataclass(frozen=True)
class LengthRule:
    """At least ``minimum`` speech tokens before a stop is allowed, at most ``maximum`` in all."""

    minimum: int
    maximum: int

    @classmethod
    def of(cls, config: LLMConfig, text_ids: int) -> LengthRule:
        """The rule for a text of so many ids (what is spoken: neither transcript nor prompt prefix)."""
        return cls(int(text_ids * config.min_token_text_ratio), int(text_ids * config.max_token_text_ratio))

    def at_least(self, tokens: int) -> LengthRule:
        """The rule with so many tokens before a stop."""
        return LengthRule(max(self.minimum, tokens), max(self.maximum, tokens))


Choose = Callable[[Tensor, Sequence[int]], int]
"""(logits (V,) with forbidden ids at -inf, tokens so far) -> the next id."""
Forward = Callable[[Tensor], Tensor]
"""Rows (T, hidden) appended to the context -> logits (V,) after the last of them."""


class Sampler:
    """Draws with a request's own random numbers: the same seed gives the same tokens whatever else runs."""

    def __init__(self, config: SamplingConfig, seed: int) -> None:
        self.config = config
        self.generator = torch.Generator().manual_seed(seed)

    def __call__(self, logits: Tensor, tokens: Sequence[int]) -> int:
        uniforms = torch.rand(1, 2, generator=self.generator, dtype=torch.float64).to(logits.device)
        history = torch.tensor([tokens[-self.config.win_size :]], dtype=torch.int64, device=logits.device)
        return int(sample(logits[None], history, uniforms, self.config))


def greedy(logits: Tensor, tokens: Sequence[int]) -> int:
    """The most probable id."""
    return int(logits.argmax())


def cached_forward(llm: SpeechLM, capacity: int) -> Forward:
    """A context of one row over a fresh KV cache of ``capacity`` positions."""
    cache = llm.new_cache(1, capacity)

    def forward(rows: Tensor) -> Tensor:
        return llm.logits(llm(rows[None], cache=cache)[0, -1])

    return forward


def input_rows(llm: SpeechLM, text_ids: Sequence[int], prompt_speech: Sequence[int]) -> Tensor:
    """``[sos] text [task] prompt speech`` as embeddings (T, hidden); ``text_ids`` holds prompt text and text."""
    device = llm.llm_decoder.weight.device
    special = SpecialRows.of(llm.config)
    speech = llm.embed_speech(torch.tensor([special.sos, special.task, *prompt_speech], device=device))
    text = llm.embed_text(torch.tensor(text_ids, dtype=torch.int64, device=device))
    return torch.cat([speech[:1], text, speech[1:]])


def forbid(logits: Tensor, first: int, last: int | None = None) -> Tensor:
    """A copy of ``logits`` with the ids ``first`` to ``last`` (excluded; None = the end) at -inf."""
    out = logits.clone()
    out[first:last] = -torch.inf
    return out


def decode(
    llm: SpeechLM,
    rows: Tensor,
    rule: LengthRule,
    choose: Choose,
    *,
    forward: Forward | None = None,
    upstream_minimum: bool = False,
) -> Iterator[int]:
    """Yield speech tokens until a stop id is chosen or ``rule.maximum`` is reached.

    ``rows`` (T, hidden): the prefill. ``forward`` replaces the model in tests. Before ``rule.minimum`` no special id
    can be chosen; with ``upstream_minimum`` only sos is forbidden, as the reference does, so that it can stop early.
    """
    special = SpecialRows.of(llm.config)
    forward = forward or cached_forward(llm, len(rows) + rule.maximum)
    tokens: list[int] = []
    while len(tokens) < rule.maximum:
        logits = forward(rows)
        if len(tokens) < rule.minimum:
            logits = forbid(logits, special.sos, special.eos if upstream_minimum else None)
        token = choose(logits, tokens)
        if token >= special.sos:
            return
        tokens.append(token)
        yield token
        rows = llm.embed_speech(torch.tensor([token], device=rows.device))


MAX_SILENT_RUN = 5


class SilenceFilter:
    """Lets only the first ``MAX_SILENT_RUN`` of a run of ``silent`` tokens through to the flow."""

    def __init__(self, silent: Collection[int] = SILENT_TOKENS) -> None:
        self.silent = silent
        self.run = 0

    def __call__(self, token: int) -> bool:
        """True when ``token``, the next of the stream, is kept."""
        self.run = self.run + 1 if token in self.silent else 0
        return self.run <= MAX_SILENT_RUN
