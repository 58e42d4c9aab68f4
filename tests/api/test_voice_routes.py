"""Saved voices over HTTP: made, used, changed by whom they belong to, taken along; what is wrong with them."""

import asyncio
import hashlib
import re

import pytest

from cosyui.service.voice_files import CLIP
from cosyui.service.voice_names import BuiltInVoices
from tests.api.conftest import speech, until

pytestmark = pytest.mark.anyio
HELD = "[fake:hold][fake:seconds=2] A sentence."
WORDS = {"name": "Ann", "transcript": "What the clip says.", "language": "en", "consent": "Ann herself."}
GHOST = "voice_" + "0" * 24


def bearer(key):
    return {"authorization": f"Bearer {key}"}


def told(answer):
    """Status, code and parameter of an error."""
    error = answer.json()["error"]
    assert list(error) == ["message", "type", "param", "code"]
    return answer.status_code, error["code"], error["param"]


async def save(site, clip, headers=None, **changes):
    words = {name: value for name, value in (WORDS | changes).items() if value is not ...}
    return await site.http.post("audio/voices", data=words, files={"clip": ("a.wav", clip)}, headers=headers)


async def test_voice_from_its_making_to_its_end(api, clip):
    async with api() as site:
        made = await save(site, clip)
        voice = made.json()
        assert made.status_code == 201, made.text
        assert made.headers["location"] == f"/v1/audio/voices/{voice['id']}"
        assert {name: voice[name] for name in WORDS} == WORDS
        path = f"audio/voices/{voice['id']}"
        assert (await site.http.get(path)).json() == voice
        listed = (await site.http.get("audio/voices")).json()
        assert [one["id"] for one in listed["data"]] == [*BuiltInVoices().list(), voice["id"]]
        assert [one["built_in"] for one in listed["data"]].count(False) == 1
        keys = {"id", "object", "name", "language", "has_transcript", "built_in", "created"}
        assert all(set(one) == keys for one in listed["data"]), "neither transcripts nor notes on consent"
        for name in ("Ann", voice["id"], {"id": voice["id"]}):
            assert (await site.speak(voice=name)).status_code == 200
        changed = await site.http.patch(path, json={"name": "Anna", "language": None, "transcript": ""})
        assert changed.json() == voice | {"name": "Anna", "language": None, "transcript": "", "has_transcript": False}
        assert told(await site.speak(voice="Ann")) == (404, "voice_not_found", "voice")
        assert (await site.speak(voice="Anna")).status_code == 200
        preview = await site.http.get(f"{path}/preview")
        assert (preview.headers["content-type"], preview.content[:4]) == ("audio/wav", b"RIFF")
        file = site.service.settings.voices_folder / voice["id"] / CLIP
        file.write_bytes(preview.content[:-2])
        for answer in (await site.speak(voice="Anna"), await site.http.get(f"{path}/preview")):
            assert told(answer) == (404, "voice_broken", "voice"), "a damaged one is never used"
        gone = await site.http.delete(path)
        assert (gone.status_code, gone.content) == (204, b"")
        for name in ("Anna", voice["id"]):
            assert told(await site.speak(voice=name)) == (404, "voice_not_found", "voice")
        for route in (path, f"{path}/preview", f"{path}/export"):
            assert told(await site.http.get(route)) == (404, "voice_not_found", "voice")
        assert list(site.service.settings.voices_folder.iterdir()) == []
        assert site.service.overview().finished == 4


async def test_voice_is_taken_along(api, clip):
    async with api() as site:
        voice = (await save(site, clip, name="王小明/🎙")).json()
        answer = await site.http.get(f"audio/voices/{voice['id']}/export")
        assert answer.headers["content-type"] == "application/zip"
        assert answer.headers["content-disposition"] == f'attachment; filename="{voice["id"]}.zip"'

        async def take_in(data=answer.content, **fields):
            return await site.http.post("audio/voices/import", data=fields, files={"file": ("../x.zip", data)})

        assert told(await take_in()) == (409, "voice_name_taken", "name")
        copy = await take_in(name="Copy")
        assert copy.status_code == 201, copy.text
        assert {name: copy.json()[name] for name in WORDS} == WORDS | {"name": "Copy"}
        assert (await site.speak(voice="Copy")).status_code == 200
        assert told(await take_in(clip)) == (400, "voice_file_invalid", "file")
        assert told(await take_in(transcript="x")) == (400, "parameter_unknown", "transcript")
        nothing = await site.http.post("audio/voices/import", data={"name": "x"}, files={"clip": ("a", b"x")})
        assert told(nothing)[1:] == ("parameter_invalid", "file")


