"""Batches over the API: started from every kind of input, looked after, fetched; by the one who asked alone."""

import io
import json
import wave
import zipfile

import pytest

from tests.api.conftest import until

pytestmark = pytest.mark.anyio
KEYS = {"api_keys": "first,second"}
FIRST, SECOND = ({"authorization": f"Bearer {key}"} for key in ("first", "second"))
LINES = {"lines": [{"text": "One.", "voice": "en", "seed": 5}, {"text": "你好。", "voice": "zh", "name": "Bo"}]}


async def start(site, headers=None, **body):
    answer = await site.http.post("batches", json=body, headers=headers)
    assert answer.status_code == 202, answer.text
    assert answer.headers["location"] == f"/v1/batches/{answer.json()['id']}"
    return answer.json()


async def finished(site, batch, headers=None):
    ours = site.service.batches._batches[batch["id"]]
    await site.service.batches.ended(ours)
    return (await site.http.get(f"batches/{batch['id']}", headers=headers)).json()


async def upload(site, data, name="lines.csv", **fields):
    return await site.http.post("batches", files={"file": (name, data)}, data=fields)


async def test_from_lines_to_the_archive(api):
    async with api() as site:
        batch = await start(site, **LINES, pause=0.1)
        assert (batch["object"], batch["status"], batch["counts"]["total"]) == ("batch", "working", 2)
        done = await finished(site, batch)
        assert (done["status"], done["counts"]) == ("done", {"done": 2, "failed": 0, "waiting": 0, "total": 2})
        assert [(line["line"], line["name"], line["status"]) for line in done["lines"]] == [
            (1, "", "done"), (2, "Bo", "done")
        ]  # fmt: skip
        assert done["lines"][0]["seed"] == 5
        answer = await site.http.get(f"batches/{batch['id']}/result")
        assert (answer.status_code, answer.headers["content-type"]) == (200, "application/zip")
        assert f"{batch['id']}.zip" in answer.headers["content-disposition"]
        with zipfile.ZipFile(io.BytesIO(answer.content)) as archive, archive.open("dialogue.wav") as inner:
            assert archive.testzip() is None
            with wave.open(inner) as file:
                assert file.getnframes() == round(24_000 * (done["seconds"] + 0.1))
        assert (await site.http.get("batches")).json()["data"][0]["id"] == batch["id"]
        assert (await site.http.delete(f"batches/{batch['id']}")).status_code == 204
        assert (await site.http.get(f"batches/{batch['id']}")).json()["error"]["code"] == "batch_not_found"
        await until(lambda: site.idle)


async def test_scripts_and_files(api):
    cast = {"Ann": "en", "Bo": "zh"}
    async with api() as site:
        batch = await start(site, script="Ann: Hi.\nBo：你好。\n\nThey part.", cast=cast, voice="nova")
        done = await finished(site, batch)
        assert [line["voice"] for line in done["lines"]] == ["en", "zh", "nova"]
        for data, name, fields in [
            (b"text;voice\nHi;en\n", "a.csv", {}),
            (b'{"text": "Hi"}\n', "b.jsonl", {"voice": "en", "pause": "0"}),
            ("Ann：Hi".encode(), "c.TXT", {"cast": json.dumps(cast)}),
            (b"text\nHi\n", "no ending", {"format": "csv", "voice": "en"}),
        ]:
            answer = await upload(site, data, name, **fields)
            assert answer.status_code == 202, answer.text
            assert (await finished(site, answer.json()))["counts"]["done"] == 1


async def test_bad_requests_start_nothing(api):
    async with api() as site:
        answer = await upload(site, b"text,voice\n,en\nHi,nobody\n")
        error = answer.json()["error"]
        assert (answer.status_code, error["code"], error["count"]) == (400, "batch_invalid", 2)
        assert [(one["line"], one["code"]) for one in error["problems"]] == [(2, "text_empty"), (3, "voice_not_found")]
        for body, code in [
            ({}, "parameter_missing"),
            ({"lines": [], "script": "x"}, "parameter_missing"),
            ({"lines": []}, "batch_empty"),
            ({"lines": ["x"]}, "batch_invalid"),
            ({"lines": [{"txt": "x"}]}, "batch_invalid"),
            ({"lines": [{"text": "x"}], "colour": 1}, "parameter_unknown"),
            ({"lines": [{"text": "x"}], "pause": 11}, "parameter_invalid"),
            ({"script": "x", "cast": {"Ann": 1}}, "parameter_invalid"),
            ({"script": "Ann: x", "voice": "en"}, "batch_invalid"),
        ]:
            answer = await site.http.post("batches", json=body)
            assert (answer.status_code, answer.json()["error"]["code"]) == (400, code), body
        for data, name, fields, code in [
            (b"text\nHi\n", "a.doc", {}, "parameter_invalid"),
            (b"text\nHi\n", "a.csv", {"format": "xls"}, "parameter_invalid"),
            (b"Ann: Hi\n", "a.txt", {"cast": "{"}, "body_invalid"),
            (b"Ann: Hi\n", "a.txt", {"cast": "[]"}, "parameter_invalid"),
            (b"Ann: Hi\n", "a.txt", {"pause": "long"}, "parameter_invalid"),
            (b"Ann: Hi\n", "a.txt", {"mode": "x"}, "parameter_unknown"),
            (b"\xff\n", "a.txt", {}, "batch_invalid"),
        ]:
            answer = await upload(site, data, name, **fields)
            assert (answer.status_code, answer.json()["error"]["code"]) == (400, code), (name, fields)
        answer = await site.http.post("batches", content=b"x", headers={"content-type": "text/plain"})
        assert answer.json()["error"]["code"] == "body_invalid"
        assert site.service.batches._batches == {}
        assert site.idle
    async with api(body_max_bytes=1024) as site:
        assert (await upload(site, b"x" * 3000, "a.txt")).status_code == 413
    async with api(batch_lines=0) as site:
        answer = await site.http.post("batches", json=LINES)
        assert (answer.status_code, answer.json()["error"]["code"]) == (403, "batches_off")


