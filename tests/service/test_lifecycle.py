"""Loaded late, unloaded, loaded again, restarted: whoever asks for a take gets it, and no process is left behind."""

import asyncio
import contextlib
import os
import signal

import pytest

from cosyui.errors import EngineError
from cosyui.host.config import FakeScript
from cosyui.host.fake_sound import segment_pcm
from cosyui.host.process import EngineProcess
from cosyui.host.supervision import Deaths, RestartPolicy
from cosyui.service.life_cycle import LifeCycle
from cosyui.service.types import Chunk, Done, Problem, Running, Stopped, Waiting
from cosyui.ui import banner, ops
from cosyui.ui.i18n import Dictionary
from tests.service.watching import follow, http, samples, until

pytestmark = pytest.mark.anyio


@pytest.fixture
def processes(monkeypatch):
    """Each engine's process that was started, in order."""
    started = []

    class Counted(EngineProcess):
        def __init__(self, on_message):
            super().__init__(on_message)
            started.append(self)

    monkeypatch.setattr("cosyui.host.client.EngineProcess", Counted)
    return started


@pytest.fixture
def release(tmp_path):
    """The file that lets held requests and held loads go on."""
    return tmp_path / "release"


def living(processes):
    return [process.pid for process in processes if not process.ended.is_set()]


async def at_stage(service, stage):
    """Wait until the first engine says that it is at this stage of its load."""
    engine = service.client.engines[0]
    while engine.progress is None or engine.progress.stage != stage:
        await engine._changed.wait()


async def held(service, form):
    """A take that is in work and does not end before the release."""
    ticket = await service.submit(form("In work. [fake:hold]", stream=True))
    updates = ticket.updates()
    await until(updates, lambda update: isinstance(update, Chunk))
    return updates


async def done(updates):
    return await until(updates, lambda update: isinstance(update, Done))


def right(update, ticket):
    """Whether a take came out as its own sound, whole."""
    return isinstance(update, Done) and samples(update.result.path) == segment_pcm(ticket._job.request, 0)


async def test_three_requests_after_an_unload_load_the_model_once(fake_service, form, processes, release):
    release.touch()
    script = FakeScript(release_file=str(release), directives="[fake:load_hold=weights]")
    async with fake_service(script=script) as service:
        result = await service.unload()
        assert (result.outcome, result.held_back, result.running) == ("unloaded", 0, 0)
        assert (service.client.state, service.client.places, service.client.pid) == ("unloaded", 0, None)
        assert not living(processes)
        release.unlink()
        tickets = [await service.submit(form(f"Number {number}.")) for number in range(3)]
        readers = [ticket.updates() for ticket in tickets]
        for position, reader in enumerate(readers):
            loading = await until(reader, lambda update: isinstance(update, Waiting) and update.engine == "starting")
            assert (loading.position, loading.eta_seconds) == (position, None)
        await at_stage(service, "weights")
        release.touch()
        ends = [await done(reader) for reader in readers]
        assert all(right(end, ticket) for end, ticket in zip(ends, tickets, strict=True))
        assert len(processes) == 2
        assert (service.overview().engine_restarts, service.overview().failed) == (0, 0)


async def test_nothing_but_a_request_wakes_a_lazy_service(fake_service, form, processes):
    async with fake_service(start="lazy", wait=False) as service, http(service) as client:
        for _ in range(3):
            answer = await client.get("/health/ready")
            assert (answer.status_code, answer.json()["engine"], answer.json()["loading"]) == (200, "unloaded", None)
            assert answer.json()["status"] == "ready"
            overview = service.overview()
            assert (overview.engine, overview.problem, overview.engines[0].pid) == ("unloaded", None, None)
            for words in Dictionary(service.settings)._words.values():
                assert words("engine_unloaded") in ops.panel(overview, words)
                assert words("banner_unloaded") in banner.banner(service, words)
            service.operations.sampler.tick()
        assert (await service.soft_restarter.run()).engines == (await service.trim()).engines == 0
        assert await service.client.stats() is None
        assert (await service.unload()).outcome == "nothing"
        assert not processes
        ticket = await service.submit(form("Wake up."))
        assert right((await follow(ticket))[-1], ticket)
        assert len(processes) == 1


