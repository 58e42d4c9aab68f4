"""The websocket /v1/audio/stream: text in pieces of any size, sound in order, and an end for whatever goes wrong."""

import asyncio
import contextlib
import io
import json

import av
import numpy as np
import pytest

from cosyui.host.fake_sound import tone_hz
from cosyui.speech.text.arriving import Arriving
from cosyui.speech.text.passages import HARD_CUT_PAUSE, PARAGRAPH_PAUSE
from tests.api.conftest import PATIENCE, until
from tests.api.test_api_speech import pitch

pytestmark = pytest.mark.anyio
TEXT = (
    "[fake:seconds=0.5] The ferry leaves at half past six. It is 3.5 miles to the other side of the bay, said Mr. Bell."
    "\n\n[fake:seconds=0.5] Nobody knew why; the captain was late again… He laughed. “Never mind!” And off they went"
)
HELD = "[fake:hold][fake:seconds=2] A sentence that is long enough. "


class Wire:
    """A websocket to the application itself: what it sends comes once `reads` is set."""

    def __init__(self, app, headers=(), query=b""):
        self._incoming, self.sent, self.reads = asyncio.Queue(), asyncio.Queue(), asyncio.Event()
        self.reads.set()
        self.blocked = 0
        self._incoming.put_nowait({"type": "websocket.connect"})
        scope = {"type": "websocket", "path": "/audio/stream", "headers": list(headers), "query_string": query}
        self.task = asyncio.create_task(app(scope, self._incoming.get, self._send))

    async def _send(self, message):
        self.blocked += 1
        await self.reads.wait()
        self.blocked -= 1
        self.sent.put_nowait(message)

    def say(self, kind, **fields):
        self.put(text=json.dumps({"type": kind, **fields}))

    def put(self, **message):
        self._incoming.put_nowait({"type": "websocket.receive", **message})

    def leave(self):
        self._incoming.put_nowait({"type": "websocket.disconnect", "code": 1006})

    async def take(self):
        """The next: bytes, an event, or the code of the end."""
        async with asyncio.timeout(PATIENCE):
            message = await self.sent.get()
        if message["type"] == "websocket.close":
            return message["code"]
        return json.loads(message["text"]) if message.get("text") else message["bytes"]

    async def until(self, kind):
        """The sound that came by then, and the events, the last of which is of this kind."""
        sound, events = b"", []
        while not events or events[-1]["type"] != kind:
            one = await self.take()
            if isinstance(one, bytes):
                sound += one
            else:
                events.append(one)
        return sound, events

    async def refused(self):
        """Code of the error and of the end."""
        _, events = await self.until("error")
        return events[-1]["error"]["code"], await self.take()


@pytest.fixture
def stream(api):
    """Context manager of a site, and of a maker of wires to it."""

    @contextlib.asynccontextmanager
    async def start(**given):
        async with api(**given) as site:
            app, wires = site.v1.app(), []

            async def connect(**options):
                wire = Wire(app, **options)
                wires.append(wire)
                assert (await wire.sent.get())["type"] == "websocket.accept"
                return wire

            yield site, connect
            for wire in wires:
                wire.leave()
                await wire.task
            await until(lambda: site.idle)

    return start


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

    async def keep(form):
        forms.append((form.text, form.seed))
        return await submit(form)

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


async def test_broken_messages_end_their_connection_alone(stream):
    broken = [
        ({"text": "{"}, ("message_invalid", 1007)),
        ({"text": "[1]"}, ("message_invalid", 1007)),
        ({"text": '{"type": "text", "text": NaN}'}, ("message_invalid", 1007)),
        ({"bytes": b"\0noise"}, ("message_invalid", 1003)),
        ({"text": '{"type": "sing"}'}, ("message_invalid", 1008)),
        ({"text": '{"type": {}}'}, ("message_invalid", 1008)),
        ({"text": '{"type": "text", "text": 5}'}, ("message_invalid", 1008)),
        ({"text": '{"type": "text"}'}, ("message_invalid", 1008)),
        ({"text": '{"type": "start", "voice": "en"}'}, ("message_unexpected", 1008)),
        ({"text": '{"type": "text", "text": "\\ud83dx"}'}, ("parameter_invalid", 1008)),
        ({"text": '{"type": "text", "text": "a\\u0000"}'}, ("parameter_invalid", 1008)),
        ({"text": json.dumps({"type": "text", "text": "x" * 9000})}, ("message_too_large", 1009)),
        ({"text": json.dumps({"type": "text", "text": "x" * 7000})}, ("text_too_long", 1008)),
    ]
    async with stream(body_max_bytes=8000, long_max_chars=6000) as (site, connect):
        other = await connect()
        other.say("start", voice="en")
        for message, told in broken:
            wire = await connect()
            wire.say("start", voice="en")
            await wire.until("started")
            wire.put(**message)
            assert await wire.refused() == told, message
            await wire.task
        assert site.v1.gate.unfinished == 1
        other.say("text", text="\ud83d")
        other.say("text", text="\ude00 Still here.")
        other.say("end")
        _, events = await other.until("done")
        assert (events[-1]["segments"], events[-1]["characters"]) == (1, 13)


