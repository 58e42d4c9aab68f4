"""A load tells where it is, at its real steps."""

from __future__ import annotations

from cosyui.engine.engine import Engine
from cosyui.engine.loading import BEGINS, LoadProgress


def test_a_load_goes_through_its_stages_to_the_end(loaded: Engine, told: list[LoadProgress]) -> None:
    stages = list(dict.fromkeys(progress.stage for progress in told))
    assert stages == [stage for stage in BEGINS if stage != "process"]  # that one is the parent's to tell
    shares = [progress.share for progress in told]
    assert shares == sorted(shares)
    assert told[-1] == LoadProgress("ready", 1.0)
    assert len(set(shares)) > len(stages)
