"""Keys, limits, and pages of other sites: who gets in, and who hears why not."""

import asyncio
import hashlib

import pytest
from starlette.testclient import TestClient
from starlette.websockets import WebSocketDisconnect

from cosyui.api.front import Front
from cosyui.api.gate import WRONG_KEYS, Gate
from cosyui.api.problems import ApiError
from cosyui.errors import SetupError
from cosyui.settings import Settings
from tests.api.conftest import speech, until

pytestmark = pytest.mark.anyio
HELD = "[fake:hold][fake:seconds=2] A sentence."
APP = "https://app.example"
EVIL = "https://evil.example"
SECOND = hashlib.sha256(b"second-key").hexdigest()


def bearer(key):
    return {"authorization": f"Bearer {key}"}


def code_of(answer):
    return answer.status_code, answer.json()["error"]["code"]


async def test_keys_open_and_are_told_to_nobody(api, caplog):
    caplog.set_level("DEBUG", "cosyui")
    async with api(api_keys=f"first-key, sha256:{SECOND}") as site:
        for path in ("models", "jobs/x", "jobs/x/result", "nothing"):
            assert code_of(await site.http.get(path)) == (401, "api_key_missing")
        for headers in ({}, {"authorization": "first-key"}, {"authorization": "Basic first-key"}):
            answer = await site.speak(headers=headers)
            assert code_of(answer) == (401, "api_key_missing")
            assert answer.headers["www-authenticate"] == "Bearer"
        for wrong in ("first-ke", "first-key,", "FIRST-KEY", SECOND, f"sha256:{SECOND}"):
            assert code_of(await site.speak(headers=bearer(wrong))) == (401, "invalid_api_key")
        assert site.service.overview().finished == 0
        for right in ("first-key", "second-key"):
            assert (await site.speak(headers=bearer(right))).status_code == 200
            assert (await site.speak(headers={"authorization": f"bearer   {right}"})).status_code == 200
        assert (await site.http.get("openapi.json")).status_code == 200
        told = caplog.text + str([record.__dict__ for record in caplog.records]) + str(site.service.settings.table())
        for secret in ("first-key", "second-key", SECOND):
            assert secret not in told
            assert secret not in repr(vars(site.v1.gate))


@pytest.mark.parametrize("keys", ["a,,b", "with blank", "sha256:12", "ключ", ","])
def test_keys_that_cannot_be(keys):
    with pytest.raises(SetupError) as caught:
        Settings.load({"api_keys": keys}, {})
    assert "sha256" in caught.value.message
    assert keys not in caught.value.message.replace("sha256: and", "").replace("or sha256:", "") or keys == ","


async def test_a_page_with_a_login_has_no_open_api(api):
    async with api(login="ann:secret") as site:
        answer = await site.speak()
        assert code_of(answer) == (401, "api_key_missing")
        assert "COSYUI_API_KEYS" in answer.json()["error"]["message"]
    async with api(login="ann:secret", api_keys="key") as site:
        assert (await site.speak(headers=bearer("key"))).status_code == 200


def test_who_tries_many_keys_is_not_looked_at():
    now = [0.0]
    gate = Gate(Settings.load({"api_keys": "right"}, {}), lambda: now[0])
    for number in range(WRONG_KEYS):
        with pytest.raises(ApiError, match="not one"):
            gate.client(f"Bearer wrong-{number}", "192.0.2.7")
    with pytest.raises(ApiError) as caught:
        gate.client("Bearer right", "192.0.2.7")
    assert (caught.value.code, caught.value.status) == ("too_many_keys", 429)
    assert caught.value.retry_after > 0
    assert gate.client("Bearer right", "192.0.2.8").startswith("key-")
    now[0] += caught.value.retry_after
    assert gate.client("Bearer right", "192.0.2.7").startswith("key-")


def test_clients_are_told_apart_and_not_named():
    gate = Gate(Settings.load({}, {}))
    names = {gate.client(header, address) for header in (None, "Bearer x") for address in ("192.0.2.7", "192.0.2.8")}
    assert len(names) == 2
    assert not any("192" in name and "." in name for name in names)
    keyed = Gate(Settings.load({"api_keys": "a,b"}, {}))
    assert len({keyed.client(f"Bearer {key}", address) for key in "ab" for address in ("x", "y")}) == 2


