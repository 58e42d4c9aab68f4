"""The way down: what was taken in may finish, nothing new comes in, and it has an end."""

import asyncio

import pytest
from watching import follow

from cosyui.errors import BusyError
from cosyui.host.config import FakeScript
from cosyui.service.types import Done, Stopped

pytestmark = pytest.mark.anyio


async def test_takes_at_work_and_waiting_finish_and_new_ones_are_refused(fake_service, form, tmp_path):
    release = tmp_path / "release"
    async with fake_service(script=FakeScript(release_file=str(release))) as service:
        tickets = [await service.submit(form("[fake:hold]")) for _ in range(3)]
        draining = asyncio.create_task(service.drain(30))
        await asyncio.sleep(0)
        assert not service.ready
        with pytest.raises(BusyError) as caught:
            await service.submit(form())
        assert (caught.value.code, caught.value.status) == ("service_stopping", 503)
        assert caught.value.retry_after > 0
        assert not draining.done()
        release.touch()
        assert [type((await follow(ticket))[-1]) for ticket in tickets] == [Done] * 3
        await draining


async def test_what_does_not_finish_in_time_is_stopped(fake_service, form):
    async with fake_service() as service:
        ticket = await service.submit(form("[fake:hold]"))
        await service.drain(0.05)
        assert service.overview().running
        await service.close()
        assert isinstance((await follow(ticket))[-1], Stopped)