async def test_what_is_wrong_is_told_with_its_field(api, clip):
    async with api(clip_max_bytes=1 << 20, body_max_bytes=10_000) as site:
        for changes, *wanted in (
            ({"name": "EN"}, 409, "voice_name_taken", "name"),
            ({"name": ...}, 400, "voice_name_missing", "name"),
            ({"name": "a\nb"}, 400, "voice_name_invalid", "name"),
            ({"name": "n" * 300}, 400, "voice_name_too_long", "name"),
            ({"consent": ...}, 400, "consent_missing", "consent"),
            ({"language": "xx"}, 400, "language_invalid", "language"),
            ({"language": "_en"}, 400, "language_invalid", "language"),
            ({"transcript": "word " * 200}, 400, "transcript_too_long", "transcript"),
            ({"maker": "key-x"}, 400, "parameter_unknown", "maker"),
        ):
            assert list(told(await save(site, clip, **changes))) == wanted
        assert told(await save(site, b"noise" * 99)) == (400, "clip_unreadable", "clip")
        assert told(await save(site, clip + bytes(1 << 20))) == (413, "body_too_large", None)
        both = await save(site, b"noise" * 99, name="")
        assert both.json()["error"]["message"].count(".") >= 2, "the sentences of both problems"
        no_clip = await site.http.post("audio/voices", files={"clip": (None, "text"), "name": (None, "x")})
        assert told(no_clip) == (400, "parameter_invalid", "clip")
        for content, kind in ((b"{}", "application/json"), (b"noise", "multipart/form-data; boundary=x"), (b"", "")):
            answer = await site.http.post("audio/voices", content=content, headers={"content-type": kind})
            assert told(answer) == (400, "body_invalid", None)
        assert site.service.voices.all() == ()
        path = f"audio/voices/{(await save(site, clip)).json()['id']}"
        for body, *wanted in (
            ({"name": "EN"}, 409, "voice_name_taken", "name"),
            ({"name": ["x"]}, 400, "parameter_invalid", "name"),
            ({"name": "\0"}, 400, "voice_name_missing", "name"),
            ({"consent": None}, 400, "consent_missing", "consent"),
            ({"clip": "x"}, 400, "parameter_unknown", "clip"),
        ):
            assert list(told(await site.http.patch(path, json=body))) == wanted
        for content in (b"{", b"[]", b"[" * 9_000, b"\xff"):
            answer = await site.http.patch(path, content=content, headers={"content-type": "application/json"})
            assert told(answer) == (400, "body_invalid", None)
        half = b'{"name": "\\ud83d"}', b'{"consent": "\\ud83d"}', b'{"\\ud83d": ""}'
        for content in half:
            answer = await site.http.patch(path, content=content, headers={"content-type": "application/json"})
            assert answer.status_code == 400
        large = {"consent": "x" * 20_000}
        assert told(await site.http.patch(path, json=large)) == (413, "body_too_large", None)
        assert (await site.http.get(path)).json()["name"] == "Ann"


async def test_every_address_tells_its_methods(api):
    async with api() as site:
        for path, methods in (
            ("audio/voices", {"GET", "HEAD", "POST"}),
            ("audio/voices/import", {"POST"}),
            (f"audio/voices/{GHOST}", {"GET", "HEAD", "PATCH", "DELETE"}),
            (f"audio/voices/{GHOST}/export", {"GET", "HEAD"}),
        ):
            answer = await site.http.put(path)
            assert told(answer)[:2] == (405, "route_unknown")
            assert set(answer.headers["allow"].split(", ")) == methods
        answer = await site.http.get("audio/voices/import")
        assert (told(answer)[:2], answer.headers["allow"]) == ((405, "route_unknown"), "POST")