def test_requests_a_minute():
    now = [0.0]
    gate = Gate(Settings.load({"api_rate": 3}, {}), lambda: now[0])
    for _ in range(3):
        gate.check_rate("one")
    with pytest.raises(ApiError) as caught:
        gate.check_rate("one")
    assert (caught.value.code, caught.value.status, caught.value.retry_after) == ("rate_limit_exceeded", 429, 20)
    gate.check_rate("other")
    now[0] += 20
    gate.check_rate("one")


async def test_limits_come_with_a_time_to_try_again(api, release):
    async with api(api_rate=4, api_concurrency=1, api_keys="a,b") as site:
        held = asyncio.create_task(site.speak(HELD, headers=bearer("a")))
        await until(lambda: site.service.overview().running)
        for path in ("audio/speech", "jobs"):
            answer = await site.http.post(path, json=speech(), headers=bearer("a"))
            assert code_of(answer) == (429, "too_many_unfinished")
            assert int(answer.headers["retry-after"]) > 0
        job = await site.http.post("jobs", json=speech(), headers=bearer("b"))
        assert job.status_code == 202
        assert code_of(await site.speak(headers=bearer("b"))) == (429, "too_many_unfinished")
        release.touch()
        assert (await held).status_code == 200
        await until(lambda: site.idle)
        assert (await site.speak(headers=bearer("a"))).status_code == 200
        answer = await site.speak(headers=bearer("a"))
        assert code_of(answer) == (429, "rate_limit_exceeded")
        assert int(answer.headers["retry-after"]) > 0
        assert (await site.http.get("models", headers=bearer("a"))).status_code == 200, "costs nothing"


async def test_pages_of_listed_sites_may_use_it(api):
    async with api(cors_origins=f"{APP}, http://localhost:3000", api_keys="key") as site:
        answer = await site.speak(headers=bearer("key") | {"origin": APP})
        assert answer.status_code == 200
        assert answer.headers["access-control-allow-origin"] == APP
        assert "access-control-allow-credentials" not in answer.headers
        assert "X-Request-Id" in answer.headers["access-control-expose-headers"]
        wrong = await site.speak(headers={"origin": APP})
        assert code_of(wrong) == (401, "api_key_missing")
        assert wrong.headers["access-control-allow-origin"] == APP, "its page may read why"
        wish = {"access-control-request-method": "POST", "access-control-request-headers": "authorization,x-own"}
        before = await site.http.options("audio/speech", headers=wish | {"origin": APP})
        assert before.status_code == 200
        assert before.headers["access-control-allow-origin"] == APP
        assert "authorization" in before.headers["access-control-allow-headers"]
        for origin in (EVIL, "null", f"{APP}.evil.example", f"{APP}:8443", "http://app.example"):
            refused = await site.speak(headers=bearer("key") | {"origin": origin})
            assert code_of(refused) == (403, "origin_foreign")
            asked = await site.http.options("audio/speech", headers=wish | {"origin": origin})
            read = await site.http.get("models", headers=bearer("key") | {"origin": origin})
            for answer in (refused, asked, read):
                assert "access-control-allow-origin" not in answer.headers
        assert site.service.overview().finished == 1


async def test_without_listed_sites_there_are_no_such_headers(api):
    async with api() as site:
        assert code_of(await site.speak(headers={"origin": APP})) == (403, "origin_foreign")
        for answer in (await site.speak(headers={"origin": site.url}), await site.speak()):
            assert answer.status_code == 200
            assert not [name for name in answer.headers if name.startswith("access-control")]


@pytest.mark.parametrize("origins", ["*", "app.example", "https://*.example", "https://app.example/path", "null"])
def test_origins_that_cannot_be(origins):
    with pytest.raises(SetupError):
        Settings.load({"cors_origins": origins}, {})


def test_websockets_pass_the_same_door():
    async def talk(scope, receive, send):
        await receive()
        await send({"type": "websocket.accept"})
        await send({"type": "websocket.send", "text": scope["state"]["client"]})
        await send({"type": "websocket.close"})

    client = TestClient(Front(talk, Gate(Settings.load({"api_keys": "key"}, {}))))
    with client.websocket_connect("/ws", headers=bearer("key")) as socket:
        assert socket.receive_text().startswith("key-")
    with pytest.raises(WebSocketDisconnect), client.websocket_connect("/ws"):
        pass
