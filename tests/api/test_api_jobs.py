"""Jobs: asked for once, looked after, fetched whole, stopped; by the one who asked, and nobody else."""

import asyncio
import io
import wave

import av
import numpy as np
import pytest
import soundfile

from cosyui.api.jobs import JobBook
from cosyui.host.fake_sound import tone_hz
from cosyui.speech.sound.encode import MEDIA_TYPES
from tests.api.conftest import speech, until
from tests.api.test_api_speech import pitch

pytestmark = pytest.mark.anyio
HELD = "[fake:hold][fake:seconds=2] A sentence."


async def start(site, text="[fake:seconds=2] Hello.", headers=None, **changes):
    answer = await site.http.post("jobs", json=speech(text, **changes), headers=headers)
    assert answer.status_code == 202, answer.text
    assert answer.headers["location"] == f"/v1/jobs/{answer.json()['id']}"
    return answer.json()


async def test_from_the_queue_to_its_file(api, release):
    async with api() as site:
        first = await start(site, HELD, response_format="wav")
        await until(lambda: site.service.overview().running)
        second = await start(site, seed=5)
        assert (second["status"], second["position"]) == ("queued", 1)
        shown = (await site.http.get(f"jobs/{second['id']}")).json()
        assert (shown["status"], shown["position"], shown["seed"]) == ("queued", 1, 5)
        assert "estimated_wait_time" in shown
        await until(lambda: site.v1.jobs._jobs[first["id"]].view()["status"] == "running")
        shown = (await site.http.get(f"jobs/{first['id']}")).json()
        assert shown["progress"].keys() == {"done", "expected", "left"}
        early = await site.http.get(f"jobs/{first['id']}/result")
        assert (early.status_code, early.json()["error"]["code"]) == (409, "job_not_done")
        release.touch()
        done = await site.job(first["id"])
        assert (done["status"], done["seconds"], done["url"]) == ("done", 2.0, f"/v1/jobs/{first['id']}/result")
        assert (await site.job(second["id"]))["status"] == "done"
        assert site.idle


async def test_result_in_every_format(api):
    async with api() as site:
        for kind, media_type in MEDIA_TYPES.items():
            job = await start(site, response_format=kind)
            await site.job(job["id"])
            answer = await site.http.get(f"jobs/{job['id']}/result")
            assert (answer.status_code, answer.headers["content-type"]) == (200, media_type)
            assert f'filename="{job["id"]}.{kind}"' in answer.headers["content-disposition"]
            if kind == "pcm":
                assert len(answer.content) == 2 * 2 * 24_000
                continue
            with av.open(io.BytesIO(answer.content)) as file:
                sound = np.concatenate([frame.to_ndarray()[0] for frame in file.decode(audio=0)])
                rate = file.streams.audio[0].rate
            assert len(sound) / rate == pytest.approx(2.0, abs=0.1)
            assert pitch(sound, rate) == pytest.approx(tone_hz(job["id"]), abs=3)
            if kind == "flac":
                assert len(soundfile.read(io.BytesIO(answer.content))[0]) == 2 * 24_000


async def test_wav_has_true_sizes_at_every_rate_and_comes_in_parts(api):
    async with api() as site:
        for rate in (24_000, 16_000):
            job = await start(site, response_format="wav", sample_rate=rate)
            await site.job(job["id"])
            whole = await site.http.get(f"jobs/{job['id']}/result")
            with wave.open(io.BytesIO(whole.content)) as file:
                assert (file.getframerate(), file.getnframes()) == (rate, 2 * rate)
                assert len(file.readframes(file.getnframes())) == 2 * 2 * rate
            if rate == 24_000:
                part = await site.http.get(f"jobs/{job['id']}/result", headers={"range": "bytes=44-143"})
                assert (part.status_code, part.content) == (206, whole.content[44:144])


async def test_failed_stopped_and_purged(api):
    async with api() as site:
        failed = await start(site, "[fake:fail=output_endless] Hello.")
        shown = await site.job(failed["id"])
        assert (shown["status"], shown["error"]["code"]) == ("failed", "output_endless")
        stopped = await start(site, HELD)
        answer = await site.http.delete(f"jobs/{stopped['id']}")
        assert (answer.status_code, answer.json()["status"]) == (200, "stopped")
        await until(lambda: site.idle)
        for job in (failed, stopped):
            answer = await site.http.get(f"jobs/{job['id']}/result")
            assert (answer.status_code, answer.json()["error"]["code"]) == (409, "job_not_done")
        done = await start(site)
        await site.job(done["id"])
        assert (await site.http.delete(f"jobs/{done['id']}")).json()["status"] == "done", "it stays"
        for path in site.service.outputs.root.rglob("*.wav"):
            path.unlink()
        answer = await site.http.get(f"jobs/{done['id']}/result")
        assert (answer.status_code, answer.json()["error"]["code"]) == (410, "job_result_gone")


async def test_what_is_wrong_is_told_at_once(api):
    async with api() as site:
        for changes, code in (({"input": ""}, "text_empty"), ({"stream_format": "sse"}, "parameter_invalid")):
            answer = await site.http.post("jobs", json=speech(**changes))
            assert (answer.status_code, answer.json()["error"]["code"]) == (400, code)
        assert site.idle


async def test_one_key_is_one_job(api):
    async with api() as site:
        headers = {"idempotency-key": "abc"}
        jobs = await asyncio.gather(*(start(site, headers=headers, seed=1) for _ in range(5)))
        assert len({job["id"] for job in jobs}) == 1
        await site.job(jobs[0]["id"])
        assert (await start(site, headers=headers, seed=1))["status"] == "done"
        assert site.service.overview().finished == 1
        other = await site.http.post("jobs", json=speech("Another text."), headers=headers)
        assert (other.status_code, other.json()["error"]["code"]) == (409, "idempotency_conflict")
        wrong = await site.http.post("jobs", json=speech(""), headers={"idempotency-key": "new"})
        assert wrong.status_code == 400
        assert (await start(site, headers={"idempotency-key": "new"}))["id"] != jobs[0]["id"]
        long = await site.http.post("jobs", json=speech(), headers={"idempotency-key": "x" * 256})
        assert long.status_code == 400


async def test_nobody_else_sees_it(api):
    async with api(api_keys="a,b") as site:
        headers = {key: {"authorization": f"Bearer {key}", "idempotency-key": "same"} for key in "ab"}
        job = await start(site, HELD, headers["a"])
        assert (await start(site, HELD, headers["b"]))["id"] != job["id"]
        for method, path in (("GET", ""), ("GET", "/result"), ("DELETE", "")):
            answer = await site.http.request(method, f"jobs/{job['id']}{path}", headers=headers["b"])
            assert (answer.status_code, answer.json()["error"]["code"]) == (404, "job_not_found")
        assert (await site.http.get(f"jobs/{job['id']}", headers=headers["a"])).status_code == 200


async def test_old_ones_are_forgotten_and_with_them_their_keys(fake_service, form):
    async with fake_service() as service:
        from cosyui.api.bodies import SpeechBody
        from cosyui.api.gate import Gate

        book = JobBook(service, Gate(service.settings), remembered=2)
        body = SpeechBody(model="cosyui", input="x")
        for number in range(5):
            job = await book.start(form(f"Number {number}."), body, f"key-{number}", b"")
            await job.task
        assert len(book._jobs) == len(book._by_key) == 3
        assert job.id in book._jobs
