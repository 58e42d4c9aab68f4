"""Jobs that come back: late, failing, twice at once, and while somebody sets the clock."""

import asyncio
import threading
import time

import pytest

from cosyui.ops.schedule import Schedule

HOUR, DAY = 3600.0, 86_400.0


class Clocks:
    """Real ones at first; ``jump`` sets the wall clock, ``sleep`` lets time go by for both."""

    def __init__(self):
        self.passed = self.offset = 0.0

    def steady(self):
        return time.monotonic() + self.passed

    def wall(self):
        return time.time() + self.passed + self.offset


@pytest.fixture
def anyio_backend():
    return "asyncio"


@pytest.fixture
def clocks():
    return Clocks()


@pytest.fixture
async def schedule(clocks):
    schedule = Schedule(clocks.steady, clocks.wall)
    yield schedule
    await schedule.stop()


class Work:
    """Counts its runs; waits for ``gate`` if it is closed."""

    def __init__(self):
        self.runs = 0
        self.ran = asyncio.Event()
        self.gate = asyncio.Event()
        self.gate.set()

    async def run(self):
        self.runs += 1
        self.ran.set()
        await self.gate.wait()
        return self.runs


@pytest.fixture
def work():
    return Work()


async def soon(waiting):
    """Its result, and no endless test when it does not come."""
    return await asyncio.wait_for(waiting, 60)


async def settle():
    """Let all that is ready to run do so."""
    for _ in range(50):
        await asyncio.sleep(0)


def planned_in(schedule, clocks, name="job"):
    return schedule._scheduler.get_job(name).next_run_time.timestamp() - clocks.wall()


@pytest.mark.anyio
async def test_runs_when_due_and_tells_of_it(schedule, work, clocks):
    schedule.add("job", work.run, every=HOUR, first_in=0)
    schedule.start()
    await soon(work.ran.wait())
    await settle()
    view = schedule.view("job")
    assert (view.runs, view.result, view.error, view.running) == (1, 1, None, False)
    assert view.next_in == pytest.approx(HOUR, abs=60)
    assert view.next_run == pytest.approx(clocks.wall() + HOUR, abs=60)
    assert view.last_run == pytest.approx(clocks.wall(), abs=60)
    assert [view.name for view in schedule.views()] == ["job"]
    assert planned_in(schedule, clocks) == pytest.approx(HOUR, abs=60)


@pytest.mark.anyio
async def test_a_run_that_was_missed_many_times_is_made_up_for_once(schedule, work, clocks):
    schedule.add("job", work.run, every=HOUR, first_in=-30.5 * HOUR)  # the process or its loop stood still
    schedule._scheduler.start()  # without the check, which would not leave APScheduler anything to make up for
    await soon(work.ran.wait())
    await settle()
    assert work.runs == 1
    assert schedule.view("job").next_in == pytest.approx(HOUR / 2, abs=60)


@pytest.mark.anyio
@pytest.mark.parametrize("days", [2, -2, 4000])
async def test_a_clock_that_is_set_moves_no_run(schedule, work, clocks, days):
    schedule.add("job", work.run, every=HOUR)
    schedule.start()
    clocks.offset += days * DAY
    schedule.check()
    assert planned_in(schedule, clocks) == pytest.approx(HOUR, abs=60)
    assert schedule.view("job").next_in == pytest.approx(HOUR, abs=60)
    clocks.passed += HOUR / 2
    clocks.offset -= days * DAY
    schedule.check()
    assert planned_in(schedule, clocks) == pytest.approx(HOUR / 2, abs=60)
    await settle()
    assert work.runs == 0


@pytest.mark.anyio
async def test_a_clock_that_was_set_back_over_the_due_time_does_not_lose_the_run(schedule, work, clocks):
    schedule.add("job", work.run, every=HOUR)
    schedule.start()
    clocks.offset -= 2 * DAY
    clocks.passed += HOUR + 50
    schedule.check()
    assert planned_in(schedule, clocks) == pytest.approx(0, abs=30)
    await schedule._fire("job")
    assert work.runs == 1
    assert schedule.view("job").next_in == pytest.approx(HOUR - 50, abs=30)


@pytest.mark.anyio
async def test_a_clock_that_was_set_forward_starts_nothing_early(schedule, work, clocks):
    schedule.add("job", work.run, every=HOUR)
    schedule.start()
    await schedule._fire("job")  # APScheduler takes the job for due
    assert work.runs == 0
    schedule.check()
    assert planned_in(schedule, clocks) == pytest.approx(HOUR, abs=60)


@pytest.mark.anyio
async def test_run_now_leaves_the_plan_alone_and_shares_a_run_under_way(schedule, work):
    schedule.add("job", work.run, every=HOUR)
    schedule.start()
    work.gate.clear()
    calls = [asyncio.ensure_future(schedule.run_now("job")) for _ in range(3)]
    await soon(work.ran.wait())
    assert schedule.view("job").running
    calls[0].cancel()
    await settle()
    work.gate.set()
    views = await asyncio.gather(*calls[1:])
    assert [view.result for view in views] == [1, 1]
    assert (work.runs, schedule.view("job").running) == (1, False)
    assert schedule.view("job").next_in == pytest.approx(HOUR, abs=60)
    assert (await schedule.run_now("job")).result == 2


@pytest.mark.anyio
async def test_a_job_that_fails_is_told_and_comes_back(schedule, work):
    async def failing():
        if work.runs == 0:
            work.runs = 1
            raise OSError("no disk")
        return "well"

    schedule.add("job", failing, every=HOUR)
    view = await schedule.run_now("job")
    assert (view.error, view.result, view.runs) == ("OSError: no disk", None, 1)
    view = await schedule.run_now("job")
    assert (view.error, view.result, view.runs) == (None, "well", 2)


@pytest.mark.anyio
async def test_what_blocks_runs_in_a_thread_and_is_waited_for(schedule, clocks):
    gate, here = threading.Event(), threading.current_thread()
    threads = []

    def blocking():
        gate.wait(60)
        threads.append(threading.current_thread())
        return 7

    schedule.add("job", blocking, every=HOUR)
    schedule.start()
    call = asyncio.ensure_future(schedule.run_now("job"))
    await settle()
    stopping = asyncio.ensure_future(schedule.stop())
    await settle()
    assert not stopping.done()
    gate.set()
    await soon(stopping)
    assert (await call).result == 7
    assert threads[0] is not here
    assert schedule.view("job").next_run is None


@pytest.mark.anyio
async def test_names(schedule, work):
    schedule.add("job", work.run, every=1)
    with pytest.raises(ValueError, match="already"):
        schedule.add("job", work.run, every=1)
    with pytest.raises(KeyError):
        schedule.view("other")
    with pytest.raises(KeyError):
        await schedule.run_now("other")
    assert schedule.view("job").next_run is None
