"""What the engine promises: events in order, audio of the right length, seeds, cancelling, nothing kept."""

from __future__ import annotations

import gc
import weakref
from dataclasses import replace

import numpy as np
import pytest
import torch

from cosyui.engine import take as take_module
from cosyui.engine.engine import Engine
from cosyui.engine.request import AudioChunk, Cancelled, Event, Failed, Finished, Mode, PromptClip, Started
from tests.engine.conftest import finish, request_of


def pcm(events: list[Event]) -> np.ndarray:
    return np.frombuffer(b"".join(e.pcm for e in events if isinstance(e, AudioChunk)), dtype="<i2")


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("mode", list(Mode))
def test_a_take_gives_the_audio_its_tokens_stand_for(
    engine: Engine, clip: PromptClip, mode: Mode, stream: bool
) -> None:
    events = finish(engine, request_of(clip, mode=mode, stream=stream))
    assert isinstance(events[0], Started)
    assert isinstance(events[-1], Finished)
    assert all(isinstance(event, AudioChunk) for event in events[1:-1])
    assert [e.index for e in events if isinstance(e, AudioChunk)] == list(range(len(events) - 2))
    stats, sound = events[-1].stats, pcm(events)
    assert len(sound) == stats.speech_tokens * 960
    assert stats.speech_seconds == pytest.approx(len(sound) / 24_000)
    assert np.abs(sound).max() > 300
    assert 0 < stats.first_chunk_seconds <= stats.total_seconds


def test_the_first_chunk_of_a_stream_comes_before_the_last_token(engine: Engine, clip: PromptClip) -> None:
    events = finish(engine, request_of(clip, text="Yes, my friend, I think so too.", stream=True))
    chunks = [event for event in events if isinstance(event, AudioChunk)]
    assert len(chunks) > 2
    assert chunks[0].samples < chunks[1].samples + 24_000


def test_seed_decides_and_nothing_else(engine: Engine, clip: PromptClip) -> None:
    first = pcm(finish(engine, request_of(clip, "a")))
    again = [e for e in finish(engine, request_of(clip, "b", seed=8), request_of(clip, "c")) if e.request_id == "c"]
    other = pcm(finish(engine, request_of(clip, "d", seed=8)))
    assert np.array_equal(first, pcm(again))
    assert len(first) != len(other) or not np.array_equal(first, other)


@pytest.mark.parametrize("speed", [0.8, 1.25])
def test_speed_changes_the_length(engine: Engine, clip: PromptClip, speed: float) -> None:
    normal = len(pcm(finish(engine, request_of(clip))))
    changed = len(pcm(finish(engine, request_of(clip, speed=speed, stream=True))))
    assert changed == pytest.approx(normal / speed, abs=480)


def test_segments_are_joined_with_a_pause(engine: Engine, clip: PromptClip) -> None:
    events = finish(engine, request_of(clip, text="One two three four five six seven eight nine. " * 8))
    assert isinstance(events[-1], Finished)
    stats = events[-1].stats
    assert stats.segments > 1
    pauses = [e for e in events if isinstance(e, AudioChunk) and not any(e.pcm)]
    assert len(pauses) == stats.segments - 1
    assert all(2_400 <= pause.samples <= 24_000 for pause in pauses)


@pytest.mark.parametrize("after", [0, 1, 5, 40])
def test_cancel_takes_effect_at_the_next_step(engine: Engine, clip: PromptClip, after: int) -> None:
    engine.submit(request_of(clip, "gone"))
    for _ in range(after):
        engine.step()
    engine.cancel("gone")
    assert engine.step() == [Cancelled("gone")]
    assert not engine.has_work
    engine.cancel("gone")
    engine.cancel("never heard of")
    assert not engine.has_work


def test_a_cancelled_take_frees_what_it_held(engine: Engine, clip: PromptClip) -> None:
    engine.submit(request_of(clip))
    while not engine.prompts.entries:
        engine.step()
    assert engine.active is not None
    frame = engine.active[1].gi_frame  # type: ignore[attr-defined]
    held = weakref.ref(frame.f_locals["self"])
    del frame
    engine.cancel("one")
    engine.step()
    gc.collect()
    assert held() is None


def test_memory_returns_to_its_level(engine: Engine, clip: PromptClip) -> None:
    def tensors() -> int:
        gc.collect()
        return sum(isinstance(thing, torch.Tensor) for thing in gc.get_objects())

    finish(engine, request_of(clip))
    before = tensors()
    for index in range(3):
        finish(engine, request_of(clip, f"take {index}", seed=index))
    assert tensors() <= before


