"""What watches and tidies beside the service: rows, samples, the purge; and that its trouble stays its own."""

import asyncio
import os
import sqlite3
import tempfile
import threading
import time
from pathlib import Path

import psutil
import pytest
from watching import follow, until

from cosyui.host.config import FakeScript
from cosyui.ops import purge, sqlite_file
from cosyui.ops.journal_file import Filter
from cosyui.ops.monitor import Monitor
from cosyui.ops.nvml import Nvml
from cosyui.ops.purge import PurgeResult
from cosyui.service import recorder, remarks
from cosyui.service.types import Done, FormError, Problem, QueueFullError, Running, Stopped
from cosyui.ui import ops
from cosyui.ui.i18n import Dictionary

pytestmark = pytest.mark.anyio
SECRET = "Nobody but the engine shall see this sentence."
GPU = FakeScript(directives="[fake:gpu]")
DAYS = 3 * 86_400


class Broken:
    """A monitor whose driver is gone."""

    closed = False

    def __init__(self, reason="no driver"):
        self.reason = reason

    def sample(self, *pids):
        raise OSError(self.reason)

    def close(self):
        self.closed = True


class NoGpu:
    """NVML on a machine without driver."""


async def take(service, form):
    return (await follow(await service.submit(form)))[-1]


async def measured(service):
    """The overview, after all that is asked in threads was answered and sampled."""
    service.operations.sampler.tick()
    for thread in service.operations._threads:
        await asyncio.to_thread(thread.join)
    service.operations.sampler.tick()
    return service.overview()


async def spin(condition):
    """Let others work until it is so; the service's own limit of time ends it."""
    while not condition():  # noqa: ASYNC110  (there is no event to wait for)
        await asyncio.sleep(0)


def speaking(update):
    return isinstance(update, Running) and update.speech_seconds_done > 0


async def test_every_outcome_leaves_a_row_and_no_row_what_was_said(fake_service, form, clip):
    async with fake_service(queue_size=0) as service:
        await take(service, form(SECRET))
        await take(service, form(f"{SECRET} [fake:fail=output_bad]"))
        ticket = await service.submit(form(f"{SECRET} [fake:hold]", stream=True))
        await until(ticket.updates(), speaking)
        with pytest.raises(QueueFullError):
            await service.submit(form(SECRET))
        await ticket.cancel()
        with pytest.raises(FormError):
            await service.submit(form(""))
    rows = service.operations.journal.page(descending=False, sort="arrived").rows
    by_outcome = {(row.outcome, row.code): row for row in rows}
    assert len(rows) == 5
    done, failed = by_outcome["done", None], by_outcome["failed", "output_bad"]
    assert {("stopped", None), ("rejected", "queue_full"), ("rejected", "text_empty")} < by_outcome.keys()
    assert (done.mode, done.stream, done.long, done.attempts, done.retries) == ("zero_shot", False, False, 1, 0)
    assert (done.characters, done.prompt_seconds, done.engine) == (len(SECRET), pytest.approx(4.0, abs=0.5), 0)
    assert 0 < done.first_chunk <= done.total
    assert done.speech_seconds > 0
    assert (done.allocated_before, done.device_peak) == (None, None), "there is no GPU"
    assert (failed.engine_rss_after > 1 << 20, failed.page_rss_after > 1 << 20) == (True, True)
    assert len({row.id for row in rows}) == 5
    written = b"".join(path.read_bytes() for path in service.settings.journal.parent.glob("journal*"))
    assert b"zero_shot" in written
    for private in (SECRET.encode(), b"What the clip says", clip[100:140]):
        assert private not in written


async def test_a_row_tells_of_engines_and_memory(fake_service, form):
    async with fake_service(script=GPU) as service:
        await take(service, form("[fake:die] Once more."))
        await take(service, form("[fake:segments=2][fake:bad=2] A bad part."))
        await take(service, form("[fake:oom]"))
    journal = service.operations.journal
    died, bad, failed = journal.page(descending=False).rows
    assert (died.attempts, died.retries, bad.attempts, bad.retries, bad.segments) == (2, 0, 1, 1, 2)
    for row in (died, bad, failed):
        assert row.allocated_before <= row.allocated_peak <= row.reserved_peak <= row.device_peak
    assert journal.page(Filter(outcome="failed")).rows == (failed,)


