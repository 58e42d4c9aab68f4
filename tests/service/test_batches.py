"""Batches on a service with the fake engine: made in order, gone on with, stopped, kept apart, deleted."""

import asyncio
import errno
import json
import os
import shutil
import time
import wave
import zipfile

import numpy as np
import pytest

from cosyui.errors import ConflictError, InputError, MissingError, RightsError
from cosyui.host.config import FakeScript
from cosyui.host.fake_sound import fake_pcm
from cosyui.ops.sightings import Sightings
from cosyui.service import batches as batches_module
from cosyui.service.batch_files import BATCHES, PROGRESS
from cosyui.service.batch_input import parse
from cosyui.service.batch_lines import Line, Parsed
from cosyui.service.types import Done
from cosyui.service.voice_record import VoiceForm

pytestmark = pytest.mark.anyio
OWNER = "page-0"


def lines(*texts, **changes):
    return Parsed([Line(number=number, text=text, **changes) for number, text in enumerate(texts, 1)], [])


async def begin(service, *texts, owner=OWNER, voice="en", **changes):
    return await service.batches.add(owner, owner, lines(*texts, **changes), voice=voice)


def watch(service):
    """Every request that the engine is given from now on."""
    asked, make = [], service.intake.job

    def note(*given):
        job = make(*given)
        asked.append(job.request)
        return job

    service.intake.job = note
    return asked


def statuses(batch):
    return [line.status for line in batch.progress.lines]


def saved(service, batch):
    """What stands on the disk."""
    path = service.batches.files.folder(batch.id) / PROGRESS
    return [line["status"] for line in json.loads(path.read_bytes())["lines"]]


def samples_of(path):
    with wave.open(str(path)) as file:
        assert (file.getframerate(), file.getnchannels(), file.getsampwidth()) == (24_000, 1, 2)
        return np.frombuffer(file.readframes(file.getnframes()), "<i2")


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
            assert sound.tobytes() == fake_pcm(request)
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


async def test_after_a_kill_only_what_is_missing_is_made(fake_service, tmp_path):
    script = FakeScript(release_file=str(tmp_path / "release"))
    async with fake_service(script=script) as service:
        batch = await begin(service, "One.", "Two.", "[fake:hold] Three.", "Four.")
        await until(lambda: saved(service, batch).count("done") == 2)
        shutil.copytree(service.outputs.root, tmp_path / "left")  # what a killed server leaves
        kept = service.batches.files.sound(batch.id, 1).read_bytes()
    (tmp_path / "release").touch()
    async with fake_service(script=script, outputs_dir=tmp_path / "left") as service:
        again = service.batches.find(batch.id, OWNER)
        await service.batches.ended(again)
        assert (again.state, statuses(again)) == ("done", ["done"] * 4)
        assert service.overview().finished == 2
        assert [line.seed for line in again.progress.lines] == [line.seed for line in batch.progress.lines]
        assert service.batches.files.sound(again.id, 1).read_bytes() == kept
    async with fake_service(outputs_dir=tmp_path / "left") as service:
        assert service.batches.work(service.batches.find(batch.id, OWNER)) is None
        assert service.overview().finished == 0


async def test_a_sound_that_was_made_just_before_a_kill_is_kept(fake_service):
    async with fake_service() as service:
        batch = await begin(service, "One.", "Two.")
        await service.batches.ended(batch)
    path = service.batches.files.folder(batch.id) / PROGRESS
    progress = json.loads(path.read_bytes())
    progress["state"] = "working"
    progress["lines"][1] |= {"status": "waiting", "samples": 0, "parts": []}
    path.write_text(json.dumps(progress))
    path.with_name(".progress.json.part").write_text("{")
    async with fake_service() as service:
        again = service.batches.find(batch.id, OWNER)
        await service.batches.ended(again)
        assert (again.state, service.overview().finished) == ("done", 0)
        assert again.progress.lines[1].samples == batch.progress.lines[1].samples
        assert not path.with_name(".progress.json.part").exists()


async def test_a_server_that_ends_in_order_goes_on_later(fake_service, tmp_path):
    script = FakeScript(release_file=str(tmp_path / "release"))
    async with fake_service(script=script) as service:
        batch = await begin(service, "One.", "[fake:hold] Two.")
        await until(lambda: batch.counts()["done"] == 1)
    assert batch.state == "working"
    (tmp_path / "release").touch()
    async with fake_service(script=script) as service:
        again = service.batches.find(batch.id, OWNER)
        await service.batches.ended(again)
        assert (again.state, service.overview().finished) == ("done", 1)