async def test_who_leaves_while_it_loads_costs_nobody_else_the_load(fake_service, form, processes, release):
    script = FakeScript(release_file=str(release), directives="[fake:load_hold=kernels]")
    async with fake_service(script=script, start="lazy", wait=False) as service:
        first, second = [await service.submit(form(f"Number {number}.")) for number in range(2)]
        await at_stage(service, "kernels")
        await first.cancel()
        release.touch()
        assert isinstance((await follow(first))[-1], Stopped)
        assert right((await follow(second))[-1], second)
        assert len(processes) == 1


async def test_health_tells_how_far_the_load_is(fake_service, release):
    script = FakeScript(release_file=str(release), directives="[fake:load_hold=encoders]")
    async with fake_service(script=script, wait=False) as service, http(service) as client:
        await at_stage(service, "encoders")
        answer = await client.get("/health/ready")
        assert (answer.status_code, answer.json()["loading"]) == (503, {"stage": "encoders", "share": 0.45})
        release.touch()
        await service.client.wait_until()
        answer = await client.get("/health/ready")
        assert (answer.status_code, answer.json()["loading"]) == (200, None)


async def test_an_unload_lets_takes_in_work_end(fake_service, form, processes, release):
    async with fake_service(script=FakeScript(release_file=str(release))) as service:
        updates = await held(service, form)
        unload = asyncio.create_task(service.unload())
        await asyncio.sleep(0)
        assert not service.ready
        assert service.client.state == "ready"
        release.touch()
        await done(updates)
        assert (await unload).outcome == "unloaded"
        assert service.ready
        assert not living(processes)


async def test_who_waits_meanwhile_keeps_his_place_and_it_is_loaded_again(fake_service, form, processes, release):
    async with fake_service(script=FakeScript(release_file=str(release))) as service:
        updates = await held(service, form)
        waiting = await service.submit(form("Waits before."))
        unload = asyncio.create_task(service.unload())
        await asyncio.sleep(0)
        later = await service.submit(form("Comes meanwhile."))
        assert [entry.position for entry in service.overview().waiting] == [1, 2]
        release.touch()
        await done(updates)
        result = await unload
        assert (result.outcome, result.held_back) == ("reloading", 2)
        for ticket in (waiting, later):
            assert right((await follow(ticket))[-1], ticket)
        assert (len(processes), len(living(processes))) == (2, 1)


async def test_an_unload_gives_up_rather_than_cut_somebody_off(fake_service, form, processes, release):
    async with fake_service(script=FakeScript(release_file=str(release))) as service:
        updates = await held(service, form)
        waiting = await service.submit(form("Waits."))
        result = await LifeCycle(service._queue, service.client, lambda: True, patience=0.0).unload()
        assert (result.outcome, result.running, result.held_back) == ("busy", 1, 1)
        assert (service.client.state, service._queue.held) == ("ready", False)
        release.touch()
        await done(updates)
        assert right((await follow(waiting))[-1], waiting)
        assert len(processes) == 1


async def test_a_process_that_dies_meanwhile_is_replaced_for_its_take_and_then_unloaded(
    fake_service, form, processes, release
):
    async with fake_service(script=FakeScript(release_file=str(release))) as service:
        updates = await held(service, form)
        unload = asyncio.create_task(service.unload())
        await asyncio.sleep(0)
        os.kill(service.client.pid, signal.SIGKILL)
        release.touch()
        await done(updates)
        assert (await unload).outcome == "unloaded"
        assert (len(processes), living(processes), service.client.restarts) == (2, [], 1)


async def test_what_breaks_meanwhile_is_not_told_to_be_unloaded(fake_service, form):
    async with fake_service() as service:
        updates = await held(service, form)
        service.client.engines[0]._deaths = Deaths(RestartPolicy(max_deaths=0))
        unload = asyncio.create_task(service.unload())
        await asyncio.sleep(0)
        os.kill(service.client.pid, signal.SIGKILL)
        assert isinstance([update async for update in updates][-1], Problem)
        assert ((await unload).outcome, service.client.state) == ("nothing", "broken")


async def test_one_unload_at_a_time_and_whoever_asked_may_leave(fake_service, processes):
    async with fake_service() as service:
        press = asyncio.create_task(service.unload())
        await asyncio.sleep(0)
        press.cancel()
        one, two = await asyncio.gather(service.unload(), service.unload())
        assert one is two
        assert one.outcome == "unloaded"
        assert (await service.unload()).outcome == "nothing"
        assert (len(processes), service.client.state) == (1, "unloaded")


