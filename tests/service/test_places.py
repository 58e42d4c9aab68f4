"""Many at once: places of one engine and of several, the queue before them, and what becomes of others' takes."""

import asyncio
import os
import random
import signal
from types import SimpleNamespace

import pytest
from watching import follow, samples, until

from cosyui.engine.request import Mode, PromptClip, SynthesisRequest
from cosyui.host.config import FakeScript
from cosyui.host.fake_sound import fake_pcm
from cosyui.service.types import Chunk, Done, QueueFullError, Running, Stopped, Waiting
from cosyui.settings import Settings
from cosyui.ui import ops
from cosyui.ui.i18n import Dictionary

pytestmark = pytest.mark.anyio
LONG = "A story that goes on and on. " * 10


def expected(ticket, text):
    clip = PromptClip(None, 16_000)
    return fake_pcm(SynthesisRequest(ticket.id, text.strip(), Mode.ZERO_SHOT, clip, 1, long=len(text) > 200))


def running(update):
    return isinstance(update, Running)


async def all_ready(service):
    for engine in service.client.engines:
        await engine.wait_until()


async def test_queue_of_an_engine_with_four_places(fake_service, form):
    async with fake_service(script=FakeScript(places=4), queue_size=3, client_queue=3) as service:
        assert service.overview().places == 4
        tickets = [await service.submit(form("[fake:hold]")) for _ in range(7)]
        with pytest.raises(QueueFullError):
            await service.submit(form())
        readers = [ticket.updates() for ticket in tickets]
        for reader in readers[:4]:
            await until(reader, running)
        overview = service.overview()
        assert [entry.id for entry in overview.running] == [ticket.id for ticket in tickets[:4]]
        assert [(entry.id, entry.position) for entry in overview.waiting] == [
            (ticket.id, number) for number, ticket in enumerate(tickets[4:], 1)
        ]
        await tickets[2].cancel()
        await until(readers[4], running)
        await until(readers[6], lambda update: isinstance(update, Waiting) and update.position == 2)
        await tickets[5].cancel()
        await tickets[0].cancel()
        await until(readers[6], running)


async def test_long_jobs_have_as_many_places_and_take_none_from_short_takes(fake_service, form):
    text = f"{LONG}[fake:segments=400][fake:seconds=400]"
    async with fake_service(script=FakeScript(places=2, step_seconds=0.002)) as service:
        stories = [await service.submit(form(text)) for _ in range(3)]
        readers = [story.updates() for story in stories]
        for reader in readers[:2]:
            await until(reader, running)
        assert [(entry.id, entry.long) for entry in service.overview().waiting] == [(stories[2].id, True)]
        takes = [await service.submit(form(f"[fake:seconds={number}]")) for number in (1, 2, 3, 4)]
        for number, take in enumerate(takes, 1):
            assert samples((await follow(take))[-1].result.path) == expected(take, f"[fake:seconds={number}]")
        assert {story.id for story in stories[:2]} <= {entry.id for entry in service.overview().running}
        await stories[0].cancel()
        await until(readers[2], running)


async def test_places_follow_the_engines(fake_service, form):
    async with fake_service(engines=2, script=FakeScript(places=2), wait=False) as service:
        assert service.overview().places == 1
        await all_ready(service)
        assert service.overview().places == 4
        tickets = [await service.submit(form("[fake:hold]")) for _ in range(6)]
        readers = [ticket.updates() for ticket in tickets]
        for reader in readers[:4]:
            await until(reader, running)
        assert [view.requests for view in service.overview().engines] == [2, 2]
        os.kill(service.client.pid, signal.SIGKILL)
        await service.client.engines[0].wait_until("restarting")
        assert service.overview().places == 2
        await service.client.engines[0].wait_until("ready")
        assert service.overview().places == 4
        assert len(service.overview().waiting) == 2


