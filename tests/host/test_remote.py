"""Engines far away: a request stays with its replica, and the loss of one costs nobody anything."""

import asyncio
import contextlib

import numpy as np
import pytest
import soundfile

from cosyui.engine.config import EngineConfig
from cosyui.engine.request import AudioChunk, Cancelled, Failed, Finished
from cosyui.errors import EngineError
from cosyui.host.config import FakeScript, HostConfig
from cosyui.host.engines import Engines
from cosyui.host.fake_sound import fake_pcm, tone_hz
from cosyui.host.pool import EnginePool
from cosyui.host.remote import RemoteEngines
from cosyui.host.replica import NoReplicaError, Order, Replica, ReplicaLostError
from cosyui.host.stream import HandedOver
from cosyui.service.clips import ClipStore
from cosyui.service.outputs import OutputStore
from cosyui.service.service import SynthesisService, running
from cosyui.service.types import Done, Running, TakeForm
from cosyui.settings import Settings

LIMIT = 30.0
pytestmark = pytest.mark.anyio


class NearFleet:
    """Replicas in this process, found as Ray finds them: the one with the fewest requests."""

    def __init__(self, scripts):
        self.scripts = scripts
        self.replicas = {}
        self.busy = {}
        self.orders = []
        self.taken_by = []

    async def add(self, name):
        config = HostConfig(EngineConfig("none"), "fake", self.scripts)
        self.replicas[name] = Replica(name, EnginePool([config]))
        self.busy[name] = set()
        await self.replicas[name].start()

    async def lose(self, name):
        """As when its machine is gone."""
        replica = self.replicas.pop(name)
        for queue in self.busy[name]:
            queue.put_nowait(ReplicaLostError(f"{name} is gone"))
        await replica.close()

    async def speak(self, request):
        if not self.replicas:
            raise NoReplicaError
        name = min(self.replicas, key=lambda name: len(self.busy[name]))
        queue = asyncio.Queue()
        self.busy[name].add(queue)
        self.taken_by.append((request.id, name))

        async def work(replica):
            async with contextlib.aclosing(replica.speak(request)) as events:
                async for event in events:
                    queue.put_nowait(event)

        task = asyncio.create_task(work(self.replicas[name]))
        task.add_done_callback(lambda _: queue.put_nowait(None))
        try:
            while (event := await queue.get()) is not None:
                if isinstance(event, Exception):
                    raise event
                yield event
        finally:
            self.busy[name].discard(queue)
            task.cancel()
            await asyncio.wait([task])

    async def ask(self, order):
        self.orders.append(order)
        if not self.replicas:
            raise NoReplicaError
        answers = [await replica.obey(order) for replica in self.replicas.values()]
        return [answer for answer in answers if answer is not None]


@pytest.fixture
def far():
    """Context manager of engines with so many replicas, and the fleet; ``script`` is the fake engine's."""

    @contextlib.asynccontextmanager
    async def start(count=2, look_seconds=0.01, **script):
        fleet = NearFleet(FakeScript(**script))
        engines = RemoteEngines(fleet, look_seconds)
        try:
            async with asyncio.timeout(LIMIT):
                for number in range(count):
                    await fleet.add(f"r{number}")
                await engines.start()
                if count:
                    await engines.wait_until()
                yield engines, fleet
        finally:
            await engines.close()
            for name in list(fleet.replicas):
                await fleet.lose(name)

    return start


async def spoken(engines, request):
    """All events; the audio; and the numbers of the engines that had it."""
    events = [event async for event in engines.events(request)]
    pcm = b"".join(event.pcm for event in events if isinstance(event, AudioChunk))
    return events, pcm, [event.engine for event in events if isinstance(event, HandedOver)]


async def test_it_is_what_a_service_needs(far):
    async with far(3, places=2) as (engines, _):
        asked: Engines = engines
        assert (asked.state, asked.places, len(asked.views())) == ("ready", 6, 3)
        assert asked.facts.places == 6
        assert (asked.pids, asked.pid, asked.progress) == ((), None, None)
        stats = await asked.stats()
        assert stats.finished == 0
        assert len(await asked.clear(light=True)) == 3


