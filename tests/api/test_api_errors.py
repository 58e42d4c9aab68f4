"""What is wrong with a request is told in OpenAI's shape, with a status, a code and a parameter; never more."""

import asyncio
import json
from dataclasses import replace

import pytest

from cosyui.speech.sound import encode
from tests.api.conftest import speech, until

pytestmark = pytest.mark.anyio
HELD = "[fake:hold][fake:seconds=2] A sentence."


def error_of(answer):
    """Its status, code and parameter."""
    body = answer.json()
    assert list(body) == ["error"]
    assert list(body["error"]) == ["message", "type", "param", "code"]
    assert body["error"]["message"]
    assert answer.headers["x-request-id"]
    return answer.status_code, body["error"]["code"], body["error"]["param"]


WRONG = [
    ({"model": ...}, 400, "parameter_missing", "model"),
    ({"input": ...}, 400, "parameter_missing", "input"),
    ({"voice": ...}, 400, "parameter_missing", "voice"),
    ({"model": "gpt-5"}, 404, "model_not_found", "model"),
    ({"model": None}, 400, "parameter_invalid", "model"),
    ({"voice": "eng"}, 404, "voice_not_found", "voice"),
    ({"voice": "EN"}, 404, "voice_not_found", "voice"),
    ({"voice": "../en"}, 404, "voice_not_found", "voice"),
    ({"voice": {"id": "none"}}, 404, "voice_not_found", "voice"),
    ({"voice": {"name": "en"}}, 400, "parameter_invalid", "voice"),
    ({"voice": ["en"]}, 400, "parameter_invalid", "voice"),
    ({"input": ""}, 400, "text_empty", "input"),
    ({"input": "..."}, 400, "text_nothing_to_speak", "input"),
    ({"input": "long " * 5000}, 400, "text_too_long", "input"),
    ({"input": 5}, 400, "parameter_invalid", "input"),
    ({"input": ["Hello."]}, 400, "parameter_invalid", "input"),
    ({"input": "a\0b"}, 400, "parameter_invalid", "input"),
    ({"input": "half \ud83d of it"}, 400, "parameter_invalid", "input"),
    ({"instructions": "\0"}, 400, "parameter_invalid", "instructions"),
    ({"instructions": "long " * 500}, 400, "instruction_too_long", "instructions"),
    ({"response_format": "ogg"}, 400, "parameter_invalid", "response_format"),
    ({"stream_format": "mp3"}, 400, "parameter_invalid", "stream_format"),
    ({"sample_rate": 11_025}, 400, "sample_rate_unsupported", "sample_rate"),
    ({"sample_rate": "24000"}, 400, "parameter_invalid", "sample_rate"),
    ({"response_format": "opus", "sample_rate": 44_100}, 400, "sample_rate_unsupported", "sample_rate"),
    ({"speed": 0}, 400, "speed_out_of_range", "speed"),
    ({"speed": -1}, 400, "speed_out_of_range", "speed"),
    ({"speed": 100}, 400, "speed_out_of_range", "speed"),
    ({"speed": "fast"}, 400, "parameter_invalid", "speed"),
    ({"speed": "1"}, 400, "parameter_invalid", "speed"),
    ({"speed": True}, 400, "parameter_invalid", "speed"),
    ({"speed": None}, 400, "parameter_invalid", "speed"),
    ({"speed": 10**400}, 400, "parameter_invalid", "speed"),
    ({"seed": -1}, 400, "seed_out_of_range", "seed"),
    ({"seed": 1 << 31}, 400, "seed_out_of_range", "seed"),
    ({"seed": 1.5}, 400, "parameter_invalid", "seed"),
    ({"deadline": 0}, 400, "deadline_invalid", "deadline"),
    ({"language": "xx"}, 400, "language_invalid", "language"),
    ({"sped": 1}, 400, "parameter_unknown", "sped"),
    ({"transcript": "x"}, 400, "parameter_unknown", "transcript"),
    ({"\ud83d": 1}, 400, "body_invalid", None),
]
BROKEN = [
    b"",
    b"{",
    b"null",
    b"[]",
    b'"text"',
    b"\xff\xfe\x00",
    b"\x00" * 100,
    b'{"model": "cosyui", "input": "x", "voice": "en", "speed": NaN}',
    b'{"model": "cosyui", "input": "x", "voice": "en", "speed": Infinity}',
    b'{"seed": ' + b"9" * 5000 + b"}",
    b"[" * 100_000,
    b'{"a":' * 50_000,
]


async def test_wrong_parameters(api):
    async with api() as site:
        for changes, *wanted in WRONG:
            answer = await site.post(json.dumps(speech(**changes)))
            assert list(error_of(answer)) == wanted, changes
            if "speed" in changes:
                assert "0.5" in answer.json()["error"]["message"]
        assert site.service.overview().finished == 0
        assert site.idle
        assert (await site.speak()).status_code == 200


async def test_broken_bodies(api):
    async with api() as site:
        for body in BROKEN:
            assert error_of(await site.post(body)) == (400, "body_invalid", None), body[:50]
        good = json.dumps(speech()).encode()
        for kind in ("text/plain", "application/x-www-form-urlencoded", "", "multipart/form-data", "audio/wav"):
            assert error_of(await site.post(good, kind)) == (400, "body_invalid", None), kind
        for body in (
            b"",
            b"noise" * 1000,
            b"--x\r\n\r\n",
            b"--x\r\nContent-Disposition: form-data\r\n\r\nabc\r\n--x--",
        ):
            answer = await site.post(body, "multipart/form-data; boundary=x")
            assert answer.status_code == 400, body[:50]
            error_of(answer)