async def test_each_take_gets_its_own_audio_whatever_happens_beside_it(fake_service, form):
    chance = random.Random(4)
    script = FakeScript(places=4, step_seconds=0.001)

    async def one(service, number):
        text = f"[fake:seconds={chance.uniform(0.5, 5):.2f}]"
        if number % 9 == 0:
            text = f"{LONG}[fake:segments=5]{text}"
        if number % 13 == 5:
            text += "[fake:die]"
        ticket = await service.submit(form(text, stream=bool(number % 2)))
        updates, pcm = ticket.updates(), b""
        give_up = number % 7 == 3
        async for update in updates:
            if isinstance(update, Chunk):
                pcm += update.pcm
            if give_up and running(update):
                await ticket.cancel()
        if give_up:
            assert isinstance(update, Stopped | Done)
            return
        assert isinstance(update, Done), update
        assert samples(update.result.path) == expected(ticket, text)
        assert pcm in (b"", expected(ticket, text))

    async with fake_service(engines=2, script=script, queue_size=100) as service:
        await all_ready(service)
        await asyncio.gather(*(one(service, number) for number in range(60)))
        overview = service.overview()
        assert (overview.running, overview.waiting) == ((), ())
        assert overview.finished + overview.stopped == 60
        assert overview.engine_restarts >= 1
        assert [view.requests for view in overview.engines] == [0, 0]
        stats = await service.client.stats()
        assert (stats.running, stats.waiting) == (0, 0)


async def test_only_the_engine_that_hangs_is_replaced(fake_service, form):
    async with fake_service(engines=2, request_timeout=2.0) as service:
        await all_ready(service)
        first, second = service.client.pids
        hung = await service.submit(form("[fake:hang]"))
        other = await service.submit(form("[fake:seconds=40][fake:slow=0.02]"))
        assert (await follow(hung))[-1].error.code == "request_timeout"
        assert isinstance((await follow(other))[-1], Done)
        await service.client.engines[0].wait_until("ready")
        assert service.client.pids[0] != first
        assert service.client.pids[1] == second


async def test_take_that_is_too_slow_does_not_cost_the_others_their_engine(fake_service, form):
    async with fake_service(script=FakeScript(places=2), request_timeout=2.0) as service:
        last = (await follow(await service.submit(form("[fake:seconds=500][fake:slow=0.02]"))))[-1]
        assert last.error.code == "request_timeout"
        assert "restarted" not in last.error.message
        assert isinstance((await follow(await service.submit(form())))[-1], Done)
        assert service.client.restarts == 0


async def test_speed_is_that_of_all_together(fake_service, form):
    script = FakeScript(places=4, step_seconds=0.02)  # 0.5 s of speech each: 25 a second at most
    async with fake_service(script=script, queue_size=50) as service:
        assert service.overview().speed is None
        tickets = [await service.submit(form("[fake:seconds=4]")) for _ in range(12)]
        last = tickets[-1].updates()
        assert (await until(last, lambda update: isinstance(update, Waiting) and update.eta_seconds)).eta_seconds < 10
        assert isinstance([update async for update in last][-1], Done)
        speed = service._queue.speed.at(4)
        assert 3 < speed <= 30
        assert service.overview().rtf > 1 / speed, "each by itself is slower than all together"


async def test_panel_shows_each_engine_of_several(fake_service):
    words = Dictionary(Settings.load({}, {})).of(SimpleNamespace(cookies={}, headers={}))
    async with fake_service(engines=2, script=FakeScript(places=3)) as service:
        await all_ready(service)
        html = ops.panel(service.overview(), words)
        assert all(f'data-engine-row="{number}"' in html for number in (0, 1))
        assert "2 × cpu" in html
        assert "<dd>6</dd>" in html
        assert all(str(pid) in html for pid in service.client.pids)
    async with fake_service() as service:
        assert "data-engine-row" not in ops.panel(service.overview(), words)


async def test_estimates_learn_how_long_takes_really_are(fake_service, form):
    async with fake_service() as service:
        off = []
        for number in range(40):
            ticket = await service.submit(form(f"A sentence to speak, number {number:02}. [fake:seconds=9]"))
            expected_seconds = service._drive.jobs[ticket.id].expected_seconds
            off.append((await follow(ticket))[-1].result.seconds / expected_seconds)
    assert off[0] > 2
    assert off[-1] == pytest.approx(1, abs=0.2)
