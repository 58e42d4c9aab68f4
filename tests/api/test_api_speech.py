"""POST /v1/audio/speech over a real connection: sound as it is made, events, and an end with whoever listens."""

import asyncio
import base64
import io
import json
import socket
import wave

import av
import numpy as np
import pytest

import app as server
from cosyui.host.fake_sound import tone_hz
from cosyui.service import voice_names
from cosyui.service.voice_names import VoiceData
from cosyui.settings import Settings
from cosyui.speech.sound.encode import MEDIA_TYPES
from tests.api.conftest import speech, until

pytestmark = pytest.mark.anyio
HELD = "[fake:hold][fake:seconds=2] A sentence."


def pitch(samples, rate=24_000):
    spectrum = np.abs(np.fft.rfft(samples * np.hanning(len(samples))))
    return np.argmax(spectrum) * rate / len(samples)


async def events_of(answer):
    return [json.loads(line.removeprefix("data: ")) async for line in answer.aiter_lines() if line]


def heard(kind, data):
    """Samples and their rate."""
    if kind == "pcm":
        return np.frombuffer(data, "<i2"), 24_000
    with av.open(io.BytesIO(data)) as file:
        sound = np.concatenate([frame.to_ndarray()[0] for frame in file.decode(audio=0)])
        return sound, file.streams.audio[0].rate


async def test_every_format_is_this_takes_own_sound(api):
    async with api() as site:
        for kind, media_type in MEDIA_TYPES.items():
            answer = await site.speak("[fake:seconds=2] Hello.", response_format=kind)
            assert answer.status_code == 200
            assert answer.headers["content-type"] == media_type
            assert answer.headers["transfer-encoding"] == "chunked"
            sound, rate = heard(kind, answer.content)
            assert len(sound) / rate == pytest.approx(2.0, abs=0.1)
            assert pitch(sound, rate) == pytest.approx(tone_hz(answer.headers["x-request-id"]), abs=3)
            await until(lambda: site.idle)


async def test_raw_samples_tell_their_form_and_have_the_rate_that_was_asked_for(api):
    async with api() as site:
        for rate in (8_000, 16_000, 44_100):
            answer = await site.speak("[fake:seconds=2] Hello.", sample_rate=rate)
            told = [answer.headers[f"x-audio-{name}"] for name in ("sample-rate", "channels", "sample-format")]
            assert told == [str(rate), "1", "s16le"]
            assert len(answer.content) == 2 * 2 * rate


async def test_streamed_wav_has_one_header_and_the_servers_copy_true_sizes(api):
    async with api() as site:
        answer = await site.speak("[fake:segments=3][fake:seconds=3] Hello.", response_format="wav")
        assert answer.content.count(b"RIFF") == 1
        (copy,) = site.service.outputs.root.rglob("*.wav")
        with wave.open(str(copy)) as file:
            frames = file.readframes(file.getnframes())
        assert file.getnframes() == len(frames) // 2 == round(3.5 * 24_000)
        assert answer.content[44:] == frames


async def test_first_sound_leaves_while_the_rest_is_made(api, release):
    async with api() as site:
        for kind in MEDIA_TYPES:
            release.unlink(missing_ok=True)
            body = speech(HELD, response_format=kind)
            async with site.http.stream("POST", "audio/speech", json=body) as answer:
                parts = answer.aiter_raw()
                assert await anext(parts)
                assert not site.idle, "the take waits to be released"
                assert "queue;dur=" in answer.headers["server-timing"]
                assert "first_chunk;dur=" in answer.headers["server-timing"]
                release.touch()
                assert sum([len(part) async for part in parts]) > 0
        answer = await site.speak(seed=7, response_format=...)
        assert (answer.headers["x-seed"], answer.headers["content-type"]) == ("7", "audio/mpeg")
        drawn = await site.speak()
        assert 0 <= int(drawn.headers["x-seed"]) < 1 << 31


async def test_whoever_does_not_read_is_given_up(api):
    async with api(stream_idle_seconds=0.05) as site:
        for stream_format in ("audio", "sse"):
            # More than the network keeps for somebody who will read it later.
            reader, writer = await site.ask(speech("[fake:seconds=400] Hello.", stream_format=stream_format))
            writer.transport.pause_reading()
            await until(lambda: site.v1.gate.unfinished)
            await until(lambda: site.idle)
            writer.transport.resume_reading()
            rest = await reader.read()
            assert rest.startswith(b"HTTP/1.1 200 OK")
            assert not rest.endswith(b"0\r\n\r\n")
            writer.close()
        assert (await site.speak("[fake:seconds=2] Hello.")).status_code == 200


