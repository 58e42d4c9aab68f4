"""What is told of GPU memory, on a card that only pretends."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from cosyui.engine import gauge as gauge_module
from cosyui.engine.engine import Engine
from cosyui.engine.gauge import Gauge, Parts
from cosyui.engine.memory import MemoryPlan
from cosyui.engine.request import EngineStats, Finished, PromptClip
from tests.engine.conftest import request_of

MAIN, PRIVATE = (0, 0), (0, 1)


class Card:
    """An allocator with one high-water mark."""

    def __init__(self) -> None:
        self.now = self.peak = 1000

    def hold(self, amount: int) -> None:
        self.now = amount
        self.peak = max(self.peak, amount)

    def stats(self, _device: Any) -> dict[str, Any]:
        names = ("allocated_bytes", "reserved_bytes", "inactive_split_bytes")
        return {name: {"all": {"current": self.now, "peak": self.peak}} for name in names}

    def reset(self, _device: Any) -> None:
        self.peak = self.now


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch) -> Card:
    card = Card()
    blocks = [{"size": 30, "state": "inactive"}, {"size": 70, "state": "active_allocated"}]
    segments = [
        {"total_size": 100, "active_size": 70, "segment_pool_id": MAIN, "blocks": blocks},
        {
            "total_size": 80,
            "active_size": 20,
            "segment_pool_id": PRIVATE,
            "blocks": [{"size": 60, "state": "inactive"}],
        },
    ]
    monkeypatch.setattr(torch.cuda, "memory_stats_as_nested_dict", card.stats)
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", card.reset)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda _: card.now)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (90_000 - card.now, 100_000))
    monkeypatch.setattr(torch.cuda, "memory_snapshot", lambda: segments)
    properties = SimpleNamespace(total_memory=100_000, uuid="abc-1")
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: properties)
    return card


@pytest.fixture
def gauge(card: Card) -> Gauge:
    return Gauge(torch.device("cuda:0"))


def test_each_request_has_the_peak_of_the_engine_while_it_was_worked_on(card: Card, gauge: Gauge) -> None:
    card.hold(5000)
    card.hold(1000)
    gauge.begin("one")
    card.hold(2000)
    gauge.begin("two")
    card.hold(1500)
    one = gauge.end("one")
    card.hold(1800)
    card.hold(1000)
    two = gauge.end("two")
    assert (one.allocated_before, one.allocated_peak, one.allocated_after) == (1000, 2000, 1500)
    assert (two.allocated_before, two.allocated_peak, two.allocated_after) == (2000, 2000, 1000)
    assert (two.device_before, two.device_peak, two.device_after) == (12_000, 12_000, 11_000)
    assert gauge.highest.allocated_peak == 5000
    gauge.forget_peaks()
    assert gauge.highest.allocated_peak == 0


def test_who_is_dropped_leaves_nothing_behind(card: Card, gauge: Gauge) -> None:
    gauge.begin("one")
    gauge.drop("one")
    gauge.drop("one")
    assert gauge.end("one").allocated_before is None
    assert not gauge._spans


def test_parts_of_a_loaded_model(card: Card, gauge: Gauge) -> None:
    stages: Any = SimpleNamespace(slot_bytes=200, flow=SimpleNamespace(pool=SimpleNamespace(nbytes=100)))
    gauge.loaded(MemoryPlan(1, {"weights": 300}, 1, 1, 1, 0, 1, 0), stages)
    assert gauge.parts == Parts(weights=300, kv_slots=200, graphs=400, pools=60, kept=100)


def test_free_blocks_are_looked_at_when_nothing_is_done_and_not_often(
    card: Card, gauge: Gauge, monkeypatch: pytest.MonkeyPatch
) -> None:
    prompts: Any = SimpleNamespace(nbytes=7)
    bare = EngineStats(0, 0, 0, 0, rss=0)
    busy = gauge.fill(bare, prompts, idle=False)
    assert busy.allocated_peak >= busy.allocated > 0
    assert (busy.largest_free, busy.inactive_splits, busy.gpu, busy.features) == (0, 1000, "abc-1", 7)
    assert gauge.fill(bare, prompts, idle=True).largest_free == 30
    monkeypatch.setattr(gauge_module, "_segments", lambda: pytest.fail("again so soon"))
    assert gauge.fill(bare, prompts, idle=True).largest_free == 30


def test_an_allocator_that_keeps_no_account(gauge: Gauge, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise RuntimeError("not supported")

    monkeypatch.setattr(torch.cuda, "memory_snapshot", refuse)
    assert gauge.fill(EngineStats(0, 0, 0, 0, rss=0), SimpleNamespace(nbytes=0), idle=True).largest_free == 0


def test_on_a_cpu_only_the_process_is_known(engine: Engine, clip: PromptClip) -> None:
    engine.submit(request_of(clip))
    events = []
    while engine.has_work:
        events += engine.step()
    last = events[-1]
    assert isinstance(last, Finished)
    memory = last.stats.memory
    assert memory is not None
    assert memory.rss > 1 << 20
    assert {value for name, value in vars(memory).items() if name != "rss"} == {None}
    stats = engine.stats()
    assert (stats.weights, stats.allocated, stats.device_total, stats.gpu) == (0, 0, 0, "")
    assert stats.features > 0