async def test_stop_keeps_what_is_made_and_resume_makes_the_rest(fake_service, tmp_path):
    async with fake_service(script=FakeScript(release_file=str(tmp_path / "release"))) as service:
        batch = await begin(service, "One.", "[fake:hold] Two.", "Three.")
        await until(lambda: batch.counts()["done"] == 1 and service.overview().running)
        with pytest.raises(ConflictError, match="still at work"):
            await service.batches.result(batch)
        await service.batches.stop(batch)
        view = service.overview()
        assert (batch.state, statuses(batch)) == ("stopped", ["done", "waiting", "waiting"])
        assert not view.running
        assert not view.waiting
        with zipfile.ZipFile(await service.batches.result(batch)) as archive:
            assert [name for name in archive.namelist() if name.startswith("lines/")] == ["lines/0001-en.wav"]
        (tmp_path / "release").touch()
        await service.batches.resume(batch)
        await service.batches.ended(batch)
        assert (batch.state, statuses(batch)) == ("done", ["done"] * 3)
        with zipfile.ZipFile(await service.batches.result(batch)) as archive:
            assert sum(name.startswith("lines/") for name in archive.namelist()) == 3


async def test_a_full_queue_is_waited_for_and_never_filled(fake_service, form, tmp_path):
    async with fake_service(script=FakeScript(release_file=str(tmp_path / "release")), queue_size=4) as service:
        await service.submit(form("[fake:hold] Somebody else's."))
        batch = await begin(service, *(f"Line {number}." for number in range(6)))
        await until(lambda: len(service.overview().waiting) == 2)
        others = [await service.submit(form(f"[fake:hold] {number}.", client="other")) for number in range(2)]
        assert batch.counts()["waiting"] == 6
        (tmp_path / "release").touch()
        await service.batches.ended(batch)
        assert statuses(batch) == ["done"] * 6
        assert len(others) == 2
    async with fake_service(script=FakeScript(release_file=str(tmp_path / "hold")), queue_size=0) as service:
        await service.submit(form("[fake:hold] Somebody else's."))
        batch = await begin(service, "One.", "Two.")
        await until(lambda: service.overview().rejected)
        (tmp_path / "hold").touch()
        await service.batches.ended(batch)
        assert statuses(batch) == ["done"] * 2


async def test_half_of_the_places_are_left_to_others(fake_service, form, tmp_path):
    script = FakeScript(release_file=str(tmp_path / "release"), places=8)
    async with fake_service(script=script) as service:
        batch = await begin(service, *(f"[fake:hold] Line {number}." for number in range(9)))
        await until(lambda: len(service.overview().running) == 4)
        ticket = await service.submit(form("Somebody else's.", client="other"))
        assert isinstance([update async for update in ticket.updates()][-1], Done)
        assert len(service.overview().running) == 4
        assert not service.overview().waiting
        (tmp_path / "release").touch()
        await service.batches.ended(batch)
        assert statuses(batch) == ["done"] * 9


async def test_a_voice_that_goes_is_no_other_voice(fake_service, tmp_path, clip):
    async with fake_service(script=FakeScript(release_file=str(tmp_path / "release"))) as service:
        voice = service.voices.add(VoiceForm("Ann", clip, "What she says.", "en", "Ann"))
        asked = watch(service)
        assert (await begin(service, "One.", voice=voice.id)).order.lines[0].voice == "Ann"
        await until(lambda: service.overview().finished == 1)
        asked.clear()
        batch = await begin(service, "[fake:hold] One.", "[fake:hold] Two.", "Three.", "Four.", voice="Ann")
        await until(lambda: len(asked) == 2)
        service.voices.change(voice.id, name="Anna")  # another name is still the same voice
        (tmp_path / "release").touch()
        await until(lambda: batch.counts()["done"] == 4)
        await service.batches.ended(batch)
        (tmp_path / "release").unlink()
        batch = await begin(service, "[fake:hold] One.", "[fake:hold] Two.", "Three.", voice="Anna")
        await until(lambda: len(service.overview().running) == 1)
        await until(lambda: len(asked) == 6)
        service.voices.remove(voice.id)
        service.voices.add(VoiceForm("Anna", clip, "Somebody else.", "en", "Bo"))
        (tmp_path / "release").touch()
        await service.batches.ended(batch)
        assert statuses(batch) == ["done", "done", "failed"]
        assert batch.progress.lines[2].code == "voice_not_found"
        assert "Somebody else." not in {request.prompt.transcript for request in asked}


