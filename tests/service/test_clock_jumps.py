"""The wall clock is set by days, at any moment: takes, estimates, figures, rows and files stay right."""

import math
import os
import time
from datetime import datetime

import pytest

from cosyui.host.config import FakeScript
from cosyui.ops import journal, purge, sampler, schedule, sightings
from cosyui.service.types import Done, Waiting
from tests.service.watching import follow, until

pytestmark = pytest.mark.anyio
DAYS = 2 * 86_400.0


@pytest.fixture
def jump(monkeypatch):
    """Sets the wall clock, for all who ask it, by so many seconds off the right time."""
    off, right = [0.0], time.time

    class Jumping(datetime):
        @classmethod
        def now(cls, tz=None):
            return datetime.fromtimestamp(wall(), tz)

    def wall():
        return right() + off[0]

    monkeypatch.setattr(time, "time", wall)
    for made in (journal.Journal, purge.Purge, sampler.Sampler):
        monkeypatch.setitem(made.__init__.__kwdefaults__, "wall", wall)
    monkeypatch.setattr(schedule.Schedule.__init__, "__defaults__", (time.monotonic, wall))
    monkeypatch.setattr(sightings.Sightings.__init__, "__defaults__", (sightings.steady_clock, wall))
    for module in ("cosyui.service.outputs", "cosyui.service.intake", "apscheduler.schedulers.base"):
        monkeypatch.setattr(f"{module}.datetime", Jumping)
    monkeypatch.setattr(purge, "SETTLE_SECONDS", 0.0)
    return lambda seconds: off.__setitem__(0, seconds)


@pytest.mark.parametrize("jumps", [(DAYS, 0.0, -DAYS, 0.0), (-DAYS, DAYS)])
async def test_a_clock_that_jumps_harms_nothing(fake_service, form, jump, tmp_path, jumps):
    release = tmp_path / "release"
    async with fake_service(script=FakeScript(release_file=str(release))) as service:
        operations, paths = service.operations, []

        def keep(update):
            paths.append(update.result.path)
            os.utime(paths[-1], (time.time(),) * 2)  # as a file system has it that goes by the same clock
            return update.result

        keep((await follow(await service.submit(form())))[-1])
        await operations.schedule.run_now("purge")
        for number, seconds in enumerate(jumps, 1):
            release.unlink(missing_ok=True)
            first, second = [await service.submit(form(f"[fake:hold] Of jump {number}.")) for _ in range(2)]
            readers = first.updates(), second.updates()
            await until(readers[0], lambda update: getattr(update, "speech_seconds_done", 0) > 0)
            jump(seconds)
            operations.schedule.check()
            waiting = await until(readers[1], lambda update: isinstance(update, Waiting))
            assert 0 <= waiting.eta_seconds < 60
            operations.sampler.tick()
            overview = service.overview()
            assert 0 <= overview.uptime_seconds < 60
            assert overview.sample.speed is None or 0 <= overview.sample.speed < math.inf
            assert all(0 <= entry.age_seconds < 60 for entry in (*overview.running, *overview.waiting))
            assert 0 < overview.purge.next_in <= 90
            assert abs(overview.purge.next_run - time.time()) <= 90
            release.touch()
            for reader in readers:
                result = keep(await until(reader, lambda update: isinstance(update, Done)))
                assert 0 <= result.waited_seconds <= result.total_seconds < 60
            purged = (await operations.schedule.run_now("purge")).result
            assert (purged.files, purged.folders, purged.errors) == (0, 0, 0)
            operations.journal._next_prune = 0.0
        assert all(path.exists() for path in paths)
        assert overview.purge.runs == len(jumps)
    page = operations.journal.page()
    assert (page.total, {row.outcome for row in page.rows}) == (len(paths), {"done"})
    assert all(0 <= row.waited <= row.total < 60 for row in page.rows)
