"""What goes wrong on the websocket /v1/audio/stream is told, and ends its connection alone."""

import json

import pytest

from tests.api.conftest import until
from tests.api.wire import Wire

pytestmark = pytest.mark.anyio
HELD = "[fake:hold][fake:seconds=2] A sentence that is long enough. "


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


async def test_silence_of_the_listener_ends_it(stream):
    async with stream(stream_idle_seconds=0.05) as (site, connect):
        wire = await connect()
        wire.reads.clear()
        wire.say("start", voice="en")
        await until(lambda: wire.blocked)
        await until(lambda: site.idle)
        wire.reads.set()
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