async def test_bodies_are_bounded_while_they_are_read(api):
    async def pieces():
        for _ in range(3_000):
            yield bytes(10_000)

    async with api(body_max_bytes=10_000) as site:
        assert error_of(await site.post(bytes(10_001))) == (413, "body_too_large", None)
        answer = await site.http.post("audio/speech", content=pieces(), headers={"content-type": "application/json"})
        assert error_of(answer) == (413, "body_too_large", None)
        reader, writer = await asyncio.open_connection("127.0.0.1", site.port)
        head = f"POST /v1/audio/speech HTTP/1.1\r\nHost: 127.0.0.1:{site.port}\r\nContent-Type: application/json\r\n"
        writer.write(f"{head}Expect: 100-continue\r\nContent-Length: 50000000\r\n\r\n".encode())
        assert b"413" in await reader.readline(), "without asking for the body"
        writer.close()
        assert (await site.speak()).status_code == 200


async def test_other_addresses_and_methods(api):
    async with api() as site:
        for method, path, status in (
            ("GET", "audio/speech", 405),
            ("PUT", "audio/speech", 405),
            ("GET", "audio/nothing", 404),
            ("POST", "models", 405),
            ("PATCH", "jobs/x", 405),
            ("GET", "", 404),
        ):
            assert error_of(await site.http.request(method, path)) == (status, "route_unknown", None)


async def test_full_queue_tells_when_to_come_again(api):
    async with api(queue_size=2, client_queue=1) as site:
        held = [asyncio.create_task(site.speak(HELD)) for _ in range(2)]
        await until(lambda: site.service.overview().running and site.service.overview().waiting)
        answer = await site.speak()
        assert error_of(answer) == (429, "client_queue_full", None)
        assert int(answer.headers["retry-after"]) > 0
        assert answer.json()["error"]["type"] == "rate_limit_error"
        for task in held:
            task.cancel()
    async with api(queue_size=0) as site:
        held = asyncio.create_task(site.speak(HELD))
        await until(lambda: site.service.overview().running)
        answer = await site.speak()
        assert error_of(answer) == (429, "queue_full", None)
        assert int(answer.headers["retry-after"]) > 0
        held.cancel()


async def test_what_nobody_foresaw_is_told_by_its_id_alone(api, monkeypatch, caplog):
    async def crash(form):
        raise ZeroDivisionError("secret detail in /home/somebody")

    async with api() as site:
        monkeypatch.setattr(site.service, "submit", crash)
        for path in ("audio/speech", "jobs"):
            answer = await site.http.post(path, json=speech())
            assert error_of(answer) == (500, "internal", None)
            request_id = answer.headers["x-request-id"]
            assert request_id in answer.json()["error"]["message"]
            for inside in ("secret", "home", "ZeroDivision", "Traceback", ".py"):
                assert inside not in answer.text
            (line,) = [record for record in caplog.records if record.getMessage() == "api_crashed"]
            assert line.fields["request_id"] == request_id
            assert line.exc_info[0] is ZeroDivisionError
            caplog.clear()
        assert site.v1.gate.unfinished == 0


async def test_a_fault_in_the_middle_breaks_the_connection_off(api, monkeypatch, release):
    async with api() as site:
        reader, writer = await site.ask(speech(HELD))
        head = await reader.readuntil(b"\r\n\r\n")
        assert b"200 OK" in head
        monkeypatch.setattr(encode.Encoder, "finish", lambda encoder: 1 / 0)
        release.touch()
        rest = await reader.read()
        assert not rest.endswith(b"0\r\n\r\n")
        assert b"Zero" not in rest
        writer.close()
        await until(lambda: site.idle)


async def test_own_request_id_is_given_back(api):
    async with api() as site:
        answer = await site.speak(headers={"x-request-id": "mine-1"})
        assert answer.headers["x-client-request-id"] == "mine-1"
        assert answer.headers["x-request-id"] != "mine-1"
        for wrong in ("a b", "x" * 101, "<script>"):
            assert "x-client-request-id" not in (await site.speak(headers={"x-request-id": wrong})).headers


async def test_instructions_that_the_model_does_not_follow(api, monkeypatch):
    async with api() as site:
        (engine,) = site.service.client.engines
        monkeypatch.setattr(engine, "facts", replace(engine.facts, instruct_supported=False))
        assert error_of(await site.speak(instructions="Happily.")) == (400, "instruct_unsupported", "instructions")
        assert (await site.speak(instructions=" ")).status_code == 200


async def test_model_that_cannot_be_loaded(api):
    async with api(wait=False, fake={"directives": "[fake:load_error]"}) as site:
        await until(lambda: site.service.client.state == "broken")
        assert error_of(await site.speak()) == (503, "checkpoint_missing_file", None)


async def test_models_and_document(api):
    async with api() as site:
        listed = (await site.http.get("models")).json()
        names = [model["id"] for model in listed["data"]]
        assert listed["object"] == "list"
        assert {"fake", "cosyui", "tts-1", "tts-1-hd", "gpt-4o-mini-tts"} <= set(names)
        assert len(names) == len(set(names))
        assert (await site.http.get("models/tts-1")).json() in listed["data"]
        assert error_of(await site.http.get("models/none")) == (404, "model_not_found", "model")
        document = (await site.http.get("openapi.json")).json()
        assert document["openapi"].startswith("3.1")
        body = document["components"]["schemas"]["SpeechBody"]
        assert body["required"] == ["model", "input"]
        assert set(body["properties"]["sample_rate"]["enum"]) == set(encode.RATES)
        assert "clip" in document["components"]["schemas"]["CloneBody"]["properties"]
        shown = {
            (path, method) for path, item in document["paths"].items() for method in item if method != "parameters"
        }
        assert len(shown) == 22
