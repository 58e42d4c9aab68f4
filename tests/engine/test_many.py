"""Many requests at once: nobody's audio is lost, swapped or changed by who else is there."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from cosyui.engine.config import EngineConfig
from cosyui.engine.engine import Engine
from cosyui.engine.request import Cancelled, Event, Failed, Finished, Mode, PromptClip, Started, SynthesisRequest
from cosyui.engine.segment import Attempt
from tests.engine.conftest import finish, near, pcm, request_of

PLACES = 4
TEXTS = ("Yes.", "No, not now.", "Come here, my friend.")


@pytest.fixture(autouse=True)
def chunks_by_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks end where they do on a fast machine: the level of a stream follows its chunks, and they the clock."""
    monkeypatch.setattr(Attempt, "_plan_chunk", lambda attempt, *_: attempt.voice.schedule.advance())


@pytest.fixture(scope="module")
def many(steady: Path) -> Iterator[Engine]:
    engine = Engine(EngineConfig(model=str(steady), device="cpu", threads=1, self_test=False, places=PLACES))
    assert engine.facts.places == PLACES
    yield engine
    engine.close()


def mixed(clip: PromptClip, count: int, seed: int) -> list[SynthesisRequest]:
    """Requests of all kinds; those with the same number modulo 6 say the same."""
    draw, requests = random.Random(seed), []
    kinds = [(draw.choice(TEXTS), draw.choice(list(Mode)), draw.random() < 0.5, number) for number in range(6)]
    for index in range(count):
        text, mode, stream, take = kinds[index % len(kinds)]
        name = f"{index}"
        requests.append(
            request_of(clip, name, text=text, mode=mode, stream=stream, seed=take, long=draw.random() < 0.2)
        )
    return requests


def by_request(events: list[Event]) -> dict[str, list[Event]]:
    found: dict[str, list[Event]] = defaultdict(list)
    for event in events:
        found[event.request_id].append(event)
    return found


def test_everybody_gets_what_they_would_get_alone(many: Engine, clip: PromptClip) -> None:
    requests = mixed(clip, 18, seed=1)
    alone = {index: pcm(finish(many, requests[index])) for index in range(6)}
    assert not near(alone[0], alone[1])
    events = by_request(finish(many, *requests))
    assert set(events) == {request.id for request in requests}
    started = [event.request_id for found in events.values() for event in found if isinstance(event, Started)]
    assert len(started) == len(requests)
    for request in requests:
        own = events[request.id]
        assert isinstance(own[-1], Finished), own[-1]
        assert near(pcm(own), alone[int(request.id) % 6])


def test_requests_are_worked_on_side_by_side(many: Engine, clip: PromptClip) -> None:
    for index in range(PLACES + 2):
        many.submit(request_of(clip, f"{index}", text=TEXTS[2], seed=index))
    most = 0
    while many.has_work:
        many.step()
        most = max(most, many.stats().running)
        assert many.stages.decoding.free >= 0
    assert most == PLACES


@pytest.mark.parametrize("seed", range(3))
def test_cancelling_at_random_frees_everything_and_touches_nobody_else(
    many: Engine, clip: PromptClip, seed: int
) -> None:
    draw = random.Random(seed)
    requests = mixed(clip, 12, seed=10 + seed)
    alone = {index: pcm(finish(many, requests[index])) for index in range(6)}
    events: list[Event] = []
    waiting, gone = list(requests), set()
    while waiting or many.has_work:
        if waiting and draw.random() < 0.2:
            many.submit(waiting.pop(0))
        if draw.random() < 0.05 and (works := list(many.lanes)):
            name = draw.choice(works).request.id
            many.cancel(name)
            gone.add(name)
        events += many.step()
    found = by_request(events)
    assert gone
    for request in requests:
        own = found[request.id]
        ends = [event for event in own if isinstance(event, Finished | Failed | Cancelled)]
        assert len(ends) == 1
        assert own[-1] is ends[0]
        assert isinstance(ends[0], Cancelled if request.id in gone else Finished)
        if request.id not in gone:
            assert near(pcm(own), alone[int(request.id) % 6])
    assert many.stages.decoding.free == PLACES
    assert not many.stages.decoding.busy
    pool = many.stages.flow.pool
    assert pool.free == pool.count
    assert not many.rendering.busy


def test_a_batch_that_does_not_fit_is_halved_and_nobody_fails(
    many: Engine, clip: PromptClip, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests = [request_of(clip, f"{index}", text=TEXTS[1], seed=3) for index in range(PLACES)]
    expected = pcm(finish(many, requests[0]))
    lane, good, sizes = many.rendering.lanes[0], many.studio.flow.run, []

    def small_only(pieces: list[object]) -> list[torch.Tensor]:
        sizes.append(len(pieces))
        if len(pieces) > 1:
            raise torch.OutOfMemoryError("full")
        return good(pieces)  # type: ignore[arg-type]

    monkeypatch.setattr(many.studio.flow, "run", small_only)
    before = lane.max_frames
    events = by_request(finish(many, *requests))
    assert max(sizes) > 1, "they met in a batch"
    assert lane.max_frames < before
    lane.max_frames = before
    for request in requests:
        assert isinstance(events[request.id][-1], Finished)
        assert near(pcm(events[request.id]), expected)


def test_every_thread_works_on_the_gpu_of_its_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen: list[torch.device] = []
    monkeypatch.setattr(torch.cuda, "set_device", chosen.append)
    for name in ("cpu", "cuda:1"):
        Engine._enter(torch.device(name))
    assert chosen == [torch.device("cuda:1")]
