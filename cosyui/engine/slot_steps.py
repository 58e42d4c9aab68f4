"""The passes behind `cosyui.engine.slots` with plain torch operations; `slot_graphs` has those for CUDA."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from cosyui.engine.decode import LengthRule
from cosyui.model.llm_decode import BAD, ENDED, NOTHING, DecodeLLM, SlotState
from cosyui.model.sampler import sample


class Done(NamedTuple):
    """Codes that are there."""

    codes: Tensor

    def ready(self) -> bool:
        return True

    def get(self) -> Tensor:
        return self.codes


@dataclass
class _Row:
    """A slot as `PlainSteps` knows it."""

    position: int
    rule: LengthRule
    uniforms: Tensor
    tokens: list[int] = field(default_factory=list)
    first: int = NOTHING
    active: bool = True


class PlainSteps:
    """One step at a time, finished when `run` returns; for CPUs, and for sizes that the kernels do not take."""

    group = 1
    alone = False

    def __init__(self, model: DecodeLLM, state: SlotState) -> None:
        self.model, self.state = model, state
        self.longest = state.keys.shape[3]
        self.rows: dict[int, _Row] = {}

    def prefill(self, slot: int, rows: Tensor, rule: LengthRule, uniforms: Tensor) -> None:
        device = self.model.device
        row = self.rows[slot] = _Row(len(rows), rule, uniforms.to(device))
        hidden = self.model.prefill(self.state, torch.tensor([slot], device=device), rows.to(device))
        row.first = self._draw([row], self.model.logits(hidden[-1:]))[0]

    def run(self, slots: Sequence[int]) -> Done:
        rows = [self.rows[slot] for slot in slots]
        codes = torch.full((2, len(slots)), NOTHING, dtype=torch.int32)
        for column, row in enumerate(rows):
            codes[0, column], row.first = row.first, NOTHING
        live = [column for column, row in enumerate(rows) if row.active]
        if live:
            active = [rows[column] for column in live]
            tokens = torch.tensor([row.tokens[-1] for row in active], device=self.model.device)
            positions = [row.position for row in active]
            logits = self.model.step(self.state, [slots[column] for column in live], positions, tokens)
            for row in active:
                row.position += 1
            codes[1, live] = torch.tensor(self._draw(active, logits), dtype=torch.int32)
        return Done(codes)

    def _draw(self, rows: Sequence[_Row], logits: Tensor) -> list[int]:
        """A code for each of ``rows``, whose logits (R, V) are overwritten."""
        config = self.model.config
        finite = logits.isfinite().all(-1).tolist()
        for index, row in enumerate(rows):
            if len(row.tokens) < row.rule.minimum:
                logits[index, config.speech_token_size :] = -torch.inf
            if not finite[index]:
                logits[index] = 0.0
        window = config.sampling.win_size
        history = torch.full((len(rows), window), -1, device=logits.device)
        for index, row in enumerate(rows):
            recent = row.tokens[-window:] if window else []
            history[index, window - len(recent) :] = torch.tensor(recent, dtype=torch.int64, device=logits.device)
        uniforms = torch.stack([row.uniforms[len(row.tokens)] for row in rows])
        out = []
        drawn = sample(logits, history, uniforms, config.sampling).tolist()
        for row, token, good in zip(rows, drawn, finite, strict=True):
            if good and token < config.speech_token_size:
                row.tokens.append(token)
                row.active = len(row.tokens) < row.rule.maximum
                out.append(token)
            else:
                row.active = False
                out.append(ENDED if good else BAD)
        return out
