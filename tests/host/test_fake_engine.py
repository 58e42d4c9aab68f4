"""The fake engine by itself, so that tests built on it can trust it."""

import numpy as np
import pytest

from cosyui.engine.config import EngineConfig
from cosyui.engine.request import SAMPLE_RATE, AudioChunk, Cancelled, Finished, Started
from cosyui.errors import SetupError
from cosyui.host.config import FakeScript, HostConfig
from cosyui.host.fake import FakeEngine, fake_pcm, speech_seconds, tone_hz


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
        assert [type(event) for event in own if not isinstance(event, AudioChunk)] == [Started, Finished]
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


def test_unknown_directive_is_refused(engine, make_request):
    with pytest.raises(SetupError, match="knows no 'dance'"):
        FakeEngine(HostConfig(EngineConfig("none"), "fake", FakeScript(directives="[fake:dance]")))
