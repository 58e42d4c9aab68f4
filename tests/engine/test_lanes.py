"""Whose turn it is, for any mix of short takes and long jobs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cosyui.engine.lanes import Lanes
from cosyui.engine.request import Mode, PromptClip, SynthesisRequest

CLIP = PromptClip(np.zeros(1, np.float32), 16_000)


@dataclass(eq=False)
class Work:
    """``left`` segments."""

    request: SynthesisRequest
    left: int


def work(name: str, segments: int, *, long: bool) -> Work:
    return Work(SynthesisRequest(name, "text", Mode.ZERO_SHOT, CLIP, 1, long=long), segments)


def run(lanes: Lanes[Work], arrivals: dict[int, list[Work]]) -> dict[int, str]:
    """One segment a turn, with arrivals before the given turns; who had each turn."""
    order: dict[int, str] = {}
    for turn in range(10_000):
        for one in arrivals.get(turn, []):
            lanes.add(one)
        current = next(iter(lanes.running()), None)
        if current is None:
            if turn > max(arrivals, default=0):
                return order
            continue
        order[turn] = current.request.id
        current.left -= 1
        if current.left:
            lanes.border(current)
        else:
            lanes.remove(current)
    raise AssertionError("it does not end")


@pytest.mark.parametrize(
    ("arrivals", "order"),
    [
        ({0: [("L", 3), ("s", 1)]}, "sLLL"),
        ({0: [("L", 3)], 1: [("s", 1)]}, "LsLL"),
        ({0: [("L", 4)], 1: [("s", 1), ("t", 1), ("u", 1)]}, "LsLtLuL"),
        ({0: [("L", 2), ("M", 2)], 1: [("s", 2)]}, "LssLMM"),
        ({0: [("s", 2), ("L", 1), ("t", 1)]}, "ssLt"),
        ({0: [("s", 3)], 1: [("L", 1)], 2: [("t", 1)]}, "sssLt"),
    ],
)
def test_turns(arrivals: dict[int, list[tuple[str, int]]], order: str) -> None:
    made = {turn: [work(n, k, long=n.isupper()) for n, k in some] for turn, some in arrivals.items()}
    assert "".join(run(Lanes(), made).values()) == order


@given(st.lists(st.tuples(st.integers(0, 20), st.booleans(), st.integers(1, 4)), max_size=12))
def test_all_is_done_in_order_short_takes_in_one_go_and_nobody_starves(plan: list[tuple[int, bool, int]]) -> None:
    plan = sorted(plan, key=lambda one: one[0])
    arrivals: dict[int, list[Work]] = {}
    for index, (turn, long, segments) in enumerate(plan):
        arrivals.setdefault(turn, []).append(work(str(index), segments, long=long))
    turns = run(Lanes(), arrivals)
    had = {index: [turn for turn, name in turns.items() if name == str(index)] for index in range(len(plan))}
    for index, (arrived, long, segments) in enumerate(plan):
        assert len(had[index]) == segments
        assert had[index][0] >= arrived
        if not long:
            assert had[index] == list(range(had[index][0], had[index][0] + segments))
    for long in (False, True):
        lane = [int(name) for name in turns.values() if plan[int(name)][1] == long]
        assert lane == sorted(lane)
    for turn, name in turns.items():
        before = turns.get(turn - 1)
        if before not in (None, name) and not plan[int(before)][1] and not plan[int(name)][1]:
            held_up = [i for i, (arrived, long, _) in enumerate(plan) if long and arrived < turn < had[i][-1]]
            assert held_up == [], "a long job gets a segment between two short takes"


def test_removed_work_is_gone_and_the_rest_goes_on() -> None:
    lanes: Lanes[Work] = Lanes()
    story, take = work("L", 3, long=True), work("s", 1, long=False)
    lanes.add(story)
    assert lanes.running() == [story]
    lanes.add(take)
    assert lanes.running() == [story], "a segment is not interrupted"
    lanes.remove(story)
    assert lanes.find("L") is None
    assert lanes.running() == [take]
    lanes.remove(take)
    assert len(lanes) == 0
    assert lanes.running() == []


def test_a_long_job_gives_its_place_up_only_when_all_places_are_taken() -> None:
    lanes: Lanes[Work] = Lanes(width=2)
    story, first, second = work("L", 3, long=True), work("a", 1, long=False), work("b", 1, long=False)
    lanes.add(story)
    lanes.add(first)
    assert lanes.running() == [first, story]
    lanes.border(story)
    assert lanes.running() == [first, story], "nobody waits"
    lanes.add(second)
    lanes.border(first)
    assert lanes.running() == [first, story], "a short take is done in one go, and the job is in a segment"
    lanes.border(story)
    assert lanes.running() == [first, second]
    lanes.remove(first)
    assert lanes.running() == [second, story]
