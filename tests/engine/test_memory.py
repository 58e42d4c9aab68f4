"""How a budget of GPU memory is shared out, for cards that are not here."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from cosyui.engine import memory
from cosyui.engine.engine import Engine
from cosyui.engine.memory import LONGEST_PIECE, MIB, MOST_SLOTS, give_back, hold_to, plan_memory
from cosyui.errors import SetupError
from cosyui.model.cosyvoice3 import CosyVoice3

CARD = 12_288 * MIB
WEIGHTS = 1_400 * MIB


@pytest.fixture
def model(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> CosyVoice3:
    """One of the released sizes' bytes on a card of 12 GiB, as far as the plan looks."""
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: SimpleNamespace(total_memory=CARD))
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda _: WEIGHTS)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    monkeypatch.setattr(memory, "used_up_bytes", lambda _: 264 * MIB)
    monkeypatch.setattr(memory, "flow_frame_bytes", lambda _: 47 * 1024)
    monkeypatch.setattr(memory, "vocoder_bytes", lambda *_: 241 * 1024)
    monkeypatch.setattr(
        memory.SlotDecoder, "nbytes", staticmethod(lambda _config, slots, *_: 60 * MIB + slots * 33 * MIB)
    )
    return replace(engine.model, device=torch.device("cuda:0"))


@pytest.mark.parametrize("mib", [3072, 4096, 6144, 8192, 12_288])
def test_everything_fits_into_the_budget_and_the_longest_segment_into_a_batch(model: CosyVoice3, mib: int) -> None:
    plan = plan_memory(model, mib * MIB)
    assert sum(plan.parts.values()) == plan.budget == mib * MIB
    assert all(size >= 0 for size in plan.parts.values())
    assert plan.flow_frames >= LONGEST_PIECE
    assert 1 <= plan.slots <= MOST_SLOTS
    assert f"{mib} MiB" in str(plan)


def test_more_memory_never_buys_less(model: CosyVoice3) -> None:
    plans = [plan_memory(model, mib * MIB) for mib in range(3072, 12_289, 512)]
    for what in ("slots", "flow_frames", "vocoder_frames"):
        bought = [getattr(plan, what) for plan in plans]
        assert bought == sorted(bought)
    assert plans[0].slots < plans[-1].slots


def test_without_a_budget_it_is_four_fifths_and_never_more_than_the_card(model: CosyVoice3) -> None:
    assert plan_memory(model).budget == int(0.8 * CARD)
    assert plan_memory(model, 2 * CARD).budget == CARD


def test_fewer_places_leave_more_for_streams(model: CosyVoice3) -> None:
    few, many = plan_memory(model, 8192 * MIB, places=2), plan_memory(model, 8192 * MIB)
    assert few.slots == 2 < many.slots
    assert few.flow_cache_bytes > many.flow_cache_bytes


def test_too_small_a_budget_is_refused_with_what_is_needed(model: CosyVoice3) -> None:
    with pytest.raises(SetupError, match="COSYUI_VRAM_BUDGET") as caught:
        plan_memory(model, 2048 * MIB)
    needed = int(str(caught.value).split("needs ")[1].split()[0])
    assert plan_memory(model, needed * MIB).slots == 1


def test_the_allocator_is_held_to_what_cuda_leaves_of_the_budget(
    model: CosyVoice3, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[float] = []
    monkeypatch.setattr(torch.cuda, "set_per_process_memory_fraction", lambda share, _: told.append(share))
    hold_to(torch.device("cpu"), 0)
    hold_to(model.device, 4096 * MIB)
    assert told == [pytest.approx((4096 * MIB - memory.CONTEXT) / CARD)]


@pytest.mark.parametrize(
    ("policy", "idle", "unused", "given"),
    [
        ("auto", True, 600, True),
        ("auto", True, 500, False),
        ("auto", False, 6000, False),
        ("always", False, 0, True),
        ("never", True, 6000, False),
    ],
)
def test_unused_memory_goes_back_by_policy(
    monkeypatch: pytest.MonkeyPatch, policy: str, idle: bool, unused: int, given: bool
) -> None:
    calls: list[None] = []
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda _: WEIGHTS)
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda _: WEIGHTS + unused * MIB)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: calls.append(None))
    give_back(torch.device("cuda:0"), policy, idle=idle)  # type: ignore[arg-type]
    give_back(torch.device("cpu"), policy, idle=idle)  # type: ignore[arg-type]
    assert bool(calls) == given
