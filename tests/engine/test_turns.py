"""Decoding and rendering take turns where a decode step takes the whole device, and nobody waits for long."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest

from cosyui.engine import turns as turns_module
from cosyui.engine.config import EngineConfig
from cosyui.engine.decode import LengthRule
from cosyui.engine.engine import Engine
from cosyui.engine.needs import Render
from cosyui.engine.request import AudioChunk, Finished, PromptClip
from cosyui.engine.slots import Decoded
from cosyui.engine.token_stream import Decoding
from cosyui.engine.turns import CROWD, LONGEST_GATHERING, LONGEST_HOLD, SOON, WORTH_FRAMES, Turns
from tests.engine.conftest import finish, pcm, request_of

NOW = 1000.0


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Turns' own, which stands still."""
    stopped = SimpleNamespace(now=NOW)
    monkeypatch.setattr(turns_module, "time", SimpleNamespace(perf_counter=lambda: stopped.now))
    return stopped


class Crowd:
    """Begins when every one of ``scripts`` has its segment; then each launch gives each of them a token.

    ``beside``: launches while a batch was on the device.
    """

    def __init__(self, scripts: Sequence[Sequence[int]], alone: bool, on_device: Callable[[], bool] = bool) -> None:
        self.scripts = list(scripts)
        self.alone = alone
        self.on_device = on_device
        self.running: dict[int, Iterator[int]] = {}
        self.enqueued = False
        self.beside = 0

    @property
    def free(self) -> int:
        return len(self.scripts)

    def join(self, *_: object) -> int:
        slot = len(self.scripts)
        self.running[slot] = iter(self.scripts.pop())
        return slot

    def leave(self, slot: int) -> None:
        del self.running[slot]

    def launch(self) -> bool:
        self.enqueued = not self.scripts
        self.beside += self.enqueued and self.on_device()
        return self.enqueued

    def poll(self, wait: bool) -> dict[int, Decoded]:
        enqueued, self.enqueued = self.enqueued, False
        tokens = {slot: next(left, None) for slot, left in self.running.items()} if enqueued else {}
        return {slot: Decoded([] if token is None else [token], token is None, False) for slot, token in tokens.items()}


def turns_of(*, alone: bool = True, rows: int = CROWD, launched: float = NOW) -> Turns:
    """Of a decoder with so many segments, whose last steps were enqueued then; a render's frames are its ``end``."""
    decoding = Decoding(Crowd([[]] * rows, alone))
    for _ in range(rows):
        decoding.open([], [], LengthRule(1, 2), 0)
    decoding.launched = launched
    return Turns(decoding, lambda render: render.end)


def render(frames: int, since: float = NOW) -> Render:
    return Render(None, frames, final=True, since=since)  # type: ignore[arg-type]


def test_decoding_waits_for_a_batch_on_the_device() -> None:
    for soonest in (None, NOW + 2 * SOON):
        assert turns_of().held(True, soonest)
        assert not turns_of().held(False, soonest)


def test_decoding_beside_other_work_never_waits() -> None:
    for rendering in (False, True):
        assert not turns_of(alone=False).held(rendering, None)


@pytest.mark.parametrize("ahead", [-5.0, 0.0, 0.9 * SOON])
def test_decoding_does_not_wait_when_a_listener_is_running_dry(ahead: float) -> None:
    assert not turns_of().held(True, NOW + ahead)


def test_decoding_goes_on_after_the_longest_hold(clock: SimpleNamespace) -> None:
    turns = turns_of()
    clock.now = NOW + 0.9 * LONGEST_HOLD
    assert turns.held(True, None)
    clock.now = NOW + 1.1 * LONGEST_HOLD
    assert not turns.held(True, None)


def test_a_batch_waits_until_it_is_worth_the_pause() -> None:
    half = WORTH_FRAMES // 2
    assert not turns_of().gathered([render(half)])
    assert not turns_of().gathered([render(half), render(half - 1)])
    assert turns_of().gathered([render(half), render(WORTH_FRAMES - half)])


def test_a_batch_waits_only_where_more_is_to_come_and_the_device_is_shared_in_turns() -> None:
    few = [render(1)]
    assert not turns_of().gathered(few)
    assert turns_of(rows=CROWD - 1).gathered(few)
    assert turns_of(alone=False).gathered(few)


def test_a_batch_waits_no_longer_than_its_oldest_may(clock: SimpleNamespace) -> None:
    waiting = [render(1, NOW + 0.1), render(1, NOW), render(1, NOW + 0.2)]
    clock.now = NOW + 0.9 * LONGEST_GATHERING
    assert not turns_of().gathered(waiting)
    clock.now = NOW + 1.1 * LONGEST_GATHERING
    assert turns_of().gathered(waiting)


def test_a_stream_gets_all_its_sound_when_decoding_waits_for_each_of_its_chunks(
    engine: Engine, clip: PromptClip, monkeypatch: pytest.MonkeyPatch, clock: SimpleNamespace
) -> None:
    clock.now = 0.0  # before every deadline and every launch: it waits wherever it may
    sounds = {}
    for alone in (False, True):
        decoder = Crowd([range(100, 220)], alone, lambda: engine.rendering.on_device)
        monkeypatch.setattr(engine.stages.decoding, "decoder", decoder)
        events = finish(engine, request_of(clip, stream=True))
        assert isinstance(events[-1], Finished)
        assert sum(isinstance(event, AudioChunk) for event in events) > 2
        assert (decoder.beside == 0) == alone
        sounds[alone] = pcm(events)
    assert len(sounds[True]) == len(sounds[False])


@pytest.fixture(scope="module")
def wide(tiny: Path) -> Iterator[Engine]:
    """An engine that works on three requests at a time."""
    engine = Engine(EngineConfig(model=str(tiny), device="cpu", threads=1, self_test=False, places=3))
    yield engine
    engine.close()


@pytest.mark.parametrize(
    ("alone", "worth", "sizes"), [(True, 10**9, [2, 1]), (True, 1, [1, 1, 1]), (False, 10**9, [1, 1, 1])]
)
def test_whole_takes_are_rendered_together_when_others_are_still_decoded(
    wide: Engine,
    clip: PromptClip,
    monkeypatch: pytest.MonkeyPatch,
    clock: SimpleNamespace,
    alone: bool,
    worth: int,
    sizes: list[int],
) -> None:
    """Where it pays and not before; and nothing waits for what does not come."""
    clock.now = 0.0  # nothing has waited for long
    monkeypatch.setattr(turns_module, "CROWD", 1)
    monkeypatch.setattr(turns_module, "WORTH_FRAMES", worth)
    decoder = Crowd([range(100, 120), range(100, 140), range(100, 180)], alone)
    monkeypatch.setattr(wide.stages.decoding, "decoder", decoder)
    (lane,) = wide.rendering.lanes
    found, launch = [], lane.launch

    def watched(renders: list[Render]) -> None:
        found.append(len(renders))
        launch(renders)

    monkeypatch.setattr(lane, "launch", watched)
    events = finish(wide, *(request_of(clip, name) for name in "abc"))
    assert sum(isinstance(event, Finished) for event in events) == 3
    assert found == sizes
