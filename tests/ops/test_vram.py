"""A card's memory in parts."""

from hypothesis import given
from hypothesis import strategies as st

from cosyui.ops.nvml import GpuSample
from cosyui.ops.vram import PARTS, EngineMemory, by_card, vram_parts

ENGINE = EngineMemory(
    allocated=400, reserved=450, weights=200, kv_slots=50, graphs=60, features=10, context=40, device_total=1000
)


def gpu(uuid="GPU-a", used=600, others=None, reserved=20):
    return GpuSample(uuid, "card", used=used, total=1000, others=others, reserved=reserved)


def test_parts_add_up_with_what_the_driver_says_of_others():
    parts = vram_parts(ENGINE, gpu(others=100))
    assert parts == {
        "weights": 200,
        "kv_slots": 50,
        "graphs": 60 + 50,
        "features": 10,
        "other": 80,
        "unused": 50,
        "others": 100,
        "driver": 20,
        "free": 380,
    }
    assert tuple(parts) == PARTS


def test_in_a_container_our_own_share_comes_from_pytorch():
    parts = vram_parts(ENGINE, gpu(others=None))
    assert (parts["graphs"], parts["others"], parts["free"]) == (100, 110, 380)


def test_without_driver_the_engine_tells_and_without_engine_all_is_of_others():
    parts = vram_parts(EngineMemory(400, 450, device_used=500, device_total=1000), None)
    assert (parts["other"], parts["unused"], parts["others"], parts["free"]) == (400, 50, 50, 500)
    lost = GpuSample("GPU-a", "card", lost=True)
    assert vram_parts(EngineMemory(400, 450, device_used=500, device_total=1000), lost) == parts
    alone = vram_parts(None, gpu())
    assert (alone["others"], alone["free"]) == (600, 380)
    assert vram_parts(None, None) is None
    assert vram_parts(None, lost) is None


sizes = st.integers(0, 1000)


@given(st.builds(EngineMemory, sizes, sizes, sizes, sizes, sizes, sizes, sizes, sizes), sizes, st.none() | sizes, sizes)
def test_contradictions_give_no_negative_parts(engine, used, others, reserved):
    parts = vram_parts(engine, gpu(used=used, others=others, reserved=reserved))
    assert min(parts.values()) >= 0
    held = reserved + max(used, engine.reserved, engine.allocated)
    assert sum(parts.values()) == max(1000, held)


def test_engines_find_their_cards():
    cards = (gpu("GPU-a"), gpu("GPU-b"))
    one = EngineMemory(1, 2, gpu="GPU-b")
    pairs = by_card([one, EngineMemory(10, 20, weights=5, gpu="b"), EngineMemory(7, 7, gpu="GPU-z")], cards)
    assert [(engine.allocated if engine else None, card.uuid if card else None) for engine, card in pairs] == [
        (None, "GPU-a"),
        (11, "GPU-b"),
        (7, None),
    ]
    assert by_card([EngineMemory(3, 3)], cards[:1]) == [(EngineMemory(3, 3), cards[0])]
    assert by_card([EngineMemory(3, 3)], cards)[2] == (EngineMemory(3, 3), None)


def test_what_is_reserved_for_graphs_alone_is_no_spare_room():
    parts = vram_parts(EngineMemory(500, 900, graphs=100, graph_pools=300, device_used=900, device_total=2000), None)
    assert (parts["graphs"], parts["unused"]) == (400, 100)
    assert sum(parts.values()) == 2000
    crossed = vram_parts(EngineMemory(500, 600, graph_pools=300, device_used=600, device_total=2000), None)
    assert (crossed["graphs"], crossed["unused"]) == (100, 0)
