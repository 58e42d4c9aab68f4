"""What the engine promises: events in order, audio of the right length, seeds, cancelling, nothing kept."""

from __future__ import annotations

import gc
import re
import weakref
from dataclasses import replace
from itertools import pairwise, repeat

import numpy as np
import psutil
import pytest
import torch

from cosyui.engine import take as take_module
from cosyui.engine.engine import Engine
from cosyui.engine.render import ChunkSchedule
from cosyui.engine.request import AudioChunk, Cancelled, Event, Failed, Finished, Mode, Progress, PromptClip, Started
from cosyui.engine.vocoder_runner import VocoderPiece
from tests.engine.conftest import ScriptedDecoder, finish, pcm, request_of


def chunks(events: list[Event]) -> list[AudioChunk]:
    return [event for event in events if isinstance(event, AudioChunk)]


def set_config(engine: Engine, monkeypatch: pytest.MonkeyPatch, **changes: bool) -> None:
    config = replace(engine.studio.config, **changes)
    monkeypatch.setattr(engine, "studio", replace(engine.studio, config=config))


@pytest.fixture
def judged(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """The gate looks at the length, as with a model that speaks."""
    set_config(engine, monkeypatch, untrained=False)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("mode", list(Mode))
def test_a_take_gives_the_audio_its_tokens_stand_for(
    engine: Engine, clip: PromptClip, mode: Mode, stream: bool
) -> None:
    events = finish(engine, request_of(clip, mode=mode, stream=stream))
    assert isinstance(events[0], Started)
    assert isinstance(events[-1], Finished)
    assert all(isinstance(event, AudioChunk | Progress) for event in events[1:-1])
    assert [chunk.index for chunk in chunks(events)] == list(range(len(chunks(events))))
    stats, sound = events[-1].stats, pcm(events)
    trimmed = stats.speech_tokens * 960 - len(sound)
    assert 0 <= trimmed < 24_000
    assert stats.speech_seconds == pytest.approx(len(sound) / 24_000)
    assert np.abs(sound).max() > 300
    assert 0 < stats.first_chunk_seconds <= stats.total_seconds


def test_a_stream_and_a_whole_take_are_trimmed_alike(engine: Engine, clip: PromptClip) -> None:
    whole, stream = (finish(engine, request_of(clip, stream=stream)) for stream in (False, True))
    assert len(pcm(whole)) == pytest.approx(len(pcm(stream)), abs=480)


def test_the_first_chunk_of_a_stream_comes_before_the_last_token(engine: Engine, clip: PromptClip) -> None:
    events = finish(engine, request_of(clip, text="Yes, my friend, I think so too.", stream=True))
    assert len(chunks(events)) > 2
    assert chunks(events)[0].samples < 36_000
    assert isinstance(events[events.index(chunks(events)[0]) + 1], Progress | AudioChunk)


@pytest.mark.parametrize("stream", [False, True])
def test_progress_counts_up_to_the_length_of_the_take(engine: Engine, clip: PromptClip, stream: bool) -> None:
    events = finish(engine, request_of(clip, text="Yes, my friend, I think so too.", stream=stream))
    told = [event.speech_seconds for event in events if isinstance(event, Progress) and not event.redone]
    seconds = len(pcm(events)) / 24_000
    assert told == sorted(told)
    assert all(0.9 < later - sooner < 1.2 for sooner, later in pairwise(told))
    assert len(told) >= seconds - 2
    assert max(told) <= seconds + 1


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


@pytest.mark.parametrize("stream", [False, True])
def test_segments_are_joined_with_the_pause_that_they_ask_for(
    engine: Engine, clip: PromptClip, stream: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses = [0.15, 0.6, 1.5, 0.0]
    segments, warnings = engine.frontend.segments(request_of(clip))
    parts = [replace(segments[0], pause=pause) for pause in pauses]
    monkeypatch.setattr(engine.frontend, "segments", lambda _: (parts, warnings))
    events = finish(engine, request_of(clip, stream=stream))
    assert isinstance(events[-1], Finished)
    assert events[-1].stats.segments == len(pauses)
    sound = pcm(events)
    edges = np.flatnonzero(np.diff(np.concatenate([[1], sound != 0, [1]]).astype(int)))
    runs = [(start, end) for start, end in zip(edges[::2], edges[1::2], strict=True) if end - start > 480]
    assert len(runs) == len(pauses) - 1
    ends = [end for end, characters in events[-1].stats.parts if characters == len(segments[0].text)]
    assert (len(ends), ends[-1]) == (len(pauses), len(sound))
    assert all(start - 2_400 <= told <= end for (start, end), told in zip(runs, ends, strict=False))
    for (start, end), wanted in zip(runs, pauses, strict=False):
        assert wanted - 0.2 <= (end - start) / 24_000 <= wanted + 0.01
        assert abs(sound[start - 1]) < 30, "a click before the pause"
        assert abs(sound[end]) < 30, "a click after the pause"


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
    work = engine.lanes.find("one")
    assert work is not None
    assert work.take is not None
    held = weakref.ref(work.take)
    del work
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
    vocoder, tries = engine.studio.vocoder, []

    def spoiled(pieces: list[VocoderPiece]) -> list[torch.Tensor]:
        tries.extend(pieces)
        return [torch.full((480 * piece.mel.shape[1],), fault) for piece in pieces]

    monkeypatch.setattr(vocoder, "run", spoiled)
    events = finish(engine, request_of(clip))
    assert len(tries) == take_module.MAX_TRIES
    assert isinstance(events[-1], Failed)
    assert events[-1].code == "output_bad"
    assert not any(isinstance(event, AudioChunk) for event in events)
    monkeypatch.undo()
    assert isinstance(finish(engine, request_of(clip))[-1], Finished)


def test_one_bad_try_is_mended(engine: Engine, clip: PromptClip, monkeypatch: pytest.MonkeyPatch) -> None:
    vocoder, good = engine.studio.vocoder, engine.studio.vocoder.run
    faults = iter([True])

    def spoiled_once(pieces: list[VocoderPiece]) -> list[torch.Tensor]:
        waves = good(pieces)
        return [wave * float("nan") for wave in waves] if next(faults, False) else waves

    monkeypatch.setattr(vocoder, "run", spoiled_once)
    events = finish(engine, request_of(clip))
    assert isinstance(events[-1], Finished)
    assert events[-1].stats.retries == 1


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB."), "out_of_memory"),
        (MemoryError(), "out_of_memory"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes."), "out_of_memory"),
        (RuntimeError("bug"), "engine_fault"),
    ],
)
def test_a_fault_inside_ends_one_request_only(
    engine: Engine, clip: PromptClip, fault: Exception, code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise fault

    monkeypatch.setattr(engine.studio.flow, "run", broken)
    events = finish(engine, request_of(clip, "first"))
    assert isinstance(events[-1], Failed)
    assert events[-1].code == code
    assert "bug" not in events[-1].message
    assert ("MiB were free" in events[-1].message) == (code == "out_of_memory")
    if "allocate" in str(fault):
        assert re.search(r"(20.00 GiB|9 bytes) more were needed", events[-1].message)
    monkeypatch.undo()
    assert isinstance(finish(engine, request_of(clip, "second"))[-1], Finished)


def test_twenty_failures_leave_nothing_behind(
    engine: Engine, clip: PromptClip, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    class Full(torch.OutOfMemoryError):
        pass

    def full(*_: object, **__: object) -> None:
        ballast = torch.zeros(4 << 20)  # 16 MiB that the traceback would keep alive
        raise Full(f"CUDA out of memory. Tried to allocate {ballast.nbytes >> 20}.00 MiB.")

    good, process = engine.studio.flow.run, psutil.Process()
    gc.collect()
    request.addfinalizer(gc.enable)
    gc.disable()  # what goes without it has been in no circle of references

    levels = []
    for number in range(20):
        monkeypatch.setattr(engine.studio.flow, "run", full)
        failed = finish(engine, request_of(clip, f"bad {number}"))[-1]
        assert isinstance(failed, Failed)
        monkeypatch.setattr(engine.studio.flow, "run", good)
        assert isinstance(finish(engine, request_of(clip, f"good {number}"))[-1], Finished)
        levels.append(process.memory_info().rss)
    left = sum(isinstance(thing, Full) for thing in gc.get_objects())
    assert left == 0
    assert levels[-1] - levels[2] < 20 * (5 << 20) / 4
    assert len(engine.lanes) == 0
    assert engine.stages.decoding.free == engine.plan.slots


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
    set_config(engine, monkeypatch, instruct_supported=False)
    done = [finish(engine, request_of(clip, mode=mode))[-1] for mode in (Mode.INSTRUCT, Mode.CROSS_LINGUAL)]
    told = [isinstance(e, Finished) and any("instructions" in str(text) for text in e.stats.warnings) for e in done]
    assert told == [True, False]


@pytest.mark.usefixtures("judged")
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("tokens", "at_most"),
    [([5] * 10_000, 60), ([5, 9, 31] * 5_000, 90), ([(7 * index * index) % 4099 for index in range(10_000)], 101)],
    ids=["one token", "three tokens", "no stop"],
)
def test_endless_speech_is_stopped_at_once_tried_again_and_refused(
    engine: Engine, clip: PromptClip, monkeypatch: pytest.MonkeyPatch, stream: bool, tokens: list[int], at_most: int
) -> None:
    size = engine.model.config.llm.speech_token_size
    decoder = ScriptedDecoder(repeat([token % size for token in tokens]))
    monkeypatch.setattr(engine.stages.decoding, "decoder", decoder)
    events = finish(engine, request_of(clip, stream=stream))
    assert isinstance(events[-1], Failed)
    assert events[-1].code == "output_endless"
    assert len(decoder.taken) == (1 if chunks(events) else take_module.MAX_TRIES)
    assert max(decoder.taken) <= at_most
    monkeypatch.undo()
    assert isinstance(finish(engine, request_of(clip))[-1], Finished)


@pytest.mark.usefixtures("judged")
@pytest.mark.parametrize("stream", [False, True])
def test_of_two_doubtful_tries_the_less_odd_is_delivered_with_a_remark(
    engine: Engine, clip: PromptClip, monkeypatch: pytest.MonkeyPatch, stream: bool
) -> None:
    """Half a second and then a second where three are expected."""
    monkeypatch.setattr(engine.stages.decoding, "decoder", ScriptedDecoder([range(100, 112), range(100, 124)]))
    text = "Yes, my friend, I think so too, after all."
    events = finish(engine, request_of(clip, text=text, stream=stream))
    assert isinstance(events[-1], Finished)
    stats = events[-1].stats
    assert (stats.retries, stats.speech_tokens) == (1, 24)
    assert [notice.code for notice in stats.warnings] == ["length_short"]
    assert len(pcm(events)) == pytest.approx(24 * 960, abs=4_800)
    assert [event.redone for event in events if isinstance(event, Progress)].count(True) >= 1


def test_a_long_job_lets_short_takes_go_first_at_its_borders(
    engine: Engine, clip: PromptClip, monkeypatch: pytest.MonkeyPatch
) -> None:
    (part,), _ = engine.frontend.segments(request_of(clip))
    monkeypatch.setattr(
        engine.frontend, "segments", lambda request: ([replace(part, pause=0.2)] * 3 if request.long else [part], ())
    )
    alone = finish(engine, request_of(clip, "long", long=True))
    assert isinstance(alone[-1], Finished)
    engine.submit(request_of(clip, "long", long=True))
    events = engine.step()
    for name in ("a", "b"):
        engine.submit(request_of(clip, name))
    while engine.has_work:
        events += engine.step()
    parts = [event.request_id for event in events if isinstance(event, AudioChunk)]
    assert parts == ["a", "long", "b", "long", "long"]
    assert np.array_equal(pcm([event for event in events if event.request_id == "long"]), pcm(alone))


def test_chunks_stay_small_while_a_slow_engine_would_let_the_listener_run_dry() -> None:
    fast, slow = (ChunkSchedule(prompt_tokens=30, block=25, lookahead=3) for _ in range(2))
    ends: dict[str, list[int]] = {"fast": [], "slow": []}
    for _ in range(5):
        for name, schedule, affordable in (("fast", fast, 1e9), ("slow", slow, 30.0)):
            end = schedule.due(10_000)
            assert end is not None
            assert schedule.due(end + 2) is None
            ends[name].append(end)
            schedule.advance(affordable)
    assert ends == {"fast": [45, 95, 195, 295, 395], "slow": [45, 70, 95, 120, 145]}