async def test_the_sampler_feeds_the_overview(fake_service, form):
    async with fake_service(script=GPU) as service:
        assert (service.overview().problems, service.overview().purge.runs) == ((), 0)
        await take(service, form())
        overview = await measured(service)
        sample = overview.sample
        assert overview.machine.process.pid == os.getpid()
        assert overview.machine.engine.pid == service.client.pid
        assert sample.service.speech_seconds > 0
        assert sample.first_chunk_p50 > 0
        assert sample.disk.total > sample.disk.free > 0
        (parts,) = sample.vram.values()
        assert parts["weights"] > 0
        assert sum(parts.values()) == service.client.latest_stats.device_total
        assert overview.problems == ()


@pytest.mark.parametrize("language", ["en", "zh"])
async def test_the_panel_shows_what_is_known_and_what_is_wrong(fake_service, form, language):
    async with fake_service(script=GPU, monitor=Broken("<b>no driver</b>")) as service:
        words = Dictionary(service.settings)._words[language]
        assert words("ops_measuring") in ops.panel(service.overview(), words)
        await take(service, form())
        html = ops.panel(await measured(service), words)
        assert "&lt;b&gt;no driver" in html
        assert words("ops_first_chunk") in html
        assert words("ops_measuring") in html, "there is no figure of the machine"
        for key in ("ops_vram", "ops_vram_kv_slots", "ops_fragments", "ops_outputs"):
            assert words(key) in html, "each figure falls back by itself"
        service.operations.monitor.sample = Monitor(Nvml(NoGpu)).sample
        await service.operations.schedule.run_now("purge")
        html = ops.panel(await measured(service), words)
        assert words("ops_purge_last") in html
        assert words("ops_measuring") not in html
        assert words("ops_no_gpu") not in html
        assert "no driver" not in html


async def test_nothing_is_measured_for_a_page(fake_service):
    async with fake_service(sample_seconds=60) as service:
        before = service.operations.sampler.latest
        service.overview()
        assert service.operations.sampler.latest is before


@pytest.mark.parametrize("where", ["live", "waiting"])
async def test_no_purge_takes_what_a_request_writes_or_will_write(fake_service, form, monkeypatch, tmp_path, where):
    monkeypatch.setattr(purge, "SETTLE_SECONDS", 0.0)
    monkeypatch.setattr(recorder, "MEMORY_BYTES", 1)
    release = tmp_path / "go on"
    async with fake_service(script=FakeScript(release_file=str(release))) as service:
        hold = await service.submit(form("[fake:hold] The first."))
        updates = hold.updates()
        await until(updates, speaking)
        ticket, job = hold, service._drive.jobs[hold.id]
        if where == "waiting":
            ticket = await service.submit(form("The second."))
            job = service._drive.jobs[ticket.id]
            job.recorder.path.parent.mkdir(exist_ok=True)
            (job.recorder.path.parent / f".{ticket.id}.x.part").write_bytes(b"begun")
        files = list(job.recorder.path.parent.glob(f".{ticket.id}.*.part"))
        assert len(files) == 1
        old = time.time() - DAYS
        os.utime(files[0], (old, old))
        result = (await service.operations.schedule.run_now("purge")).result
        assert (result.kept["protected"], result.files, files[0].exists()) == (1, 0, True)
        release.touch()
        done = [update async for update in updates][-1] if ticket is hold else (await follow(ticket))[-1]
        path = done.result.path
        assert path.exists()
        os.utime(path, (old, old))
        assert (await service.operations.schedule.run_now("purge")).error is None
        assert service.overview().purge.runs == 2
        # It was new at the last look, whatever its time says: only a purge that never saw it believes in its age.
        fresh = purge.Purge([purge.Folder(service.outputs.root)], service.operations.in_use)
        service.operations.in_use.hold("page", path)
        fresh.run()
        assert path.exists()
        service.operations.in_use.release("page")
        fresh.run()
        assert not path.exists()


async def test_the_uploads_of_the_page_are_purged_and_a_shared_folder_is_not_taken(new_service, tmp_path, monkeypatch):
    monkeypatch.setattr(purge, "SETTLE_SECONDS", 0.0)
    uploads = tmp_path / "uploads"
    uploads.mkdir()
    clip = uploads / "clip.wav"
    clip.write_bytes(b"sound")
    os.utime(clip, (0, 0))
    service = new_service(uploads=uploads)
    service.operations.purge.run()
    assert not clip.exists()
    kept = uploads / "kept.wav"
    kept.write_bytes(b"sound")
    os.utime(kept, (0, 0))
    new_service(uploads=uploads, purge_hours=0).operations.purge.run()
    assert kept.exists()
    service = new_service(uploads=Path(tempfile.gettempdir()))
    assert "Old uploads are not deleted" in service.overview().problems[0].message


