"""The websocket /v1/audio/stream: text in pieces of any size, sound in order, and an end with whoever listens."""

import asyncio
import io
import json

import av
import numpy as np
import pytest

from cosyui.api import recital
from cosyui.host.fake_sound import tone_hz
from tests.api.conftest import until
from tests.api.test_api_speech import pitch

pytestmark = pytest.mark.anyio
TEXT = (
    "[fake:seconds=0.5] The ferry leaves at half past six. It is 3.5 miles to the other side of the bay, said Mr. Bell."
    "\n\n[fake:seconds=0.5] Nobody knew why; the captain was late again… He laughed. “Never mind!” And off they went"
)
HELD = "[fake:hold][fake:seconds=2] A sentence that is long enough. "


def pieces_of(text, size):
    return [text[place : place + size] for place in range(0, len(text), size)]


async def speak(wire, pieces, **start):
    wire.say("start", voice="en", **start)
    for piece in pieces:
        wire.say("text", text=piece)
    wire.say("end")
    return await wire.until("done")


def named(events, kind):
    return [event for event in events if event["type"] == kind]


async def test_pieces_of_any_size_give_the_same_takes_in_order(stream, monkeypatch):
    forms = []

    async def keep(form, **more):
        forms.append((form.text, form.seed))
        return await submit(form, **more)

    async with stream() as (site, connect):
        submit = site.service.submit
        monkeypatch.setattr(site.service, "submit", keep)
        wire, heard = await connect(), []
        for size in (1, 3, len(TEXT)):
            forms.clear()
            sound, events = await speak(wire, pieces_of(TEXT, size), seed=7)
            heard.append((len(sound), [text for text, _ in forms]))
            assert {seed for _, seed in forms} == {7}
        assert heard[0] == heard[1] == heard[2]
        assert " ".join(" ".join(heard[0][1]).split()) == " ".join(TEXT.split()), "all words, in order"
        started, done, segments = events[0], events[-1], named(events, "segment")
        assert (started["type"], started["format"], started["sample_rate"]) == ("started", "pcm", 24_000)
        assert [segment["characters"] for segment in segments] == [len(text) for text in heard[0][1]]
        assert [segment["index"] for segment in segments] == list(range(len(segments)))
        assert len(segments) > 1
        assert done["segments"] == len(segments)
        assert done["characters"] == len(TEXT)
        assert done["seconds"] == pytest.approx(len(sound) / 48_000, abs=0.001)
        assert named(events, "timing")[0]["first_chunk_ms"] > 0


async def test_each_part_has_its_own_tone_and_two_connections_do_not_mix(stream):
    async with stream(fake={"places": 4}) as (_, connect):
        wires = [await connect() for _ in range(2)]
        for sound, events in await asyncio.gather(*(speak(wire, pieces_of(TEXT, 2)) for wire in wires)):
            samples, segments = np.frombuffer(sound, "<i2"), named(events, "segment")
            assert len({segment["seed"] for segment in segments}) == 1, "drawn once"
            for segment, half in ((segments[0], samples[:12_000]), (segments[-1], samples[-12_000:])):
                assert pitch(half) == pytest.approx(tone_hz(segment["id"]), abs=3)


async def test_opus_is_one_file_and_rates_are_kept(stream):
    async with stream() as (_, connect):
        wire = await connect()
        sound, events = await speak(wire, [TEXT], response_format="opus")
        with av.open(io.BytesIO(sound)) as file:
            samples = sum(frame.samples for frame in file.decode(audio=0))
            rate = file.streams.audio[0].rate
        assert samples / rate == pytest.approx(events[-1]["seconds"], abs=0.1)
        sound, events = await speak(wire, [TEXT], sample_rate=8000)
        assert len(sound) / 16_000 == pytest.approx(events[-1]["seconds"], abs=0.001)


async def test_flush_speaks_what_is_there(stream):
    async with stream() as (_, connect):
        wire = await connect()
        wire.say("start", voice="en")
        wire.say("text", text="Half of")
        wire.say("flush")
        _, events = await wire.until("timing")
        assert named(events, "segment")[0]["characters"] == 7
        for kind, more in (("flush", {}), ("text", {"text": " a sentence"}), ("end", {})):
            wire.say(kind, **more)
        _, events = await wire.until("done")
        assert [segment["characters"] for segment in named(events, "segment")] == [10]