async def test_whoever_leaves_ends_the_work(api):
    async with api() as site:
        for way in ("audio", "sse", "queued") * 3:
            held, others = speech(HELD, stream_format="sse" if way == "sse" else "audio"), []
            if way == "queued":
                others = [await site.ask(held)]
                await until(lambda: site.service.overview().running)
            reader, writer = await site.ask(held)
            if way == "queued":
                await until(lambda: site.service.overview().waiting)
            else:
                await reader.readuntil(b"200 OK")
                await reader.readuntil(b"\r\n\r\n")
            for _, connection in [*others, (reader, writer)]:
                connection.close()
            await until(lambda: site.idle)
        assert len(site.service.overview().waiting) == 0
        answer = await site.speak()
        assert answer.status_code == 200
        assert not list(site.service.outputs.root.rglob(".*.part"))


async def test_two_at_once_get_each_its_own(api):
    async with api(fake={"places": 4}) as site:
        answers = await asyncio.gather(*(site.speak(f"[fake:seconds=2] Number {number}.") for number in range(4)))
        for answer in answers:
            wanted = tone_hz(answer.headers["x-request-id"])
            assert pitch(np.frombuffer(answer.content, "<i2")) == pytest.approx(wanted, abs=3)


async def test_trouble_before_the_sound_is_an_error_with_its_status(api):
    async with api() as site:
        answer = await site.speak("[fake:oom] Hello.")
        assert (answer.status_code, answer.json()["error"]["code"]) == (500, "out_of_memory")
        assert answer.json()["error"]["type"] == "server_error"
        answer = await site.speak("[fake:empty] Hello.")
        assert (answer.status_code, answer.json()["error"]["code"]) == (500, "output_bad")
        answer = await site.speak(HELD.replace("hold", "slow=0.5"), deadline=0.01)
        assert (answer.status_code, answer.json()["error"]["code"]) == (504, "deadline_passed")


async def test_trouble_in_the_middle_breaks_the_connection_off(api):
    async with api() as site:
        for kind in MEDIA_TYPES:
            reader, writer = await site.ask(speech("[fake:fail][fake:seconds=2] Hello.", response_format=kind))
            answer = await reader.read()
            writer.close()
            assert b"200 OK" in answer
            assert not answer.endswith(b"0\r\n\r\n"), "no well-formed end"
            assert b"output_bad" not in answer
            await until(lambda: site.idle)


async def test_events_bring_the_same_sound_and_the_usage_or_the_trouble(api):
    async with api() as site:
        body = speech("[fake:seconds=2] Hello.", stream_format="sse", response_format="wav")
        async with site.http.stream("POST", "audio/speech", json=body) as answer:
            assert answer.headers["content-type"] == "text/event-stream"
            *deltas, done = await events_of(answer)
        assert {event["type"] for event in deltas} == {"speech.audio.delta"}
        assert len(deltas) > 1
        sound = b"".join(base64.b64decode(event["audio"]) for event in deltas)
        assert len(sound) == 44 + 2 * 2 * 24_000
        assert done == {
            "type": "speech.audio.done",
            "usage": {"input_tokens": 23, "output_tokens": 50, "total_tokens": 73},
        }
        body = speech("[fake:fail=output_endless][fake:seconds=2] Hello.", stream_format="sse")
        async with site.http.stream("POST", "audio/speech", json=body) as answer:
            *_, last = await events_of(answer)
        assert (last["type"], last["error"]["code"]) == ("error", "output_endless")


async def test_stopped_by_an_operator_is_told(api):
    async with api() as site:
        first = asyncio.create_task(site.speak(HELD))
        await until(lambda: site.service.overview().running)
        waiting = asyncio.create_task(site.speak())
        await until(lambda: site.service.overview().waiting)
        await site.service.ticket(site.service.overview().waiting[0].id).cancel()
        answer = await waiting
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "stopped")
        first.cancel()


async def test_server_that_goes_down_breaks_off_or_says_so(api):
    async with api() as site:
        app, sent = site.v1.app(), [[], []]

        def call(messages):
            body = [{"type": "http.request", "body": json.dumps(speech(HELD)).encode()}]

            async def receive():
                return body.pop() if body else await asyncio.Event().wait()

            async def send(message):
                messages.append(message)

            headers = [(b"content-type", b"application/json")]
            scope = {"type": "http", "method": "POST", "path": "/audio/speech", "headers": headers, "query_string": b""}
            return asyncio.create_task(app(scope, receive, send))

        first = call(sent[0])
        await until(lambda: len(sent[0]) > 1)
        second = call(sent[1])
        await until(lambda: site.service.overview().waiting)
        for task in (second, first):
            task.cancel()
            await task
        assert sent[0][0]["status"] == 200
        assert all(message["more_body"] for message in sent[0][1:])
        assert sent[1][0]["status"] == 503
        assert json.loads(sent[1][1]["body"])["error"]["code"] == "stopped"
        await until(lambda: site.idle)