async def test_a_journal_that_cannot_be_written_harms_no_take(fake_service, form, tmp_path):
    (tmp_path / "file").touch()
    async with fake_service(journal=tmp_path / "file" / "journal.sqlite") as service:
        assert isinstance(await take(service, form()), Done)
        await spin(lambda: service.overview().problems)
        assert "cannot be written" in service.overview().problems[0].message
        assert isinstance(await take(service, form()), Done)
        assert service.overview().waiting_rows == 2


async def test_a_locked_journal_harms_no_take_and_loses_no_row(fake_service, form, monkeypatch):
    monkeypatch.setattr(sqlite_file, "BUSY_SECONDS", 0.01)
    async with fake_service() as service:
        assert isinstance(await take(service, form()), Done)
        await spin(lambda: not service.operations.journal.waiting and service.settings.journal.exists())
        other = sqlite3.connect(service.settings.journal, timeout=30)
        other.execute("BEGIN EXCLUSIVE")
        assert isinstance(await take(service, form()), Done)
        await spin(lambda: service.overview().problems)
        other.close()
    assert service.operations.journal.page().total == 2


async def test_without_figures_of_the_machine_the_service_lives(fake_service, form):
    monitor = Broken()
    async with fake_service(monitor=monitor) as service:
        assert isinstance(await take(service, form()), Done)
        overview = await measured(service)
        assert overview.machine is None
        assert "no driver" in overview.problems[0].message
    assert monitor.closed


async def test_a_sampler_that_breaks_is_a_problem_until_it_works_again(new_service):
    service = new_service()
    sampler = service.operations.sampler
    sampler.tick = lambda: 1 / 0
    async with asyncio.timeout(30):
        try:
            await service.start()
            await spin(lambda: service.overview().problems)
            assert "ZeroDivisionError" in service.overview().problems[0].message
            del sampler.tick
            sampler.tick()
            assert service.overview().problems == ()
        finally:
            await service.close()


async def test_what_does_not_start_is_told(new_service, monkeypatch):
    service = new_service()
    monkeypatch.setattr(service.operations.journal, "start", lambda: 1 / 0)
    async with asyncio.timeout(30):
        try:
            await service.start()
            assert "The journal does not run" in service.overview().problems[0].message
        finally:
            await service.close()


def test_what_a_purge_could_not_do_is_told():
    result = PurgeResult(errors=2, over_quota=5 << 20, problems=["a: no"])
    assert len(list(remarks.of_purge_result(result))) == 2
    assert list(remarks.of_purge_result(PurgeResult())) == []


async def test_a_leak_is_found_and_told(fake_service, form):
    async with fake_service(script=GPU) as service:
        for _ in range(45):
            await take(service, form("[fake:leak][fake:seconds=0.1]"))
        await service.operations.schedule.run_now("leaks")
        assert "allocated_after" in [leak.column for leak in service.overview().leaks]


def our_threads():
    """All but those of the event loop's pool, which stay for its next work."""
    return {thread for thread in threading.enumerate() if not thread.name.startswith("asyncio_")}


async def test_hundreds_of_requests_leave_no_thread_and_no_open_file(fake_service, form):
    own = psutil.Process()
    async with fake_service(sample_seconds=60) as service:
        await measured(service)
        texts = ["[fake:seconds=0.1]", "[fake:fail][fake:seconds=0.1]", "[fake:seconds=0.1][fake:hold]"]

        async def some(count):
            for number in range(count):
                ticket = await service.submit(form(texts[number % 3]))
                if number % 3 < 2:
                    assert isinstance((await follow(ticket))[-1], Done | Problem)
                else:
                    await ticket.cancel()
                    assert isinstance((await follow(ticket))[-1], Stopped)

        await some(30)
        while (await asyncio.to_thread(service.operations.journal.page)).total < 30:
            pass
        threads, files = our_threads(), own.num_fds()
        await some(300)
        while (await asyncio.to_thread(service.operations.journal.page)).total < 330:
            pass
        assert our_threads() == threads
        assert own.num_fds() <= files
        assert service.operations.in_use() == frozenset()


async def test_nothing_of_it_runs_on_after_the_end(fake_service, form):
    before = our_threads()
    async with fake_service() as service:
        await take(service, form())
        assert {"journal"} <= {thread.name for thread in our_threads() - before}
    assert our_threads() - before == set()
    assert service.operations._sampling.done()
    await service.close()
