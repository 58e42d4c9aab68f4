"""What goes wrong outside of a request: clocks, disks, files, drivers, callbacks; the next take works all the same."""

import asyncio
import contextlib
import errno
import os
import sqlite3
import threading
from types import SimpleNamespace

import numpy as np
import psutil
import pytest

from cosyui.engine.request import Mode, PromptClip, SynthesisRequest
from cosyui.errors import CosyuiError
from cosyui.host.stream import HandedOver
from cosyui.ops import sqlite_file
from cosyui.ops.monitor import Monitor
from cosyui.ops.nvml import Nvml
from cosyui.service import checks, recorder
from cosyui.service.admission import AdmissionQueue
from cosyui.service.drive import Drive
from cosyui.service.job import Job
from cosyui.service.types import Chunk, Done, Problem, Stopped
from cosyui.speech.sound.audio_out import WavWriter
from tests.service.watching import follow, samples, until

pytestmark = pytest.mark.anyio
DAYS = 2 * 86_400.0


async def take(service, form, text="A plain take.", **changes):
    return (await follow(await service.submit(form(text, **changes))))[-1]


async def test_a_callback_that_fails_keeps_no_end_from_its_reader(fake_service, form):
    async with fake_service() as service:
        service._drive.on_end = lambda job: 1 / 0
        assert isinstance(await take(service, form), Done)
        assert isinstance(await take(service, form, "[fake:fail]"), Problem)
        held = await service.submit(form("[fake:hold]"))
        await held.cancel()
        assert isinstance((await follow(held))[-1], Stopped)
        assert (service._queue.running, service._drive.jobs) == ([], {})


async def test_a_callback_that_fails_keeps_no_engine_from_coming_back(fake_service, form):
    async with fake_service() as service:
        told = service.client.on_change

        def broken():
            told()
            raise ZeroDivisionError

        service.client.on_change = broken
        assert isinstance(await take(service, form, "[fake:die] Once."), Done)
        assert (await service.unload()).outcome == "unloaded"
        assert isinstance(await take(service, form), Done)
        assert service.client.restarts == 1


async def test_a_fault_of_our_own_refuses_a_take_in_words_and_with_a_row(fake_service, form, monkeypatch):
    async with fake_service() as service:
        with monkeypatch.context() as broken:
            broken.setattr(service.clips, "keep", lambda source: 1 / 0)
            with pytest.raises(CosyuiError) as caught:
                await service.submit(form())
        assert caught.value.code == "internal"
        (row,) = service.operations.journal.recent
        assert (row.outcome, row.code) == ("rejected", "internal")
        assert row.id in caught.value.message
        assert isinstance(await take(service, form), Done)


async def test_who_is_cancelled_while_he_closes_does_not_stop_it(new_service, form):
    service, at_schedule = new_service(), asyncio.Event()
    stop = service.operations.schedule.stop

    async def stop_slowly():
        at_schedule.set()
        await asyncio.sleep(0)
        await stop()

    service.operations.schedule.stop = stop_slowly
    async with asyncio.timeout(30):
        await service.start()
        ticket = await service.submit(form("[fake:hold]"))
        closing = asyncio.create_task(service.close())
        await at_schedule.wait()
        closing.cancel()
        await asyncio.wait([closing])
        assert isinstance((await follow(ticket))[-1], Stopped)
        await service.close()
    assert (service.client.state, service.client.pid) == ("stopped", None)
    assert not service.operations.journal._thread.is_alive()
    assert service.operations.journal.page().total == 1