async def test_a_load_is_asked_for_without_a_request(fake_service, processes):
    async with fake_service() as service:
        unload = asyncio.create_task(service.unload())
        await asyncio.sleep(0)
        loads = await asyncio.gather(service.load(), service.load())
        assert (await unload).outcome == "unloaded"
        assert [(load.state, load.fresh) for load in loads] == [("ready", True)] * 2
        again = await service.load()
        assert (again.state, again.fresh) == ("ready", False)
        assert len(processes) == 2


async def test_an_unload_ends_a_load(fake_service, form, processes, release):
    script = FakeScript(release_file=str(release), directives="[fake:load_hold=precision]")
    async with fake_service(script=script, start="lazy", wait=False) as service:
        load = asyncio.create_task(service.load())
        await asyncio.sleep(0)
        await at_stage(service, "precision")
        assert (await service.unload()).outcome == "unloaded"
        assert (await load).state == "unloaded"
        assert (service.client.progress, living(processes)) == (None, [])
        release.touch()
        ticket = await service.submit(form("Afterwards."))
        assert right((await follow(ticket))[-1], ticket)
        assert (len(processes), service.client.restarts) == (2, 0)


async def test_idle_engines_are_unloaded_and_wake_again_and_again(fake_service, form, processes):
    async with fake_service(wait=False, idle_unload_minutes=1e-9) as service:
        for number in range(2):
            await service.client.wait_until("unloaded")
            ticket = await service.submit(form(f"Number {number}."))
            assert right((await follow(ticket))[-1], ticket)
        await service.client.wait_until("unloaded")
        assert (len(processes), service.client.restarts) == (3, 0)


class Timers:
    """Stands in for ``loop.call_later``: those that were set and not cancelled."""

    def __init__(self):
        self.set = []

    def __call__(self, seconds, callback):
        timer = [seconds, callback]
        self.set.append(timer)
        return type("Handle", (), {"cancel": lambda _: self.set.remove(timer)})()

    def fire(self):
        self.set.pop()[1]()


async def test_the_idle_time_is_that_without_any_request(fake_service, form, release):
    async with fake_service(script=FakeScript(release_file=str(release))) as service:
        timers = Timers()
        service.life_cycle = LifeCycle(
            service._queue, service.client, lambda: bool(service._drive.jobs), 90.0, later=timers
        )
        service.life_cycle.watch()
        service.life_cycle.watch()
        assert [seconds for seconds, _ in timers.set] == [90.0]
        updates = await held(service, form)
        waiting = await service.submit(form("Waits."))
        assert not timers.set
        await waiting.cancel()
        assert not timers.set
        await service.restart_engine()
        release.touch()
        await done(updates)
        assert len(timers.set) == 1
        timers.fire()
        await service.client.wait_until("unloaded")
        assert not timers.set


async def test_by_default_nothing_is_ever_unloaded(fake_service):
    async with fake_service() as service:
        service.life_cycle.watch()
        assert service.life_cycle._timer is None


@pytest.mark.parametrize(
    "state", ["loading", "idle", "busy", "unloading", "leaving", "unloaded", "woken", "restarting"]
)
async def test_closing_leaves_no_process_behind(fake_service, form, processes, release, state):
    if state != "loading":
        release.touch()
    script = FakeScript(release_file=str(release), directives="[fake:load_hold=weights]")
    async with fake_service(script=script, wait=state != "loading") as service:
        release.unlink(missing_ok=True)
        if state == "loading":
            await at_stage(service, "weights")
        elif state == "idle":
            assert service.client.state == "ready"
        elif state == "restarting":
            await service.restart_engine()
        elif state in ("busy", "unloading"):
            updates = await held(service, form)
            if state == "unloading":
                press = asyncio.create_task(service.unload())
                await asyncio.sleep(0)
        else:
            press = asyncio.create_task(service.unload())
            await service.client.wait_until("unloaded")
            if state == "leaving":
                assert living(processes)
            else:
                await press
            if state == "woken":
                ticket = await service.submit(form("Wakes it."))
                await at_stage(service, "weights")
        await service.close()
        assert (living(processes), service.client.pid, service.client.state) == ([], None, "stopped")
        if state == "woken":
            assert isinstance((await follow(ticket))[-1], Stopped)
        elif state in ("busy", "unloading"):
            assert isinstance(await until(updates, lambda update: not isinstance(update, Running | Chunk)), Stopped)
        if state in ("unloading", "leaving"):
            with contextlib.suppress(asyncio.CancelledError):
                await press


