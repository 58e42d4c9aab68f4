"""Pressed while takes run and wait: nobody is cut off, nobody loses his place, and it ends whatever the engine does."""

import asyncio

import pytest

from cosyui.host.config import FakeScript
from cosyui.service.soft_restart import SoftRestarter
from cosyui.service.types import Chunk, Done, QueueFullError, Stopped, Waiting
from tests.service.watching import follow, samples, until

pytestmark = pytest.mark.anyio


async def test_takes_in_work_end_first_and_waiting_ones_keep_their_order(fake_service, form, tmp_path):
    release = tmp_path / "release"
    async with fake_service(script=FakeScript(release_file=str(release))) as service:
        running = await service.submit(form("First. [fake:hold]", stream=True))
        updates = running.updates()
        await until(updates, lambda update: isinstance(update, Chunk))
        second, third = [await service.submit(form(f"Number {number}.")) for number in (2, 3)]
        restart = asyncio.create_task(service.soft_restarter.run())
        later = await service.submit(form("Asked for meanwhile."))
        await asyncio.sleep(0)
        assert service.soft_restarter.busy
        assert not service.ready
        assert [entry.id for entry in service.overview().running] == [running.id]
        release.touch()
        first = await until(updates, lambda update: isinstance(update, Done))
        done = await restart
        assert (done.engines, done.around, done.held_back) == (1, 0, 3)
        assert service.ready
        ends = [(await follow(ticket))[-1] for ticket in (second, third, later)]
        assert all(isinstance(end, Done) for end in (first, *ends))
        assert all(any(samples(end.result.path)) for end in ends)
        assert service.overview().failed == 0


async def test_a_second_press_joins_the_first(fake_service):
    async with fake_service() as service:
        one, two = await asyncio.gather(service.soft_restarter.run(), service.soft_restarter.run())
        assert one is two
        assert service.soft_restarter.last is one
        assert set(one.freed) == {"features", "unused", "host"}


async def test_whoever_pressed_may_leave(fake_service):
    async with fake_service() as service:
        press = asyncio.create_task(service.soft_restarter.run())
        await asyncio.sleep(0)
        press.cancel()
        assert (await service.soft_restarter.run()).engines == 1


async def test_it_works_around_what_does_not_end(fake_service, form, tmp_path):
    release = tmp_path / "release"
    async with fake_service(script=FakeScript(release_file=str(release))) as service:
        ticket = await service.submit(form("Long. [fake:hold]", stream=True))
        updates = ticket.updates()
        await until(updates, lambda update: isinstance(update, Chunk))
        impatient = SoftRestarter(service._queue, service.client, patience=0.0)
        assert (await impatient.run()).around == 1
        release.touch()
        assert isinstance(await until(updates, lambda update: isinstance(update, Done)), Done)


async def test_an_engine_that_dies_meanwhile_does_not_hold_it_up(fake_service, form):
    async with fake_service() as service:
        await service.client.restart()
        done = await service.soft_restarter.run()
        assert done.engines == 0
        ticket = await service.submit(form("Afterwards."))
        assert isinstance((await follow(ticket))[-1], Done)


async def test_an_engine_that_hangs_does_not_keep_the_places(fake_service, form):
    async with fake_service() as service:
        ticket = await service.submit(form("Never done. [fake:hang]", stream=True))
        updates = ticket.updates()
        await until(updates, lambda update: isinstance(update, Chunk))
        waiting = await service.submit(form("Waits."))
        done = await SoftRestarter(service._queue, service.client, patience=0.0, clear_seconds=0.0).run()
        assert (done.engines, done.around, done.held_back) == (0, 1, 1)
        assert not service._queue.held
        await updates.aclose()
        await service.client.restart()
        assert isinstance((await follow(waiting))[-1], Done)


async def test_closing_meanwhile_starts_nobody(fake_service, form, tmp_path):
    async with fake_service(script=FakeScript(release_file=str(tmp_path / "never"))) as service:
        running = await service.submit(form("First. [fake:hold]", stream=True))
        await until(running.updates(), lambda update: isinstance(update, Chunk))
        waiting = await service.submit(form("Waits."))
        press = asyncio.create_task(service.soft_restarter.run())
        await asyncio.sleep(0)
        await service.close()
        assert [type(update) for update in await follow(waiting) if not isinstance(update, Waiting)] == [Stopped]
        await asyncio.wait([press])


async def test_each_engine_is_asked(fake_service):
    async with fake_service(engines=2) as service:
        await service.client.wait_until("ready")
        while len(service.client.ready) < 2:
            await service.client._changed.wait()
        assert (await service.soft_restarter.run()).engines == 2


async def test_a_full_queue_stays_bounded_meanwhile(fake_service, form, tmp_path):
    release = tmp_path / "release"
    async with fake_service(script=FakeScript(release_file=str(release)), queue_size=1) as service:
        first = await service.submit(form("First. [fake:hold]", stream=True))
        updates = first.updates()
        await until(updates, lambda update: isinstance(update, Chunk))
        restart = asyncio.create_task(service.soft_restarter.run())
        await service.submit(form("Waits."))
        with pytest.raises(QueueFullError):
            await service.submit(form("Too many."))
        release.touch()
        await until(updates, lambda update: isinstance(update, Done))
        assert (await restart).held_back == 1
