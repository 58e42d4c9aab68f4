"""Half precision that fails: the probe that avoids it, and the float32 stages that step in."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from cosyui.engine import probe as probe_module
from cosyui.engine.config import EngineConfig
from cosyui.engine.engine import Engine
from cosyui.engine.probe import probe, probed_precision
from cosyui.engine.request import Finished, PromptClip
from cosyui.engine.segment import Attempt
from cosyui.engine.slots import Decoded
from cosyui.engine.vocoder_runner import VocoderPiece
from cosyui.model.config import load_config
from tests.engine.conftest import ScriptedDecoder, finish, near, pcm, request_of

CPU = torch.device("cpu")
HALF = [torch.float16, torch.bfloat16]


@pytest.fixture(autouse=True)
def chunks_by_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks end where they do on a fast machine: the level of a stream follows its chunks, and they the clock."""
    monkeypatch.setattr(Attempt, "_plan_chunk", lambda attempt, *_: attempt.voice.schedule.advance())


@pytest.fixture(scope="module")
def half(steady: Path) -> Iterator[Engine]:
    engine = Engine(EngineConfig(model=str(steady), device="cpu", threads=1, self_test=False, precision="float16"))
    yield engine
    engine.close()


@pytest.fixture(scope="module")
def whole(steady: Path) -> Iterator[Engine]:
    engine = Engine(EngineConfig(model=str(steady), device="cpu", threads=1, self_test=False))
    yield engine
    engine.close()


def assert_given_back(engine: Engine) -> None:
    """An idle engine keeps nothing in float32."""
    assert not engine.stages.safe.loaded
    assert all(lane.kind != "safe" for lane in engine.rendering.lanes)


@pytest.mark.parametrize(("stream", "bad_call"), [(False, 0), (True, 0), (True, 1)])
def test_sound_that_is_not_finite_is_made_again_in_float32_and_nobody_hears_it(
    half: Engine, whole: Engine, clip: PromptClip, monkeypatch: pytest.MonkeyPatch, stream: bool, bad_call: int
) -> None:
    tokens = [(37 * index * index) % 4099 for index in range(90)]
    for one in (half, whole):
        monkeypatch.setattr(one.stages.decoding, "decoder", ScriptedDecoder([tokens]))
    expected = pcm(finish(whole, request_of(clip, stream=stream)))
    good, calls, before = half.studio.vocoder.run, iter(range(100)), half.rendering.redone

    def spoiled(pieces: list[VocoderPiece]) -> list[torch.Tensor]:
        waves = good(pieces)
        return [wave * float("nan") for wave in waves] if next(calls) == bad_call else waves

    monkeypatch.setattr(half.studio.vocoder, "run", spoiled)
    events = finish(half, request_of(clip, stream=stream))
    assert isinstance(events[-1], Finished)
    assert (events[-1].stats.retries, half.rendering.redone - before) == (0, 1)
    found = pcm(events)
    assert near(found, expected)
    if not stream:  # everything that was heard came from float32
        assert np.abs(found.astype(int) - expected).max() <= 2
    assert_given_back(half)


def test_a_logit_that_is_not_finite_is_decoded_again_in_float32_with_the_same_seed(
    half: Engine, clip: PromptClip, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = pcm(finish(half, request_of(clip)))
    monkeypatch.setattr(
        half.stages.decoding.decoder, "poll", lambda wait: {slot: Decoded([], True, True) for slot in range(1)}
    )
    safe, loads = half.stages.safe, []
    good = safe._load_llm
    monkeypatch.setattr(safe, "_load_llm", lambda: loads.append(1) or good())
    events = finish(half, request_of(clip))
    assert isinstance(events[-1], Finished)
    assert events[-1].stats.retries == 1
    assert loads == [1]
    assert len(pcm(events)) == pytest.approx(len(expected), rel=0.5)
    assert_given_back(half)


def overflowing(folder: Path, tiny: Path) -> Path:
    """The tiny checkpoint with a flow whose half-precision queries overflow, but not in bfloat16."""
    folder.mkdir()
    for path in tiny.iterdir():
        (folder / path.name).symlink_to(path)
    state = torch.load(tiny / "flow.pt", weights_only=True)
    block = "decoder.estimator.transformer_blocks.0.attn"
    for name in (f"{block}.to_v.weight", f"{block}.to_v.bias"):
        state[name] = state[name] * 1e6
    out = f"{block}.to_out.0.weight"
    state[out] = state[out] / 1e6
    (folder / "flow.pt").unlink()
    torch.save(state, folder / "flow.pt")
    return folder


def test_the_probe_takes_the_first_type_that_holds(tiny: Path, tmp_path: Path) -> None:
    config = load_config(tiny)
    assert probe(config, tiny, "llm.pt", CPU, HALF).flow == torch.float16
    found = probe(config, overflowing(tmp_path / "big", tiny), "llm.pt", CPU, HALF)
    assert (found.llm, found.flow) == (torch.float16, torch.bfloat16)
    assert probe(config, tiny, "llm.pt", CPU, []).flow == torch.float32


def test_what_was_found_is_remembered_until_the_files_change(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = tmp_path / "model"
    folder.mkdir()
    for path in tiny.iterdir():
        (folder / path.name).symlink_to(path)
    first = probed_precision(load_config(folder), folder, "llm.pt", CPU)
    monkeypatch.setattr(probe_module, "probe", lambda *_: pytest.fail("it was remembered"))
    assert probed_precision(load_config(folder), folder, "llm.pt", CPU) == first
    (note,) = (tmp_path / "cache").rglob("*.json")
    assert set(json.loads(note.read_text())) == {"llm", "flow", "vocoder"}
    (folder / "hift.pt").unlink()
    (folder / "hift.pt").write_bytes((tiny / "hift.pt").read_bytes() + b" ")
    with pytest.raises(pytest.fail.Exception):
        probed_precision(load_config(folder), folder, "llm.pt", CPU)