async def test_next_take_is_there_while_one_is_heard_and_no_third(stream, release):
    async with stream(fake={"places": 4}) as (site, connect):
        wire = await connect()
        wire.say("start", voice="en")
        wire.say("text", text=HELD * 12)
        await until(lambda: len(site.service.overview().running) == 2)
        release.touch()
        wire.say("end")
        _, events = await wire.until("done")
        assert len(named(events, "segment")) > 3


async def test_without_room_the_next_take_waits_for_the_one_before(stream):
    async with stream(queue_size=0) as (site, connect):
        _, events = await speak(await connect(), [TEXT])
        assert len(named(events, "segment")) > 1
        assert site.service.overview().rejected > 0


async def test_listener_who_does_not_read_stops_the_work(stream):
    async with stream() as (site, connect):
        wire = await connect()
        wire.reads.clear()
        wire.say("start", voice="en")
        await until(lambda: wire.blocked)
        for _ in range(20):
            wire.say("text", text=TEXT)
        wire.say("end")
        wire.reads.set()
        await wire.until("segment")
        wire.reads.clear()
        await until(lambda: site.idle or site.service.overview().finished == 2)
        await until(lambda: wire._incoming.empty())
        view = site.service.overview()
        assert (view.finished, len(view.running), len(view.waiting)) == (2, 0, 0)
        wire.reads.set()
        _, events = await wire.until("done")
        assert events[-1]["characters"] == 20 * len(TEXT)


async def test_whoever_leaves_frees_everything(stream):
    async with stream(fake={"places": 4}) as (site, connect):
        for ended in (False, True):
            wire = await connect()
            wire.say("start", voice="en")
            wire.say("text", text=HELD * 12)
            if ended:
                wire.say("end")
            await until(lambda: len(site.service.overview().running) == 2)
            wire.leave()
            await until(lambda: site.idle)
            await wire.task
        assert not list(site.service.outputs.root.rglob("*.wav"))


async def test_over_a_real_connection(api):
    client = pytest.importorskip("websockets.asyncio.client")
    closed = pytest.importorskip("websockets.exceptions").ConnectionClosed
    async with api() as site:
        address = f"ws://127.0.0.1:{site.port}/v1/audio/stream"
        async with client.connect(address, proxy=None) as socket:
            await socket.send('{"type": "start", "voice": "en"}')
            for character in TEXT:
                await socket.send(json.dumps({"type": "text", "text": character}))
            await socket.send('{"type": "end"}')
            sound, event = b"", {}
            while event.get("type") != "done":
                message = await socket.recv()
                if isinstance(message, bytes):
                    sound += message
                else:
                    event = json.loads(message)
            assert event["seconds"] == pytest.approx(len(sound) / 48_000, abs=0.001)
            await socket.send(b"noise")
            assert json.loads(await socket.recv())["error"]["code"] == "message_invalid"
            with pytest.raises(closed) as caught:
                await socket.recv()
            assert caught.value.rcvd.code == 1003
        await until(lambda: site.idle)


async def test_a_long_wait_is_told_from_time_to_time(stream, monkeypatch, release):
    monkeypatch.setattr(recital, "PROGRESS_SECONDS", 0.01)
    async with stream() as (_, connect):
        first, second = await connect(), await connect()
        for wire in (first, second):
            wire.say("start", voice="en")
            wire.say("text", text=HELD)
            wire.say("end")
            await wire.until("segment")
        _, events = await first.until("progress")
        assert events[-1]["status"] in ("queued", "running")
        told = {}
        while told.get("status") != "queued" or told["position"] != 1:
            _, events = await second.until("progress")
            told = events[-1]
        assert set(told) >= {"estimated_wait_time", "seconds", "first_chunk_ms"}
        release.touch()
        for wire in (first, second):
            sound, _ = await wire.until("done")
            assert sound


async def test_a_text_under_way_is_finished_while_the_service_drains_and_no_other_begun(stream, release):
    async with stream() as (site, connect):
        wire, late = await connect(), await connect()
        wire.say("start", voice="en")
        wire.say("text", text=HELD + "And then one more sentence, which is another part. ")
        await wire.until("segment")
        draining = asyncio.create_task(site.service.drain(30))
        await until(lambda: site.service.draining)
        late.say("start", voice="en")
        late.say("text", text="A sentence that comes too late. ")
        late.say("end")
        assert await late.refused() == ("service_stopping", 1013)
        wire.say("text", text="And a last one, that was not even written. ")
        wire.say("end")
        release.touch()
        _, events = await wire.until("done")
        assert events[-1]["segments"] >= 2
        assert await draining