async def test_each_request_gets_its_own_sound_from_one_replica(far, make_request):
    async with far(2) as (engines, fleet):
        requests = [make_request(f"take-{number}") for number in range(8)]
        answers = await asyncio.gather(*(spoken(engines, request) for request in requests))
        for request, (events, pcm, homes) in zip(requests, answers, strict=True):
            assert isinstance(events[-1], Finished)
            assert pcm == fake_pcm(request)
            assert len(homes) == 1
        assert len(fleet.taken_by) == 8
        assert {name for _, name in fleet.taken_by} == {"r0", "r1"}


@pytest.mark.parametrize("streamed", [0, 1])
async def test_a_lost_replica_costs_one_retry_and_no_sound_twice(far, make_request, tmp_path, streamed):
    """``streamed``: chunks that have gone out before the loss."""
    release = tmp_path / "release"
    async with far(2, release_file=str(release)) as (engines, fleet):
        request = make_request("take", "[fake:hold] a sentence")
        pcm, homes, last, lost = b"", [], None, False
        async for event in engines.events(request):
            match event:
                case AudioChunk():
                    pcm += event.pcm
                case HandedOver():
                    homes.append(event.attempt)
            if not lost and (len(pcm) > 0 if streamed else homes):
                lost = True
                release.touch()
                await fleet.lose(fleet.taken_by[0][1])
            last = event
        assert isinstance(last, Finished)
        assert last.stats.retries == 1
        assert homes == [1, 2]
        assert pcm == fake_pcm(request)
        assert [name for _, name in fleet.taken_by] == ["r0", "r1"]


async def test_what_loses_two_replicas_is_not_tried_on_a_third(far, make_request):
    async with far(3) as (engines, fleet):
        last = None
        async for event in engines.events(make_request("take", "[fake:hold] a sentence")):
            if isinstance(event, HandedOver):
                await fleet.lose(fleet.taken_by[-1][1])
            last = event
        assert isinstance(last, Failed)
        assert last.code == "engine_died"
        assert len(fleet.taken_by) == 2
        assert len(fleet.replicas) == 1


async def test_sound_does_not_go_on_in_an_engine_of_another_kind(far, make_request, tmp_path):
    async with far(1, release_file=str(tmp_path / "release")) as (engines, fleet):
        fleet.scripts = FakeScript(places=4)
        await fleet.add("other")
        last = None
        async for event in engines.events(make_request("take", "[fake:hold] a sentence")):
            if isinstance(event, AudioChunk):
                await fleet.lose("r0")
            last = event
        assert isinstance(last, Failed)
        assert "differently" in last.message


async def test_requests_wait_while_there_is_no_replica(far, make_request):
    async with far(0) as (engines, fleet):
        request = make_request("take")
        task = asyncio.create_task(spoken(engines, request))
        assert engines.state == "starting"
        await fleet.add("late")
        _, pcm, _ = await task
        assert pcm == fake_pcm(request)
        await engines.wait_until("ready")
        await fleet.lose("late")
        await engines.wait_until("restarting")
        assert engines.places == 0
        await fleet.add("later")
        await engines.wait_until("ready")
        assert len(engines.engines) == 1  # the number of one that is gone is given again


async def test_places_of_a_new_replica_are_told_also_by_its_first_answer(far, make_request):
    async with far(1, look_seconds=LIMIT) as (engines, fleet):
        told = []
        engines.on_change = lambda: told.append(engines.places)
        await fleet.add("new")
        async with contextlib.aclosing(engines.events(make_request("one", "[fake:hold] words"))) as one:
            await anext(one)
            await spoken(engines, make_request("two"))
        assert told == [2]


async def test_an_engine_that_dies_in_its_replica_does_not_lose_it(far, make_request):
    async with far(1) as (engines, fleet):
        request = make_request("take", "[fake:die] a sentence")
        events, pcm, homes = await spoken(engines, request)
        assert pcm == fake_pcm(request)
        assert [event.attempt for event in events if isinstance(event, HandedOver)] == [1, 2]
        assert len(fleet.taken_by) == 1
        assert homes == [0, 0]