async def test_document_says_what_words_are_refused(api):
    async with api() as site:
        paths = (await site.http.get("openapi.json")).json()["paths"]
        form = paths["/audio/voices"]["post"]["requestBody"]["content"]["multipart/form-data"]
        words = form["schema"]["properties"]
        assert form["schema"]["additionalProperties"] is False
        assert form["encoding"] == {"clip": {"contentType": "audio/*"}}
        assert (words["name"]["maxLength"], words["consent"]["maxLength"]) == (80, 1000)
        name = words["name"]["pattern"]
        for kind, sample in (("L", "[a-z\u4e00-\u9fff]"), ("N", "[0-9]"), ("P", "[!/]"), ("S", "[+]")):
            name = name.replace(f"\\p{{{kind}}}", sample)
        for text in ("Ann", " Ann\n", "王小明", "n" * 80, "7", "+"):
            assert re.search(name, text), text
        for text in ("", "  ", "a\nb", "a\0", "a\u202eb", "a\u2028b"):
            assert not re.search(name, text), text
        assert not re.search(words["consent"]["pattern"], " \0\n")
        change = paths["/audio/voices/{voice_id}"]["patch"]["requestBody"]["content"]["application/json"]["schema"]
        assert None in change["properties"]["language"]["enum"]
        assert None not in words["language"]["enum"], "a form has no null"


async def test_built_in_voices_and_those_that_are_not_there(api):
    async with api() as site:
        document = (await site.http.get("openapi.json")).json()
        assert set(document["paths"]["/audio/voices/{voice_id}"]) == {"get", "patch", "delete", "parameters"}
        assert "Voice" in document["components"]["schemas"]
        english = (await site.http.get("audio/voices/en")).json()
        assert (english["built_in"], english["language"]) == (True, "en")
        assert (await site.http.get("audio/voices/alloy/preview")).content[:4] == b"RIFF"
        for method, path in (("PATCH", "en"), ("DELETE", "alloy"), ("GET", "en/export")):
            answer = await site.http.request(method, f"audio/voices/{path}")
            assert told(answer) == (403, "voice_built_in", "voice")
        for method, path in (("GET", GHOST), ("DELETE", GHOST), ("DELETE", "%2e%2e")):
            assert told(await site.http.request(method, f"audio/voices/{path}"))[:2] in (
                (404, "voice_not_found"),
                (404, "route_unknown"),
            )
        assert told(await site.http.patch(f"audio/voices/{GHOST}", json={}))[:2] == (404, "voice_not_found")


async def test_keys_and_limits_are_those_of_the_rest(api, clip):
    async with api(api_keys="a,b", api_rate=6) as site:
        for method, path in (("GET", "audio/voices"), ("POST", "audio/voices"), ("DELETE", f"audio/voices/{GHOST}")):
            assert told(await site.http.request(method, path))[:2] == (401, "api_key_missing")
        voice = (await save(site, clip, bearer("a"))).json()
        path = f"audio/voices/{voice['id']}"
        assert told(await site.http.delete(path, headers=bearer("b"))) == (403, "voice_not_yours", "voice")
        renamed = await site.http.patch(path, json={"name": "Mine"}, headers=bearer("b"))
        assert told(renamed) == (403, "voice_not_yours", "voice")
        for key in ("a", "b"):
            assert (await site.http.get(f"{path}/preview", headers=bearer(key))).status_code == 200
            assert (await site.speak(voice="Ann", headers=bearer(key))).status_code == 200
        record = (site.service.settings.voices_folder / voice["id"] / "voice.json").read_text()
        assert f"key-{hashlib.sha256(b'a').hexdigest()[:10]}" in record
        assert hashlib.sha256(b"a").hexdigest() not in record
        assert (await site.http.delete(path, headers=bearer("a"))).status_code == 204
        for _ in range(3):
            await save(site, b"noise", bearer("b"))
        answer = await save(site, clip, bearer("b"))
        assert answer.status_code == 429
        assert int(answer.headers["retry-after"]) > 0
        assert (await site.http.get("audio/voices", headers=bearer("b"))).status_code == 200, "costs nothing"


async def test_jobs_keep_the_voice_that_they_were_asked_with(api, clip, release):
    async with api(queue_size=10) as site:
        path = f"audio/voices/{(await save(site, clip)).json()['id']}"
        jobs = [await site.http.post("jobs", json=speech(HELD, voice="Ann")) for _ in range(2)]
        assert (await site.http.patch(path, json={"name": "Bob"})).status_code == 200
        jobs += [await site.http.post("jobs", json=speech(HELD, voice="Bob")) for _ in range(2)]
        spoken = asyncio.create_task(site.speak(HELD, voice="Bob"))
        await until(lambda: len(site.service._drive.jobs) == 5)
        assert (await site.http.delete(path)).status_code == 204
        release.touch()
        assert [(await site.job(job.json()["id"]))["status"] for job in jobs] == ["done"] * 4
        assert (await spoken).status_code == 200
        late = await site.http.post("jobs", json=speech(voice="Bob"))
        assert told(late) == (404, "voice_not_found", "voice")
