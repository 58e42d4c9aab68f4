"""The self-test: a good voice passes, a damaged part is named, and nothing of it is left behind."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from cosyui.engine import self_test as module
from cosyui.engine.config import EngineConfig
from cosyui.engine.engine import Engine
from cosyui.engine.request import Failed, Finished, PromptClip
from cosyui.engine.self_test import Findings, self_test, token_agreement, verdict
from cosyui.engine.slots import SlotDecoder
from tests.engine.conftest import finish, request_of


@pytest.fixture(scope="module")
def voice() -> Iterator[Engine]:
    """The embedded voice, one for all: what a test damages it mends again."""
    torch.set_num_threads(1)
    engine = Engine(EngineConfig(model="embedded", device="cpu", threads=1, self_test=False))
    yield engine
    engine.close()


def is_as_before(engine: Engine) -> bool:
    kept = len(engine.prompts), len(engine.lanes), len(engine.stages.flow.pool._prompts)
    return kept == (0, 0, 0) and (engine.finished, engine.failed, engine.has_work) == (0, 0, False)


def test_a_good_voice_passes_and_is_as_before(voice: Engine, caplog: pytest.LogCaptureFixture) -> None:
    assert voice.facts.self_test is None
    found = self_test(voice)
    assert found is not None
    assert found.reason is None
    assert (found.agreement or 0) > module.LEAST_AGREEMENT + 0.15
    assert (found.gain or 0) > module.LEAST_GAIN + 1
    assert is_as_before(voice)
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


def weights_of(engine: Engine) -> dict[str, Tensor]:
    decoder = engine.stages.decoding.decoder
    assert isinstance(decoder, SlotDecoder)
    flow = dict(engine.model.flow.named_parameters())
    return {
        "llm": decoder.model.head,
        "flow": flow["input_embedding.weight"],
        "vocoder": engine.model.vocoder.conv_pre.weight,
    }


@torch.inference_mode()
def shuffle(weight: Tensor) -> Callable[[], object]:
    """Put the rows into another order; the result puts them back."""
    whole = weight.clone()
    weight.copy_(whole[torch.randperm(len(whole), generator=torch.Generator().manual_seed(0))])
    return torch.inference_mode()(lambda: weight.copy_(whole))


@pytest.mark.parametrize("part", ["llm", "flow", "vocoder"])
def test_a_scrambled_part_is_named(voice: Engine, part: str, caplog: pytest.LogCaptureFixture) -> None:
    mend = shuffle(weights_of(voice)[part])
    try:
        found = self_test(voice)
    finally:
        mend()
    assert found is not None
    assert found.reason is not None
    assert found.reason.code == f"self_test_{part}"
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert is_as_before(voice)


def test_a_wrong_speech_tokenizer_is_named(voice: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    real, table = voice.model.speech_tokenizer, np.random.default_rng(0).permutation(6561)
    monkeypatch.setattr(voice.model, "speech_tokenizer", lambda log_mel: table[real(log_mel)])
    found = self_test(voice)
    assert found is not None
    assert found.reason is not None
    assert found.reason.code == "self_test_tokenizer"


def test_whatever_goes_wrong_is_a_reason(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise RuntimeError("no such kernel")

    monkeypatch.setattr(engine.model, "speech_tokenizer", fails)
    found = self_test(engine)
    assert found is not None
    assert found.reason is not None
    assert found.reason.code == "self_test_take"
    assert "no such kernel" in found.reason.message
    assert is_as_before(engine)


def test_without_the_packages_for_clips_there_is_none(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert self_test(engine) is None


def test_random_weights_are_degraded_and_served(engine: Engine, clip: PromptClip) -> None:
    """`engine` was loaded with its self-test."""
    degraded = engine.facts.degraded
    assert degraded is not None
    assert degraded.code == "self_test_untrained"
    assert is_as_before(engine)
    events = finish(engine, request_of(clip))
    assert isinstance(events[-1], Finished)
    assert not any(isinstance(event, Failed) for event in events)


def test_facts_name_versions_and_what_the_encoders_run_on(engine: Engine) -> None:
    assert set(engine.facts.providers.values()) == {"CPU"}
    assert engine.facts.versions["torch"] == torch.__version__
    assert all(engine.facts.versions.values())


GOOD = Findings(agreement=0.7, likelihood=-4.0, gain=2.0, chance=-8.8)


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({}, None),
        ({"failure": "It fell silent."}, "self_test_take"),
        ({"gain": float("nan")}, "self_test_llm"),
        ({"likelihood": -9.0}, "self_test_llm"),
        ({"agreement": float("nan"), "likeness": 0.97}, "self_test_flow"),
        ({"agreement": 0.1, "likeness": 0.97, "failure": "It fell silent."}, "self_test_flow"),
    ],
)
def test_verdicts(changes: dict[str, float], code: str | None) -> None:
    reason = verdict(replace(GOOD, **changes), "cpu")  # type: ignore[arg-type]
    assert (reason and reason.code) == code


def test_agreement_is_one_for_the_same_and_nothing_for_others() -> None:
    one, other = (np.random.default_rng(seed).integers(6561, size=30) for seed in (0, 1))
    assert token_agreement(one, one) == 1.0
    assert abs(token_agreement(one, other)) < 0.2
    assert token_agreement(np.full(30, 7), one) < 0.2
    assert token_agreement(one[:0], one) == 0.0
