"""Batches on a service with the fake engine: made in order, gone on with, stopped, kept apart, deleted."""

import asyncio
import json
import wave
import zipfile

import numpy as np
import pytest

from cosyui.errors import ConflictError, CosyuiError, MissingError
from cosyui.host.config import FakeScript
from cosyui.host.fake_sound import tone_hz
from cosyui.service.batch_files import BATCHES
from cosyui.service.batch_input import parse
from cosyui.service.batch_lines import BatchError, Line, Parsed

pytestmark = pytest.mark.anyio
OWNER = "page-0"


def lines(*texts, **changes):
    return Parsed([Line(number=number, text=text, **changes) for number, text in enumerate(texts, 1)], [])


async def begin(service, *texts, owner=OWNER, voice="en", **changes):
    return await service.batches.add(owner, owner, lines(*texts, **changes), voice=voice)


def watch(service):
    """Every request that the engine is given from now on."""
    asked, submit = [], service._make_job

    def note(form, clip):
        job = submit(form, clip)
        asked.append(job.request)
        return job

    service._make_job = note
    return asked


def statuses(batch):
    return [line.status for line in batch.progress.lines]


def samples_of(path):
    with wave.open(str(path)) as file:
        assert (file.getframerate(), file.getnchannels(), file.getsampwidth()) == (24_000, 1, 2)
        return np.frombuffer(file.readframes(file.getnframes()), "<i2")


def pitch(samples):
    return round(int(np.argmax(np.abs(np.fft.rfft(samples[:24_000])))) * 24_000 / min(len(samples), 24_000))


async def test_lines_are_made_in_order_each_in_its_voice(fake_service):
    async with fake_service() as service:
        asked = watch(service)
        given = parse("text,voice,seed,speed\nOne here.,en,7,\n你好世界。,zh,,1.5\nThree.,nova,,\n", "csv")
        batch = await service.batches.add(OWNER, OWNER, given)
        await service.batches.ended(batch)
        assert (batch.state, statuses(batch)) == ("done", ["done"] * 3)
        assert [request.text for request in asked] == ["One here.", "你好世界。", "Three."]
        assert [request.prompt.transcript[:3] for request in asked] == ["Tea", "当年就", "Tea"]
        assert [request.speed for request in asked] == [1.0, 1.5, 1.0]
        assert [request.seed for request in asked] == [line.seed for line in batch.progress.lines]
        assert asked[0].seed == 7
        for index, request in enumerate(asked):
            sound = samples_of(service.batches.files.sound(batch.id, index))
            assert pitch(sound) == tone_hz(request.id)
            assert len(sound) == batch.progress.lines[index].samples
        assert list(service.outputs.root.glob("2*/*.wav")) == []


async def test_a_failing_line_is_tried_twice_and_the_others_are_made(fake_service):
    async with fake_service() as service:
        asked = watch(service)
        batch = await begin(service, "One.", "[fake:fail=output_bad] Two.", "Three.")
        await service.batches.ended(batch)
        assert statuses(batch) == ["done", "failed", "done"]
        assert batch.progress.lines[1].code == "output_bad"
        seeds = [request.seed for request in asked if "Two" in request.text]
        assert len(seeds) == len(set(seeds)) == 2
        assert (await service.batches.result(batch)).is_file()
        await service.batches.resume(batch)
        await service.batches.ended(batch)
        assert sum("Two" in request.text for request in asked) == 4
        assert len(asked) == 6


async def test_what_is_made_outlives_the_server(fake_service, tmp_path):
    script = FakeScript(release_file=str(tmp_path / "release"))
    async with fake_service(script=script) as service:
        asked = watch(service)
        batch = await begin(service, "One.", "Two.", "[fake:hold] Three.", "Four.")
        await until(lambda: batch.counts()["done"] == 2)
        seeds = [line.seed for line in batch.progress.lines]
        kept = service.batches.files.sound(batch.id, 1).read_bytes()
    assert batch.state == "working"
    (tmp_path / "release").touch()
    async with fake_service(script=script) as service:
        asked = watch(service)
        again = service.batches.find(batch.id, OWNER)
        assert again is not batch
        await service.batches.ended(again)
        assert statuses(again) == ["done"] * 4
        assert sorted(request.text[-5:] for request in asked) == ["Four.", "hree."]
        assert [line.seed for line in again.progress.lines] == seeds
        assert service.batches.files.sound(again.id, 1).read_bytes() == kept
    async with fake_service() as service:
        asked = watch(service)
        await service.batches.ended(service.batches.find(batch.id, OWNER))
        assert asked == []


async def until(condition):
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110  (there is no event to wait for)
            await asyncio.sleep(0.002)