async def test_start_is_checked_and_order_kept(stream):
    bad = [
        ({"voice": "nobody"}, ("voice_not_found", 1008)),
        ({}, ("parameter_missing", 1008)),
        ({"voice": "en", "response_format": "mp3"}, ("parameter_invalid", 1008)),
        ({"voice": "en", "input": "Hello."}, ("parameter_unknown", 1008)),
        ({"voice": "en", "loudness": 1}, ("parameter_unknown", 1008)),
        ({"voice": "en", "\ud83d": 1}, ("body_invalid", 1008)),
        ({"voice": "en", "response_format": "opus", "sample_rate": 44_100}, ("sample_rate_unsupported", 1008)),
    ]
    async with stream() as (_, connect):
        for fields, told in bad:
            wire = await connect()
            wire.say("start", **fields)
            assert await wire.refused() == told, fields
        for texts, code in (([], "text_empty"), (["...", "--"], "text_nothing_to_speak")):
            wire = await connect()
            wire.say("start", voice="en")
            for text in texts:
                wire.say("text", text=text)
            wire.say("end")
            assert await wire.refused() == (code, 1008)
        wire = await connect()
        wire.say("text", text="Hello.")
        assert await wire.refused() == ("message_unexpected", 1008)
        wire = await connect()
        for kind, more in (("start", {"voice": "en"}), ("text", {"text": HELD}), ("end", {}), ("flush", {})):
            wire.say(kind, **more)
        assert await wire.refused() == ("message_unexpected", 1008)


async def test_trouble_with_a_part_is_told_and_ends_the_others(stream):
    async with stream(fake={"places": 4}) as (site, connect):
        wire = await connect()
        wire.say("start", voice="en")
        wire.say("text", text="[fake:fail=output_endless][fake:seconds=2] A sentence that ends. " + HELD * 9)
        assert await wire.refused() == ("output_endless", 1011)
        await until(lambda: site.idle)


async def test_silence_of_the_writer_ends_it(stream):
    async with stream(stream_idle_seconds=0.05) as (_, connect):
        wire = await connect()
        wire.say("start", voice="en")
        wire.say("text", text="Half a")
        assert await wire.refused() == ("idle", 1008)


async def test_keys_rates_and_places_count_as_elsewhere(stream):
    key = [(b"authorization", b"Bearer good")]
    async with stream(api_keys="good", api_rate=2, api_concurrency=1) as (site, connect):
        wire = Wire(site.v1.app(), query=b"api_key=good")
        assert (await wire.sent.get()) == {"type": "websocket.close", "code": 1008, "reason": "api_key_missing"}
        first = await connect(headers=key)
        first.say("start", voice="en")
        await first.until("started")
        second = await connect(headers=key)
        second.say("start", voice="en")
        assert await second.refused() == ("too_many_unfinished", 1013)
        third = await connect(headers=key)
        third.say("start", voice="en")
        _, events = await third.until("error")
        assert events[-1]["error"]["code"] == "rate_limit_exceeded"
        assert events[-1]["retry_after"] > 0


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


def parts_of(text, longest=200):
    arriving = Arriving(longest)
    whole = arriving.add(text) + arriving.flush()
    arriving = Arriving(longest)
    assert [part for sign in text for part in arriving.add(sign)] + arriving.flush() == whole
    return whole


def test_parts_end_where_sentences_do_and_are_never_too_long():
    parts = parts_of(
        "Mr. Bell came at 3.15 p.m. today. He said: “Wait…” Then he sat down on the bench. \n\n二。你好吗？😀"
    )
    assert parts[0].text == "Mr. Bell came at 3.15 p.m. today."
    assert "".join(part.text for part in parts[1:]).startswith("He said: “Wait…” Then he sat down on the bench.")
    pauses = [part.pause for part in parts_of("Here is the first paragraph.\n\nHere comes another")]
    assert pauses == [PARAGRAPH_PAUSE, HARD_CUT_PAUSE]
    for text in ("word " * 400, "字" * 900, "x" * 1000, "你好，" * 300):
        parts = parts_of(text)
        assert max(len(part.text) for part in parts) <= 200
        assert "".join("".join(part.text.split()) for part in parts) == "".join(text.split())
    assert parts_of("-" * 1000) == []
    assert parts_of("。！ … ") == []