@pytest.mark.parametrize("state", ["ready", "restarting"])
async def test_the_limit_of_time_never_counts_a_load(state, tmp_path):
    """An engine that died before its request's reader heard of the handing over."""
    given = asyncio.Event()

    async def events(request):
        yield HandedOver(request.id, 1)
        given.set()
        await asyncio.Event().wait()

    pool = SimpleNamespace(state=state, places=1, engines=[SimpleNamespace(state=state)], events=events)
    drive = Drive(AdmissionQueue(1), pool, 600.0)
    clip = PromptClip(np.zeros(16_000, np.float32), 16_000)
    request = SynthesisRequest("a", "text", Mode.ZERO_SHOT, clip, 1)
    job = Job(request, "anonymous", 1.0, recorder=recorder.Recorder(SimpleNamespace(path=tmp_path.joinpath), "a"))
    drive._queue.enter(job)
    running = asyncio.create_task(drive.run(job))
    await given.wait()
    assert (drive._limits[job].when() is not None) == (state == "ready")
    running.cancel()
    await asyncio.wait([running])


class Disk:
    """A file on a disk that is full at times."""

    full = False

    def __init__(self, file):
        self._file = file

    def __getattr__(self, name):
        return getattr(self._file, name)

    def write(self, data):
        if Disk.full:
            raise OSError(errno.ENOSPC, "No space left on device")
        return self._file.write(data)


def all_files(service):
    return [path for path in service.outputs.root.rglob("*") if path.is_file()]


async def test_a_disk_that_was_full_for_a_while_fails_its_take_only(fake_service, form, monkeypatch):
    opened = WavWriter.open

    def open_on_disk(self):
        opened(self)
        self._file = Disk(self._file)
        return self

    monkeypatch.setattr(WavWriter, "open", open_on_disk)
    monkeypatch.setattr(recorder, "MEMORY_BYTES", 1)
    async with fake_service() as service:
        monkeypatch.setattr(Disk, "full", False)
        updates = (await service.submit(form("[fake:seconds=20][fake:slow=0.005]", stream=True))).updates()
        for _ in range(2):  # the first is on the disk when the second comes
            await until(updates, lambda update: isinstance(update, Chunk))
        assert len(all_files(service)) == 1
        Disk.full = True
        assert (await until(updates, lambda update: isinstance(update, Problem))).error.code == "disk_full"
        assert all_files(service) == []
        Disk.full = False
        done = await take(service, form)
        assert all_files(service) == [done.result.path]
        assert service.client.restarts == 0
    rows = service.operations.journal.page(descending=False).rows
    assert [(row.outcome, row.code) for row in rows] == [("failed", "disk_full"), ("done", None)]


async def test_a_journal_that_is_locked_all_the_time_is_told_and_harms_nobody(
    fake_service, form, monkeypatch, tmp_path
):
    monkeypatch.setattr(sqlite_file, "BUSY_SECONDS", 0.01)
    with contextlib.closing(sqlite3.connect(tmp_path / "journal")) as other:
        other.execute("BEGIN EXCLUSIVE")
        async with fake_service() as service:
            for _ in range(3):
                assert isinstance(await take(service, form), Done)
            while not service.overview().problems:  # noqa: ASYNC110  (there is no event to wait for)
                await asyncio.sleep(0)
            assert service.overview().problems[0].code == "journal_unwritten"
            assert service.overview().waiting_rows == 3
            assert service.operations.journal.page().problem is not None
            assert (await service.operations.schedule.run_now("leaks")).error is None
    assert service.client.state == "stopped"


class NoGpu:
    """NVML on a machine without driver."""


class Vanishing(Monitor):
    """Its driver goes away with the third sample, and is back with the sixth."""

    samples = 0

    def sample(self, *pids):
        self.samples += 1
        if 3 <= self.samples <= 5:
            raise OSError("GPU is lost")
        return super().sample(*pids)


async def test_a_driver_that_goes_away_is_told_until_it_is_back(fake_service, form):
    async with fake_service(monitor=Vanishing(Nvml(NoGpu)), sample_seconds=60) as service:
        monitor, operations = service.operations.monitor, service.operations
        told = {}
        while monitor.samples < 7:
            operations.sampler.tick()
            for thread in operations._threads:
                await asyncio.to_thread(thread.join)
            told[monitor.samples] = [problem.code for problem in service.overview().problems]
            assert isinstance(await take(service, form), Done)
            assert service.overview().machine is not None or monitor.samples < 2
        assert [number for number, codes in told.items() if codes] == [3, 4, 5]
        assert told[3] == ["machine_unread"]


