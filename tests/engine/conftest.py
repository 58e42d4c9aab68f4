"""A tiny random checkpoint, loaded once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch

from cosyui.bench.likeness import Verdict, compare
from cosyui.bench.make_checkpoint import make_checkpoint
from cosyui.engine.config import EngineConfig
from cosyui.engine.engine import Engine
from cosyui.engine.loading import LoadProgress
from cosyui.engine.request import AudioChunk, Event, Mode, PromptClip, SynthesisRequest
from cosyui.engine.slots import Decoded


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("checkpoint") / "tiny"
    make_checkpoint(folder, "tiny", seed=3)
    return folder


@pytest.fixture(scope="session")
def steady(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One of steady pitch: rounding errors do not become another sound through the phase."""
    folder = tmp_path_factory.mktemp("checkpoint") / "steady"
    make_checkpoint(folder, "tiny", seed=3, steady_pitch=True)
    return folder


@pytest.fixture(scope="session")
def told() -> list[LoadProgress]:
    """What the load of `loaded` told of itself."""
    return []


@pytest.fixture(scope="session")
def loaded(tiny: Path, told: list[LoadProgress]) -> Iterator[Engine]:
    torch.set_num_threads(1)
    engine = Engine(EngineConfig(model=str(tiny), device="cpu", threads=1), told.append)
    yield engine
    engine.close()


@pytest.fixture
def engine(loaded: Engine) -> Engine:
    assert not loaded.has_work
    loaded.prompts.clear()
    return loaded


@pytest.fixture(scope="session")
def clip() -> PromptClip:
    t = np.arange(4 * 24_000) / 24_000
    wave = 0.3 * np.sin(2 * np.pi * (140 * t + 3 * np.sin(4 * t))) * (0.6 + 0.4 * np.sin(11 * t))
    return PromptClip(wave.astype(np.float32), 24_000, "Hello there.")


def request_of(clip: PromptClip, name: str = "one", **changes: object) -> SynthesisRequest:
    values: dict[str, object] = {
        "id": name,
        "text": "Yes.",
        "mode": Mode.ZERO_SHOT,
        "prompt": clip,
        "seed": 7,
        "instruction": "Speak slowly.",
    }
    return SynthesisRequest(**{**values, **changes})  # type: ignore[arg-type]


def finish(engine: Engine, *requests: SynthesisRequest) -> list[Event]:
    """Submit and step until nothing is left."""
    for request in requests:
        engine.submit(request)
    events: list[Event] = []
    while engine.has_work:
        events += engine.step()
    return events


def pcm(events: list[Event]) -> np.ndarray:
    return np.frombuffer(b"".join(e.pcm for e in events if isinstance(e, AudioChunk)), dtype="<i2")


class ScriptedDecoder:
    """Stands in for a `SlotDecoder`: segment after segment gets the next of ``scripts``, one token a step."""

    free = 1

    alone = False

    def __init__(self, scripts: Iterable[Sequence[int]]) -> None:
        self.scripts = iter(scripts)
        self.left: Iterator[int] | None = None
        self.taken: list[int] = []

    def join(self, *_: object) -> int:
        self.left = iter(next(self.scripts))
        self.taken.append(0)
        return 0

    def leave(self, slot: int) -> None:
        self.left = None

    def launch(self) -> bool:
        return self.left is not None

    def poll(self, wait: bool) -> dict[int, Decoded]:
        assert self.left is not None
        token = next(self.left, None)
        self.taken[-1] += token is not None
        return {0: Decoded([], True, False) if token is None else Decoded([token], False, False)}


def near(found: np.ndarray, expected: np.ndarray) -> bool:
    """The same sound of steady pitch, but for the last bits."""
    return compare(found, expected)[0] in (Verdict.EQUAL, Verdict.CLOSE)