@pytest.mark.parametrize(
    ("changes", "code", "field"),
    [
        ({"text": " \n"}, "text_empty", "text"),
        ({"text": "?!…"}, "text_nothing_to_speak", "text"),
        ({"prompt": PromptClip(np.ones(96_000, np.float32) * 0.1, 24_000, "")}, "transcript_missing", "transcript"),
        ({"mode": Mode.INSTRUCT, "instruction": " "}, "instruction_missing", "instruction"),
    ],
)
def test_a_wrong_request_fails_alone(
    engine: Engine, clip: PromptClip, changes: dict[str, object], code: str, field: str
) -> None:
    events = finish(engine, request_of(clip, "bad", **changes), request_of(clip, "good"))
    failed = [event for event in events if isinstance(event, Failed)]
    assert [(e.request_id, e.code, e.field, e.status) for e in failed] == [("bad", code, field, 400)]
    assert isinstance(events[-1], Finished)


@pytest.mark.parametrize("fault", [float("nan"), 0.0])
def test_bad_sound_is_tried_once_more_and_never_delivered(
    engine: Engine, clip: PromptClip, fault: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    vocoder, tries = engine.model.vocoder, []

    def spoiled(mel: torch.Tensor, **_: object) -> tuple[torch.Tensor, torch.Tensor]:
        tries.append(mel)
        return torch.full((1, 480 * mel.shape[2]), fault), torch.tensor([480 * mel.shape[2]])

    monkeypatch.setattr(vocoder, "forward", spoiled)
    events = finish(engine, request_of(clip))
    assert len(tries) == take_module.MAX_TRIES
    assert isinstance(events[-1], Failed)
    assert events[-1].code == "output_bad"
    assert not any(isinstance(event, AudioChunk) for event in events)
    monkeypatch.undo()
    assert isinstance(finish(engine, request_of(clip))[-1], Finished)


def test_one_bad_try_is_mended(engine: Engine, clip: PromptClip, monkeypatch: pytest.MonkeyPatch) -> None:
    vocoder, good = engine.model.vocoder, engine.model.vocoder.forward
    faults = iter([True])

    def spoiled_once(mel: torch.Tensor, **options: bool) -> tuple[torch.Tensor, torch.Tensor]:
        wave, count = good(mel, **options)
        return (wave * float("nan") if next(faults, False) else wave), count

    monkeypatch.setattr(vocoder, "forward", spoiled_once)
    events = finish(engine, request_of(clip))
    assert isinstance(events[-1], Finished)
    assert events[-1].stats.retries == 1


@pytest.mark.parametrize(
    ("fault", "code"), [(torch.OutOfMemoryError("full"), "out_of_memory"), (RuntimeError("bug"), "engine_fault")]
)
def test_a_fault_inside_ends_one_request_only(
    engine: Engine, clip: PromptClip, fault: Exception, code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise fault

    monkeypatch.setattr(engine.model.flow, "forward", broken)
    monkeypatch.setattr(engine, "memory_message", lambda: "The GPU is out of memory.")
    events = finish(engine, request_of(clip, "first"))
    assert isinstance(events[-1], Failed)
    assert events[-1].code == code
    assert "bug" not in events[-1].message
    monkeypatch.undo()
    assert isinstance(finish(engine, request_of(clip, "second"))[-1], Finished)


def test_prompt_features_are_computed_once_and_bounded(engine: Engine, clip: PromptClip) -> None:
    cache = engine.prompts
    first = cache(clip)
    assert cache(PromptClip(clip.samples.copy(), clip.sample_rate, "other words")) is first
    assert len(first.mel) == 2 * len(first.speech_tokens)
    limit, cache.limit = cache.limit, first.nbytes + 1
    try:
        cache(PromptClip(clip.samples * np.float32(0.5), clip.sample_rate))
        assert len(cache) == 1
        assert cache.nbytes <= cache.limit + first.nbytes
    finally:
        cache.limit = limit


def test_facts_say_what_was_loaded(engine: Engine) -> None:
    facts = engine.facts
    assert facts.device == "cpu"
    assert facts.precision == {"llm": "float32", "flow": "float32", "vocoder": "float32", "f0": "float64"}
    assert all(facts.parameters[part] > 0 and facts.memory[part] > 0 for part in ("llm", "flow", "vocoder"))


def test_a_model_that_follows_no_instructions_says_so(
    engine: Engine, clip: PromptClip, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = replace(engine.model.config, instruct_supported=False)
    monkeypatch.setattr(engine.model, "config", config)
    done = [finish(engine, request_of(clip, mode=mode))[-1] for mode in (Mode.INSTRUCT, Mode.CROSS_LINGUAL)]
    told = [isinstance(e, Finished) and any("instructions" in str(text) for text in e.stats.warnings) for e in done]
    assert told == [True, False]
