"""Sampling draws exactly from its distribution, row by row."""

from __future__ import annotations

import pytest
import torch

from cosyui.model.config import SamplingConfig
from cosyui.model.sampler import draw, largest, sample

CONFIG = SamplingConfig(top_p=0.8, top_k=25, win_size=10, tau_r=0.1)


def uniforms(rows: int, seed: int) -> torch.Tensor:
    return torch.rand(rows, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def test_many_draws_follow_the_distribution() -> None:
    """Chi-square over 40,000 draws, with one token that repeats and is redrawn from the rest."""
    logits = torch.randn(1, 30, generator=torch.Generator().manual_seed(4)) * 1.5
    history = torch.tensor([[int(logits.argmax())]])
    rows = 40_000
    found = sample(logits.expand(rows, -1), history.expand(rows, -1), uniforms(rows, 1), CONFIG)
    probability = logits[0].double().softmax(-1)
    value, index = probability.sort(descending=True)
    taken = (value.cumsum(0) - value) < CONFIG.top_p
    nucleus = torch.zeros_like(probability).scatter(0, index[taken], value[taken])
    nucleus /= nucleus.sum()
    repeated = int(history)
    rest = probability.clone()
    rest[repeated] = 0
    expected = nucleus.clone()
    expected[repeated] = 0
    expected += nucleus[repeated] * rest / rest.sum()
    counts = torch.bincount(found, minlength=30).double()
    assert counts[repeated] == 0
    likely = expected * rows >= 5
    chi_square = ((counts - expected * rows)[likely].square() / (expected * rows)[likely]).sum()
    assert chi_square < 2 * int(likely.sum())  # p < 1e-3 for 15 to 29 degrees of freedom


def test_a_row_does_not_depend_on_its_neighbours() -> None:
    logits = torch.randn(6, 200, generator=torch.Generator().manual_seed(0)) * 3
    history = torch.randint(0, 200, (6, 12), generator=torch.Generator().manual_seed(1))
    own = uniforms(6, 2)
    together = sample(logits, history, own, CONFIG)
    alone = torch.cat([sample(logits[i : i + 1], history[i : i + 1], own[i : i + 1], CONFIG) for i in range(6)])
    assert together.tolist() == alone.tolist()


def test_impossible_entries_are_never_drawn() -> None:
    weights = torch.tensor([[0.0, 0.5, 0.0, 0.5, 0.0, 0.0]], dtype=torch.float64)
    edges = torch.tensor([0.0, 0.49999, 0.5, 0.75, 1 - 2**-53], dtype=torch.float64)
    assert [int(draw(weights, edge[None])) for edge in edges] == [1, 1, 3, 3, 3]


def test_forbidden_ids_stay_out_even_when_all_else_repeats() -> None:
    logits = torch.full((200, 5), -torch.inf)
    logits[:, 1:3] = 0.0
    history = torch.tensor([[1]]).expand(200, -1)
    assert set(sample(logits, history, uniforms(200, 3), CONFIG).tolist()) == {2}


@pytest.mark.parametrize("levels", [3, 50, 10_000])
def test_the_largest_come_as_from_a_stable_sort(levels: int) -> None:
    generator = torch.Generator().manual_seed(levels)
    x = torch.randint(levels, (40, 500), generator=generator).float() / levels
    for count in (1, 25, 500):
        value, index = largest(x, count)
        expected = x.sort(dim=-1, descending=True, stable=True)
        assert torch.equal(value, expected.values[:, :count])
        assert torch.equal(index, expected.indices[:, :count])
