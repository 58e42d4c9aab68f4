"""Nucleus sampling that avoids repetition ("ras").

Source: VALL-E 2 (Chen et al., 2024, arXiv:2406.05370), section 3.2, with the second draw of CosyVoice: when the token
drawn from the nucleus fills too much of the recent window, one draw is made from the full distribution without it.
"""

from __future__ import annotations

import torch
from torch import Tensor

from cosyui.model.config import SamplingConfig


def nucleus(probabilities: Tensor, top_p: float, top_k: int) -> tuple[Tensor, Tensor]:
    """The candidates in falling order of probability, ties in order of id.

    A candidate is taken while the sum before it is below ``top_p`` and fewer than ``top_k`` are taken, so the one that
    crosses ``top_p`` belongs to the set and the set is never empty.

    ``probabilities`` (B, V) float -> ids (B, top_k) int64 and their probabilities (B, top_k), 0 outside the set.
    """
    value, index = largest(probabilities, min(top_k, probabilities.shape[-1]))
    before = value.cumsum(-1) - value
    return index, value.masked_fill(before >= top_p, 0.0)


def largest(x: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The ``count`` largest of each row (B, V) in falling order, ties in order of index: values and indices (B, count).

    As a stable sort of the whole row gives them, at a fraction of its time.
    """
    value, index = x.topk(count, dim=-1)
    if bool(((x >= value[:, -1:]).sum(-1) > count).any()):  # equal ones at the border: which were taken is left open
        value, index = x.sort(dim=-1, descending=True, stable=True)
        return value[:, :count], index[:, :count]
    index, order = index.sort(dim=-1)
    value, order = value.gather(-1, order).sort(dim=-1, descending=True, stable=True)
    return value, index.gather(-1, order)


def draw(weights: Tensor, uniform: Tensor) -> Tensor:
    """One index per row by inverting the cumulative weights; an entry of weight 0 is never returned.

    ``weights`` (B, N) float64, not normalised; ``uniform`` (B,) float64 in [0, 1) -> (B,) int64.
    """
    cumulative = weights.cumsum(-1)
    target = uniform[:, None] * cumulative[:, -1:]
    index = torch.searchsorted(cumulative, target, right=True)
    last = weights.shape[-1] - 1 - (weights.flip(-1) > 0).int().argmax(-1, keepdim=True)
    return torch.minimum(index, last)[:, 0]


def repeats(tokens: Tensor, history: Tensor, config: SamplingConfig) -> Tensor:
    """True where a token (B,) occurs too often in the last ``win_size`` of ``history`` (B, >=0), padded with -1."""
    recent = history[:, max(0, history.shape[1] - config.win_size) :]
    count = (recent == tokens[:, None]).sum(-1)
    return count >= config.win_size * config.tau_r


def sample(logits: Tensor, history: Tensor, uniforms: Tensor, config: SamplingConfig) -> Tensor:
    """Draw one token per row.

    ``logits`` (B, V) float32, -inf where a token is forbidden; ``history`` (B, H) int64: tokens emitted so far, newest
    last, -1 where there is none; ``uniforms`` (B, 2) float64 in [0, 1): a row's own random numbers, so that its tokens
    do not depend on what else is in the batch. Returns (B,) int64.
    """
    probabilities = logits.softmax(-1)
    index, weight = nucleus(probabilities, config.top_p, config.top_k)
    picked = index.gather(-1, draw(weight.double(), uniforms[:, 0])[:, None])[:, 0]
    again = repeats(picked, history, config)
    if not bool(again.any()):
        return picked
    rest = probabilities.double().scatter(-1, picked[:, None], 0.0)
    return torch.where(again, draw(rest, uniforms[:, 1]), picked)