@pytest.mark.parametrize("way", ["closes", "is cancelled"])
async def test_a_client_that_is_gone_in_the_middle_of_a_stream_leaves_nothing(fake_service, form, monkeypatch, way):
    monkeypatch.setattr(recorder, "MEMORY_BYTES", 1)
    async with fake_service() as service:
        ticket = await service.submit(form("[fake:hold]", stream=True))
        heard = asyncio.Event()

        async def listen():
            async with contextlib.aclosing(ticket.updates()) as updates:
                await until(updates, lambda update: isinstance(update, Chunk))
                heard.set()
                if way == "is cancelled":
                    await asyncio.Event().wait()

        listener = asyncio.create_task(listen())
        await heard.wait()
        if way == "is cancelled":
            listener.cancel()
        await asyncio.wait([listener])
        assert (all_files(service), service._queue.running, service._drive.jobs) == ([], [], {})
        done = await take(service, form)
        assert samples(done.result.path)
    rows = service.operations.journal.page(descending=False).rows
    assert [row.outcome for row in rows] == ["stopped", "done"]


@pytest.mark.parametrize("lacking", ["process", "engine-stderr", "engine-_read", "engine-_write"])
async def test_a_machine_that_starts_no_process_or_thread_breaks_the_engine_in_words(
    fake_service, form, monkeypatch, lacking
):
    begin = threading.Thread.start

    def start(thread):
        if thread.name == lacking:
            raise RuntimeError("can't start new thread")
        begin(thread)

    def fork(*args, **options):
        raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    async with fake_service(start="lazy", wait=False) as service:
        assert isinstance(await take(service, form), Done)
        await service.unload()
        beside = psutil.Process().children()
        with monkeypatch.context() as scarce:
            scarce.setattr(threading.Thread, "start", start)
            if lacking == "process":
                scarce.setattr("cosyui.host.process.subprocess.Popen", fork)
            error = (await take(service, form)).error
        assert (error.code, service.client.state, service.client.pid) == ("engine_died", "broken", None)
        assert "does not start" in error.message
        assert psutil.Process().children() == beside
        await service.restart_engine()
        assert isinstance(await take(service, form), Done)


async def test_a_disk_that_hangs_keeps_no_engine_from_its_end(new_service, form, monkeypatch):
    entered, go = threading.Event(), threading.Event()
    finish = WavWriter.finish

    def hang(self):
        entered.set()
        assert go.wait(20)
        finish(self)

    monkeypatch.setattr(WavWriter, "finish", hang)
    monkeypatch.setattr("cosyui.service.service.STOP_SECONDS", 0.05)
    service = new_service()
    async with asyncio.timeout(30):
        try:
            await service.start()
            ticket = await service.submit(form())
            await asyncio.to_thread(entered.wait)
            await service.close()
            assert (service.client.state, service.client.pid) == ("stopped", None)
            assert service.ticket(ticket.id) is not None
        finally:
            go.set()
        assert isinstance((await follow(ticket))[-1], Stopped)
        assert all_files(service) == []


async def test_who_asks_while_it_closes_is_told_so_and_leaves_a_row_and_no_clip(new_service, form, monkeypatch):
    entered, go = threading.Event(), threading.Event()
    problems = checks.form_problems

    def slow(*given):
        entered.set()
        assert go.wait(20)
        return problems(*given)

    monkeypatch.setattr(checks, "form_problems", slow)
    service = new_service()
    async with asyncio.timeout(30):
        await service.start()
        asking = asyncio.create_task(service.submit(form()))
        await asyncio.to_thread(entered.wait)
        closing = asyncio.create_task(service.close())
        await service.client.wait_until("stopped")
        go.set()
        await closing
        with pytest.raises(CosyuiError) as caught:
            await asking
    assert caught.value.code == "service_stopping"
    assert [row.code for row in service.operations.journal.page().rows] == ["service_stopping"]
    assert list(service.settings.clips_dir.iterdir()) == []