async def test_cancelling_and_leaving_end_the_work(far, make_request):
    async with far(1) as (engines, fleet):
        last = None
        async for event in engines.events(make_request("take", "[fake:hold] a sentence")):
            if isinstance(event, AudioChunk):
                await engines.cancel("take")
            last = event
        assert isinstance(last, Cancelled)
        async with contextlib.aclosing(engines.events(make_request("left", "[fake:hold] a sentence"))) as events:
            async for event in events:
                if isinstance(event, AudioChunk):
                    break
        stats = await engines.stats()
        assert (stats.running, stats.waiting) == (0, 0)
        assert fleet.busy == {"r0": set()}


async def test_the_share_of_the_queue_is_told_for_scaling(far, make_request):
    async with far(2, places=2) as (engines, fleet):
        engines.waiting_seconds = lambda: 60.0
        told = asyncio.Event()
        obey = fleet.replicas["r0"].obey

        async def heard(order):
            if order.waiting_seconds:
                told.set()
            return await obey(order)

        fleet.replicas["r0"].obey = heard
        await told.wait()
        figures = fleet.replicas["r0"].load_figures()
        assert figures == {"speech_seconds": 30.0, "places": 2.0}


async def test_a_replica_without_hope_is_told_unfit(make_request):
    config = HostConfig(EngineConfig("none"), "fake", FakeScript(directives="[fake:load_error]"))
    replica = Replica("r0", EnginePool([config]))
    with pytest.raises(Exception, match="has no llm"):
        await replica.start()
    pool = EnginePool([config])
    replica = Replica("r1", pool)
    await pool.start()
    await pool.wait_until("broken")
    with pytest.raises(ReplicaLostError):
        replica.check()
    await replica.close()


async def test_orders_reach_whom_they_name(far):
    async with far(2) as (engines, fleet):
        pids = {name: replica._pool.pid for name, replica in fleet.replicas.items()}
        await engines.restart(0)
        changed = {name for name, replica in fleet.replicas.items() if replica._pool.pid != pids[name]}
        assert changed == {engines.engines[0].report.replica}
        await engines.unload()
        assert engines.state == "unloaded"
        assert Order("restart", engines.engines[0].report.replica) in fleet.orders
        engines.load()
        await engines.wait_until("ready")


async def test_after_the_close_nothing_is_taken(far, make_request):
    async with far(1) as (engines, _):
        await engines.close()
        events, _, _ = await spoken(engines, make_request("take"))
        assert isinstance(events[-1], Failed)
        assert events[-1].code == EngineError("engine_not_ready", "").code


async def test_a_service_loses_no_request_with_a_replica(far, tmp_path):
    """With its queue: places go by the replicas that there are, and each file has its own sound."""
    release, clip = tmp_path / "release", tmp_path / "clip.wav"
    wobble = np.sin(np.arange(4 * 16_000) / 17) * (1 + 0.5 * np.sin(np.arange(4 * 16_000) / 900))
    soundfile.write(clip, 0.2 * wobble, 16_000)
    folders = {"outputs_dir": tmp_path / "outputs", "clips_dir": tmp_path / "clips", "journal": tmp_path / "journal"}
    settings = Settings.load(folders | {"queue_size": 20, "client_queue": 20}, {})
    async with far(2, release_file=str(release)) as (engines, fleet):
        outputs, clips = OutputStore(settings.outputs_dir), ClipStore.from_settings(settings)
        async with running(SynthesisService(settings, engines, outputs, clips)) as service:
            form = TakeForm("[fake:hold] words", clip=clip, transcript="What it says.")
            tickets = [await service.submit(form) for _ in range(6)]
            updates = [ticket.updates() for ticket in tickets]
            async for update in updates[1]:  # the second has a place beside the first
                if isinstance(update, Running):
                    break
            assert service.overview().places == 2
            await fleet.lose(fleet.taken_by[0][1])
            release.touch()
            for ticket, ups in zip(tickets, updates, strict=True):
                last = [update async for update in ups][-1]
                assert isinstance(last, Done)
                sound, _ = soundfile.read(last.result.path, dtype="int16")
                pitch = np.argmax(np.abs(np.fft.rfft(sound))) / last.result.seconds
                assert abs(pitch - tone_hz(ticket.id)) < 2
            assert service.overview().places == 1