def test_no_half_of_an_answer_waits_for_an_acknowledgement():
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with server.listen(Settings.load({"port": port}, {})) as listener, socket.create_connection(("127.0.0.1", port)):
        connection, _ = listener.accept()
        with connection:
            assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


class OneVoice:
    """A saved voice, and the form that came of it."""

    def __init__(self, clip, transcript=""):
        self.voice = VoiceData(clip, transcript)

    def find(self, name):
        return self.voice if name == "mine" else None

    def list(self):
        return ["mine"]


async def test_voices_and_instructions_choose_the_mode(api, monkeypatch):
    forms = []

    async def keep(form):
        forms.append(form)
        return await submit(form)

    async with api() as site:
        submit = site.service.submit
        monkeypatch.setattr(site.service, "submit", keep)
        for voice in ("en", "zh", {"id": "zh"}, *voice_names.OPENAI_VOICES):
            assert (await site.speak(voice=voice)).status_code == 200
        for model in ("tts-1", "tts-1-hd", "gpt-4o-mini-tts", "fake"):
            assert (await site.speak(model=model)).status_code == 200
        assert {form.mode for form in forms} == {"zero_shot"}
        assert {form.transcript for form in forms} == set(voice_names.EXAMPLE_TRANSCRIPTS.values())
        assert (await site.speak(instructions="Speak slowly.")).status_code == 200
        assert (forms[-1].mode, forms[-1].instruction) == ("instruct", "Speak slowly.")
        assert (await site.speak(instructions=None, speed=1.5, language="en", deadline=60)).status_code == 200
        assert (forms[-1].mode, forms[-1].speed, forms[-1].language, forms[-1].deadline) == ("zero_shot", 1.5, "en", 60)
        assert all(form.stream and form.client.startswith("addr-") for form in forms)
        assert not any("127.0.0.1" in form.client for form in forms)


async def test_voice_without_transcript_is_used_across_languages(api, clip):
    async with api(voices=OneVoice(clip)) as site:
        assert (await site.speak(voice="mine")).status_code == 200
        answer = await site.speak(voice="miine")
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, "voice_not_found")
        assert site.service.overview().finished == 1


async def test_clip_in_a_form_lends_its_voice(api, clip):
    async with api() as site:
        fields = {"model": "cosyui", "input": "[fake:seconds=2] Hello.", "response_format": "pcm", "speed": "2"}
        for more in ({}, {"transcript": "What the clip says."}):
            answer = await site.http.post("audio/speech", data=fields | more, files={"clip": ("name.wav", clip)})
            assert answer.status_code == 200, answer.text
            assert len(answer.content) == 2 * 2 * 24_000
        assert list(site.service.outputs.root.parent.rglob("*name*")) == []
        padded = clip + bytes(6 << 20)
        answer = await site.http.post("audio/speech", data=fields, files={"clip": ("a.wav", padded)})
        assert answer.status_code == 200, "some megabytes are fine"


async def test_forms_that_are_refused(api):
    cases = [
        ({}, {"clip": ("a.wav", b"")}, 400, "clip_empty_file", "clip"),
        ({}, {"clip": ("a.wav", b"noise" * 1000)}, 400, "clip_unreadable", "clip"),
        ({}, {"clip": ("a.wav", bytes(200_000))}, 413, "body_too_large", None),
        ({}, {"clip": ("a.wav", bytes(5_000_000))}, 413, "body_too_large", None),
        ({}, {"other": ("a.wav", b"x")}, 400, "parameter_invalid", "clip"),
        ({"voice": "en"}, {"clip": ("a.wav", b"x")}, 400, "parameter_invalid", "voice"),
        ({"speed": "fast"}, {"clip": ("a.wav", b"x")}, 400, "parameter_invalid", "speed"),
        ({"speed": "nan"}, {"clip": ("a.wav", b"x")}, 400, "parameter_invalid", "speed"),
        ({"clip": "text"}, {"x": ("a.wav", b"x")}, 400, "parameter_invalid", "clip"),
        ({}, [("clip", b"x"), ("clip", b"y")], 400, "body_invalid", None),
    ]
    async with api(clip_max_bytes=100_000, body_max_bytes=4096) as site:
        for fields, files, *wanted in cases:
            data = {"model": "cosyui", "input": "Hello."} | fields
            answer = await site.http.post("audio/speech", data=data, files=files)
            error = answer.json()["error"]
            assert [answer.status_code, error["code"], error["param"]] == wanted
            assert site.idle