async def test_an_owner_sees_no_other_ones_and_deleted_ones_are_gone(fake_service):
    async with fake_service() as service:
        mine, theirs = await begin(service, "One."), await begin(service, "Two.", owner="page-1")
        assert (service.batches.of(OWNER), service.batches.of("page-1")) == ([mine], [theirs])
        with pytest.raises(MissingError, match="no such batch"):
            service.batches.find(theirs.id, OWNER)
        await service.batches.remove(theirs)
        assert [path.name for path in (service.outputs.root / BATCHES).glob("batch_*")] == [mine.id]
    async with fake_service() as service:
        assert service.batches.find(mine.id, OWNER).order == mine.order


async def test_what_every_line_would_meet_pauses_the_batch(fake_service, monkeypatch):
    async with fake_service() as service:
        monkeypatch.setattr(service.batches.files, "keep", refuse)
        batch = await begin(service, "One.", "Two.", "Three.")
        await service.batches.ended(batch)
        assert (batch.state, batch.progress.code) == ("paused", "batch_not_stored")
        assert statuses(batch) == ["waiting"] * 3
        monkeypatch.undo()
        await service.batches.resume(batch)
        await service.batches.ended(batch)
        assert (batch.state, statuses(batch)) == ("done", ["done"] * 3)


def refuse(*_):
    raise OSError(errno.ENOSPC, "No space left on device")


async def test_old_batches_go_and_those_at_work_or_just_fetched_stay(fake_service, tmp_path):
    async with fake_service(script=FakeScript(release_file=str(tmp_path / "release")), purge_hours=1) as service:
        batches, now = service.batches, FakeClock()
        batches._sightings = Sightings(now, now)
        old, fetched = await begin(service, "One."), await begin(service, "Two.")
        await batches.ended(old)
        await batches.ended(fetched)
        working = await begin(service, "[fake:hold] Three.")
        await batches.purge()
        now.seconds += 7200
        old.changed = -1e9
        await batches.result(fetched)
        await batches.purge()
        assert batches.of(OWNER) == [working, fetched]
        assert not batches.files.folder(old.id).exists()


async def test_the_purge_of_takes_leaves_batches_alone_and_counts_them(fake_service):
    async with fake_service(purge_hours=0.001, outputs_quota="1") as service:
        batch = await begin(service, "One.")
        await service.batches.ended(batch)
        folder = service.batches.files.folder(batch.id)
        for path in folder.iterdir():
            os.utime(path, (0, 0))
        service.operations.purge._folders[0][1]._since -= 3600
        result = service.operations.purge.run()
        assert (result.files, result.folders, dict(result.kept)) == (0, 0, {"protected": 3})
        assert sorted(path.name for path in folder.iterdir()) == ["00001.wav", "order.json", "progress.json"]


async def test_damaged_ones_are_told_and_left_alone(fake_service):
    async with fake_service() as service:
        batch, other = await begin(service, "One."), await begin(service, "Two.")
        await service.batches.ended(batch)
        await service.batches.ended(other)
    files = service.batches.files
    (files.folder(batch.id) / "progress.json").write_text("{")
    files.sound(other.id, 0).unlink()
    async with fake_service() as service:
        assert [problem.code for problem in service.batches.problems] == ["batches_damaged"]
        again = service.batches.find(other.id, OWNER)
        assert (again.state, statuses(again)) == ("stopped", ["waiting"])
        assert files.folder(batch.id).exists()


async def test_bounds(fake_service, monkeypatch):
    async with fake_service(batch_lines=2) as service:
        with pytest.raises(InputError) as caught:
            await begin(service, "1", "2", "3")
        assert caught.value.code == "batch_too_long"
        with pytest.raises(InputError) as caught:
            await begin(service)
        assert caught.value.code == "batch_empty"
        monkeypatch.setattr(batches_module, "MOST_OF_ONE", 1)
        await begin(service, "One.")
        with pytest.raises(ConflictError) as full:
            await begin(service, "Two.")
        assert full.value.code == "batches_full"
    async with fake_service(batch_lines=0) as service:
        with pytest.raises(RightsError) as off:
            await begin(service, "Two.")
        assert off.value.code == "batches_off"


class FakeClock:
    def __init__(self):
        self.seconds = time.time()

    def __call__(self):
        return self.seconds


async def until(condition):
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110  (there is no event to wait for)
            await asyncio.sleep(0.002)
