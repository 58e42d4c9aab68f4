"""The fake engine by itself, so that tests built on it can trust it."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

from cosyui.engine.config import EngineConfig
from cosyui.engine.request import SAMPLE_RATE, AudioChunk, Cancelled, Failed, Finished, Progress, Started
from cosyui.errors import SetupError
from cosyui.host.config import FakeScript, HostConfig
from cosyui.host.fake import FakeEngine
from cosyui.host.fake_sound import PAUSE_SECONDS, fake_pcm, segment_pcm, speech_seconds, tone_hz


@pytest.fixture
def engine():
    return FakeEngine(HostConfig(EngineConfig("none"), "fake"))


def run(engine):
    events = []
    while engine.has_work:
        events += engine.step()
    return events


def test_tone_tells_the_request(engine, make_request):
    requests = [make_request("one"), make_request("two")]
    for request in requests:
        engine.submit(request)
    events = run(engine)
    for request in requests:
        own = [event for event in events if event.request_id == request.id]
        wave = np.frombuffer(b"".join(event.pcm for event in own if isinstance(event, AudioChunk)), "<i2")
        peak = np.argmax(np.abs(np.fft.rfft(wave))) * SAMPLE_RATE / len(wave)
        assert peak == pytest.approx(tone_hz(request.id), abs=1.5)
        assert [type(event) for event in own if not isinstance(event, AudioChunk | Progress)] == [Started, Finished]
    assert tone_hz("one") != tone_hz("two")


def test_length_follows_the_text(make_request):
    short, long, chinese = (
        speech_seconds(make_request("a", text)) for text in ("word " * 5, "word " * 30, "你好" * 20)
    )
    assert short < chinese < long
    assert len(fake_pcm(make_request("a", "[fake:seconds=2.5]"))) == 2 * 60_000


def test_cancelled_request_ends_once(engine, make_request):
    engine.submit(make_request("a", "[fake:hold]"))
    for _ in range(3):
        engine.step()
    engine.cancel("a")
    engine.cancel("a")
    assert run(engine) == [Cancelled("a")]


def audio(events):
    return b"".join(event.pcm for event in events if isinstance(event, AudioChunk))


@pytest.mark.parametrize("count", [1, 3, 10, 40])
def test_segments_come_in_order_with_pauses(engine, make_request, count):
    request = make_request("a", f"[fake:segments={count}][fake:seconds=8]")
    engine.submit(request)
    events = run(engine)
    assert audio(events) == b"".join(segment_pcm(request, number) for number in range(count)) == fake_pcm(request)
    seconds = len(fake_pcm(request)) / 2 / SAMPLE_RATE
    assert seconds == pytest.approx(8 + PAUSE_SECONDS * (count - 1), abs=0.01)
    assert events[0] == Started("a", count)
    assert events[-1].stats.segments == count
    lengths = [len(segment_pcm(request, number)) // 2 for number in range(count)]
    assert [end for end, _ in events[-1].stats.parts] == list(itertools.accumulate(lengths))
    told = [event.speech_seconds for event in events if isinstance(event, Progress)]
    assert told == sorted(told)
    assert told[-1] == pytest.approx(seconds, abs=0.01)


def test_bad_segment_is_made_again_and_one_that_stays_bad_fails_the_request(engine, make_request):
    text = "[fake:segments=3][fake:seconds=3]"
    once, always = make_request("a", f"{text}[fake:bad=2]"), make_request("b", f"{text}[fake:bad_always=2]")
    for request in (once, always):
        engine.submit(request)
    events = run(engine)
    own = [event for event in events if event.request_id == "a"]
    assert audio(own) == fake_pcm(once)
    assert [event.redone for event in own if isinstance(event, Progress)].count(True) == 1
    assert own[-1].stats.retries == 1
    assert isinstance(events[-1], Failed)
    assert "Part 2 of 3" in events[-1].message


def test_short_requests_go_between_the_segments_of_a_long_one(engine, make_request):
    long = replace(make_request("long", "[fake:segments=4][fake:seconds=4]"), long=True)
    engine.submit(long)
    engine.step()
    for name in ("one", "two"):
        engine.submit(make_request(name, "[fake:seconds=1]"))
    events = run(engine)
    order = [event.request_id for event in events]
    runs = [name for name, before in zip(order, [None, *order], strict=False) if name != before]
    assert runs == ["one", "long", "two", "long"]
    assert audio([event for event in events if event.request_id == "long"]) == fake_pcm(long)


def test_unknown_directive_is_refused(engine, make_request):
    with pytest.raises(SetupError, match="knows no 'dance'"):
        FakeEngine(HostConfig(EngineConfig("none"), "fake", FakeScript(directives="[fake:dance]")))


def test_requests_in_work_take_turns(make_request):
    engine = FakeEngine(HostConfig(EngineConfig("none"), "fake", FakeScript(places=3)))
    assert engine.facts.places == 3
    requests = [make_request(name, "[fake:seconds=2]") for name in "abcd"]
    for request in requests:
        engine.submit(request)
    events = run(engine)
    first_end = next(index for index, event in enumerate(events) if isinstance(event, Finished))
    before = [event.request_id for event in events[:first_end] if isinstance(event, AudioChunk)]
    assert sorted(set(before)) == ["a", "b", "c"]
    assert {before.count(name) for name in "abc"} == {4}
    for request in requests:
        assert audio([event for event in events if event.request_id == request.id]) == fake_pcm(request)


def test_a_held_request_does_not_hold_up_those_beside_it(make_request):
    engine = FakeEngine(HostConfig(EngineConfig("none"), "fake", FakeScript(places=2)))
    engine.submit(make_request("held", "[fake:hold]"))
    engine.submit(make_request("other"))
    events = []
    while not any(isinstance(event, Finished) for event in events):
        events += engine.step()
    assert events[-1].request_id == "other"
    engine.cancel("held")
    assert run(engine) == [Cancelled("held")]


def test_card_of_the_fake_engine_moves_with_its_requests(make_request):
    engine = FakeEngine(HostConfig(EngineConfig("none"), "fake", FakeScript(directives="[fake:gpu]")))
    before = engine.stats()
    engine.submit(make_request("a"))
    engine.submit(make_request("b", "[fake:leak=4096]"))
    one, two = (event.stats.memory for event in run(engine) if isinstance(event, Finished))
    after = engine.stats()
    assert one.allocated_before == before.allocated == one.allocated_after < one.allocated_peak < one.reserved_peak
    assert two.allocated_after - two.allocated_before == after.allocated - before.allocated == 4096
    parts = after.weights + after.kv_slots + after.kept + after.graphs
    assert parts <= after.allocated < after.reserved < after.device_used < after.device_total
    assert (after.cached_prompts, after.features > 0) == (1, True)


def test_without_its_card_the_fake_engine_is_as_on_a_cpu(engine, make_request):
    engine.submit(make_request("a"))
    memory = run(engine)[-1].stats.memory
    assert (memory.rss > 0, memory.allocated_before, memory.device_peak) == (True, None, None)
    assert (engine.stats().device_total, engine.stats().weights) == (0, 0)