async def test_clients_are_kept_apart_and_known_again(api):
    async with api(**KEYS) as site:
        batch = await start(site, FIRST, **LINES)
        await finished(site, batch, FIRST)
        one = f"batches/{batch['id']}"
        for method, address in [
            ("GET", one), ("DELETE", one), ("GET", f"{one}/result"), ("POST", f"{one}/stop"), ("POST", f"{one}/resume")
        ]:  # fmt: skip
            answer = await site.http.request(method, address, headers=SECOND)
            assert (answer.status_code, answer.json()["error"]["code"]) == (404, "batch_not_found")
            assert (await site.http.request(method, address)).status_code == 401
        assert (await site.http.get("batches", headers=SECOND)).json()["data"] == []
    async with api(**KEYS) as site:
        assert (await site.http.get(one, headers=SECOND)).status_code == 404
        assert (await site.http.get(one, headers=FIRST)).json()["status"] == "done"
        assert (await site.http.get(f"{one}/result", headers=FIRST)).status_code == 200
    async with api() as site:
        batch = await start(site, **LINES)
        await finished(site, batch)
    async with api() as site:
        assert (await site.http.get(f"batches/{batch['id']}")).json()["status"] == "done"
        assert (await site.http.get(one)).status_code == 404


async def test_stop_resume_and_limits(api, release):
    async with api(api_concurrency=1, api_rate=3) as site:
        batch = await start(site, lines=[{"text": "One."}, {"text": "[fake:hold] Two."}], voice="en")
        one = f"batches/{batch['id']}"
        await until(lambda: site.service.batches._batches[batch["id"]].counts()["done"] == 1)
        shown = (await site.http.get(one)).json()
        assert [line["status"] for line in shown["lines"]] == ["done", "working"]
        assert shown["estimated_time_left"] > 0
        early = await site.http.get(f"{one}/result")
        assert (early.status_code, early.json()["error"]["code"]) == (409, "batch_not_done")
        second = await site.http.post("batches", json=LINES)
        assert (second.status_code, second.json()["error"]["code"]) == (429, "too_many_unfinished")
        stopped = (await site.http.post(f"{one}/stop")).json()
        assert (stopped["status"], stopped["counts"]["waiting"]) == ("stopped", 1)
        await until(lambda: site.idle)
        assert (await site.http.get(f"{one}/result")).status_code == 200
        release.touch()
        assert (await site.http.post(f"{one}/resume")).json()["status"] == "working"
        assert (await finished(site, batch))["status"] == "done"
        limited = await site.http.post("batches", json=LINES)
        assert (limited.status_code, limited.json()["error"]["code"]) == (429, "rate_limit_exceeded")


async def test_none_is_begun_while_the_service_drains_and_none_counts_as_unfinished(api):
    async with api() as site:
        batch = await start(site, lines=[{"text": "[fake:fail] One."}], voice="en")
        assert (await finished(site, batch))["counts"]["failed"] == 1
        await until(lambda: site.idle)
        await site.service.drain(0)
        for address, body in (("batches", LINES), (f"batches/{batch['id']}/resume", None)):
            answer = await site.http.post(address, json=body)
            assert (answer.status_code, answer.json()["error"]["code"]) == (503, "service_stopping")
            assert int(answer.headers["retry-after"]) > 0
        assert site.idle
        assert [one["id"] for one in (await site.http.get("batches")).json()["data"]] == [batch["id"]]


async def test_methods_and_document(api):
    async with api() as site:
        for address, allowed in [
            ("batches", {"GET", "HEAD", "POST"}),
            ("batches/batch_x", {"GET", "HEAD", "DELETE"}),
            ("batches/batch_x/resume", {"POST"}),
        ]:
            answer = await site.http.put(address)
            assert answer.status_code == 405
            assert set(answer.headers["allow"].split(", ")) == allowed
        document = (await site.http.get("openapi.json")).json()
        paths = {path: set(told) - {"parameters"} for path, told in document["paths"].items() if "batch" in path}
        assert paths == {
            "/batches": {"get", "post"},
            "/batches/{batch_id}": {"get", "delete"},
            "/batches/{batch_id}/result": {"get"},
            "/batches/{batch_id}/stop": {"post"},
            "/batches/{batch_id}/resume": {"post"},
        }
        body = document["components"]["schemas"]["BatchBody"]
        assert set(body["properties"]) == {"lines", "script", "cast", "voice", "pause"}