async def test_an_engine_that_dies_at_every_start_is_given_up_until_a_restart_is_asked_for(
    fake_service, form, processes
):
    async with fake_service(script=FakeScript(directives="[fake:load_crash]"), start="lazy", wait=False) as service:
        end = (await follow(await service.submit(form())))[-1]
        assert isinstance(end, Problem)
        assert (end.error.code, service.client.state, len(processes)) == ("engine_died", "broken", 3)
        assert "SIGKILL" in service.overview().problem.message
        with pytest.raises(EngineError, match="keeps dying"):
            await service.submit(form())
        assert (await service.unload()).outcome == "nothing"
        assert (await service.load()).state == "broken"
        assert len(processes) == 3
        await service.restart_engine()
        assert service.client.problem is None
        assert await service.client.wait_until() == "broken"
        assert len(processes) == 6


async def test_a_restart_starts_running_takes_again_and_waiting_ones_stay(fake_service, form, processes, release):
    async with fake_service(script=FakeScript(release_file=str(release))) as service:
        running = await service.submit(form("In work. [fake:hold]", stream=True))
        updates = running.updates()
        await until(updates, lambda update: isinstance(update, Chunk))
        waiting = await service.submit(form("Waits."))
        await service.restart_engine()
        await service.restart_engine()
        assert [entry.id for entry in service.overview().waiting] == [waiting.id]
        release.touch()
        assert right(await done(updates), running)
        assert right((await follow(waiting))[-1], waiting)
        assert (len(processes), len(living(processes))) == (2, 1)


async def test_a_restart_while_it_loads_takes_one_new_process(fake_service, form, processes, release):
    script = FakeScript(release_file=str(release), directives="[fake:load_hold=files]")
    async with fake_service(script=script, wait=False) as service:
        await at_stage(service, "files")
        ticket = await service.submit(form("Waits for it."))
        await service.restart_engine()
        assert service.client.progress is None
        await service.restart_engine()
        await at_stage(service, "files")
        release.touch()
        assert right((await follow(ticket))[-1], ticket)
        assert (len(processes), len(living(processes))) == (2, 1)


async def test_soft_restart_and_unload_take_turns(fake_service, form, processes, release):
    async with fake_service(script=FakeScript(release_file=str(release))) as service:
        updates = await held(service, form)
        soft = asyncio.create_task(service.soft_restarter.run())
        await asyncio.sleep(0)
        unload = asyncio.create_task(service.unload())
        release.touch()
        await done(updates)
        assert (await soft).engines == 1
        assert (await unload).outcome == "unloaded"
        assert not service._queue.held


@pytest.mark.parametrize("leaving", [False, True])
async def test_a_restart_loads_what_is_unloaded(fake_service, processes, leaving):
    async with fake_service() as service:
        unload = asyncio.create_task(service.unload())
        await service.client.wait_until("unloaded")
        if not leaving:
            await unload
        await service.restart_engine()
        await service.restart_engine()
        assert await service.client.wait_until() == "ready"
        await unload
        # While the old one leaves there is no new one yet that a second press could replace.
        assert (len(processes), len(living(processes))) == (2 if leaving else 3, 1)
        assert service.client.pid == processes[-1].pid


async def test_engines_of_several_devices_go_and_come_together(fake_service, form, processes):
    async with fake_service(engines=2, start="lazy", wait=False) as service:
        ticket = await service.submit(form("Wakes both."))
        assert right((await follow(ticket))[-1], ticket)
        for engine in service.client.engines:
            await engine.wait_until()
        assert service.overview().places == 2
        assert (await service.unload()).outcome == "unloaded"
        assert [view.state for view in service.overview().engines] == ["unloaded"] * 2
        assert (len(processes), living(processes)) == (2, [])
        await service.client.restart(1)
        for engine in service.client.engines:
            assert await engine.wait_until() == "ready"
        assert len(processes) == 4


async def test_a_trim_holds_nobody_and_keeps_what_was_made(fake_service, form, processes, release):
    async with fake_service(script=FakeScript(release_file=str(release))) as service:
        updates = await held(service, form)
        trim = await service.trim()
        assert (trim.engines, set(trim.freed)) == (1, {"features", "unused", "host"})
        assert trim.freed["features"] == 0
        assert (await service.client.stats()).features > 0
        release.touch()
        await done(updates)
        trim, soft = await asyncio.gather(service.trim(), service.soft_restarter.run())
        assert (trim.freed["features"], soft.engines) == (0, 1)
        assert soft.freed["features"] > 0
        assert len(processes) == 1
