"""How many replicas, and what each gets."""

import pytest

from cosyui.errors import SetupError
from cosyui.host.layout import Layout
from cosyui.host.scaling import wanted_replicas
from cosyui.settings import Settings


@pytest.mark.parametrize(
    ("speech", "places", "wanted"),
    [
        ([], [], 1),
        ([0.0, 0.0], [2, 2], 1),
        ([20.0], [2], 1),
        ([20.1], [2], 2),
        ([40.0, 0.0, 0.0], [2, 2, 2], 2),
        ([2000.0], [2], 100),  # one long job counts for what it is
        ([100.0], [0], 10),  # one that loads again has no places at the moment
        ([60.0, 60.0], [1, 5], 4),
    ],
)
def test_seconds_of_speech_ask_for_replicas(speech, places, wanted):
    assert wanted_replicas(speech, places, 10.0) == wanted


def test_more_speech_never_asks_for_fewer():
    counts = [wanted_replicas([seconds], [4]) for seconds in range(0, 2000, 7)]
    assert counts == sorted(counts)


def test_a_layout_is_read_and_refused():
    settings = Settings.load({}, {})
    assert Layout.read({"num_gpus": "1", "max_replicas": 4}, settings).max_replicas == 4
    for given, said in (
        ({"replicas": 2}, "known are min_replicas"),
        ({"min_replicas": 3, "max_replicas": 2}, "more than max_replicas"),
        ({"num_gpus": 1.5}, "num_gpus"),
        ({"front_resource": "a b"}, "front_resource"),
        ({"num_gpus": 0.5}, "COSYUI_VRAM_BUDGET"),
    ):
        with pytest.raises(SetupError, match=said):
            Layout.read(given, settings)
    assert Layout.read({"num_gpus": 0.5}, Settings.load({"vram_budget": "6GiB"}, {})).num_gpus == 0.5
    with pytest.raises(SetupError, match="COSYUI_DEVICES"):
        Layout.read({}, Settings.load({"devices": "0,1"}, {}))
