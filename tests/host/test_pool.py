"""Several engine processes behind one door."""

import asyncio
import contextlib
import os
import signal
from dataclasses import replace

import pytest
from test_client import audio, collect, first_chunk, kinds

from cosyui.engine.request import Cancelled, EngineFacts, EngineStats, Failed, Finished, SelfTest, Started
from cosyui.host.config import FakeScript
from cosyui.host.fake_sound import fake_pcm
from cosyui.host.joined import joined_facts, joined_stats
from cosyui.host.stream import HandedOver
from cosyui.host.supervision import RestartPolicy
from cosyui.notice import Notice

pytestmark = pytest.mark.anyio
WORDS = "many words that take their time to be said "


def homes(events):
    """The engines a request was in, in order."""
    return [event.engine for event in events if isinstance(event, HandedOver)]


class Reader:
    """Reads a request's events in a task of its own."""

    def __init__(self, pool, request):
        self.request = request
        self.events = []
        self._some = asyncio.Event()
        self.task = asyncio.create_task(self._read(pool))

    async def _read(self, pool):
        async with contextlib.aclosing(pool.events(self.request)) as events:
            async for event in events:
                self.events.append(event)
                self._some.set()

    async def until(self, kind, times=1):
        while sum(isinstance(event, kind) for event in self.events) < times:
            self._some.clear()
            await self._some.wait()
        return self

    async def end(self):
        await self.task
        return self.events


async def test_no_audio_is_lost_or_swapped_between_two_engines(fake_pool, make_request):
    script = FakeScript(places=3, step_seconds=0.001)
    async with fake_pool(script, script) as pool:
        assert (pool.state, pool.places, pool.facts.places) == ("ready", 6, 6)
        requests = [make_request(f"r{number}", "x" * 10 * number) for number in range(30)]
        results = await asyncio.gather(*(collect(pool, request) for request in requests))
        finished = [(await engine.stats()).finished for engine in pool.engines]
        stats = await pool.stats()
    assert [audio(events) for events in results] == [fake_pcm(request) for request in requests]
    assert all(kinds(events) == [HandedOver, Started, Finished] for events in results)
    assert sum(finished) == stats.finished == 30
    assert min(finished) > 5


async def test_request_goes_where_the_least_work_is(fake_pool, make_request):
    script = FakeScript(places=4, directives="[fake:hold]")
    async with fake_pool(script, script) as pool:
        sizes = [20, 3, 3, 8, 6, 3]
        readers = [
            await Reader(pool, make_request(f"r{number}", WORDS * size)).until(HandedOver)
            for number, size in enumerate(sizes)
        ]
        assert [homes(reader.events) for reader in readers] == [[0], [1], [1], [1], [1], [0]]


async def test_short_take_looks_only_at_one_segment_of_a_long_job(fake_pool, make_request):
    script = FakeScript(places=2, directives="[fake:hold]")
    async with fake_pool(script, script) as pool:
        long = make_request("story", WORDS * 50)
        object.__setattr__(long, "long", True)
        assert homes((await Reader(pool, long).until(HandedOver)).events) == [0]
        for name, size, home in (("a", 6, 1), ("b", 6, 0)):
            assert homes((await Reader(pool, make_request(name, WORDS * size)).until(HandedOver)).events) == [home]


async def test_free_place_counts_more_than_little_work(fake_pool, make_request):
    script = FakeScript(directives="[fake:hold]")
    async with fake_pool(script, script) as pool:
        readers = [
            await Reader(pool, make_request(name, WORDS * size)).until(HandedOver)
            for name, size in (("a", 1), ("b", 30))
        ]
        await pool.cancel("b")
        await readers[1].end()
        assert homes((await Reader(pool, make_request("c")).until(HandedOver)).events) == [1]


async def test_death_in_the_middle_of_a_request_hands_it_to_the_other_engine(fake_pool, make_request, tmp_path):
    release = tmp_path / "go"
    script = FakeScript(places=2, release_file=str(release))
    policy = RestartPolicy(first_pause=3600, longest_pause=3600)
    async with fake_pool(script, script, policy=policy) as pool:
        states = []
        pool.on_change = lambda: states.append(pool.state)
        request, other = (
            make_request("a", "[fake:seconds=3][fake:hold]"),
            make_request("b", "[fake:seconds=3][fake:hold]"),
        )
        beside = await Reader(pool, other).until(Finished | Started)
        async with contextlib.aclosing(pool.events(request)) as stream:
            chunk = await first_chunk(stream)
            victim = pool.engines[1]
            os.kill(victim.pid, signal.SIGKILL)
            await victim.wait_until("restarting")
            release.touch()
            rest = [event async for event in stream]
        assert chunk.pcm + audio(rest) == fake_pcm(request)
        assert rest[-1].stats.retries == 1
        assert homes(rest) == [0]
        assert audio(await beside.end()) == fake_pcm(other)
        assert homes(beside.events) == [0]
        assert set(states) == {"ready"}
        await victim.wait_until("ready")
        assert pool.places == 4


async def test_broken_engine_does_not_stop_the_others(fake_pool, make_request):
    async with fake_pool(FakeScript(directives="[fake:load_error]"), FakeScript()) as pool:
        assert [engine.state for engine in pool.engines] == ["broken", "ready"]
        assert (pool.state, pool.problem.code, pool.places) == ("ready", "checkpoint_missing_file", 1)
        requests = [make_request(name) for name in "abc"]
        results = await asyncio.gather(*(collect(pool, request) for request in requests))
        assert [audio(events) for events in results] == [fake_pcm(request) for request in requests]
        assert [view.state for view in pool.views()] == ["broken", "ready"]


async def test_all_broken_is_told_with_the_reason(fake_pool, make_request):
    script = FakeScript(directives="[fake:load_error]")
    async with fake_pool(script, script, wait=False) as pool:
        early = await collect(pool, make_request("early"))
        assert pool.state == "broken"
        late = await collect(pool, make_request("late"))
        assert [event.code for event in early + late] == ["checkpoint_missing_file"] * 2
        assert (await pool.stats(), pool.latest_stats, pool.facts, pool.places) == (None, None, None, 0)


async def test_engine_given_up_passes_its_requests_on(fake_pool, make_request, tmp_path):
    release = tmp_path / "go"
    script = FakeScript(release_file=str(release))
    async with fake_pool(script, script, policy=RestartPolicy(max_deaths=0)) as pool:
        reader = await Reader(pool, make_request("a", "[fake:hold]")).until(Started)
        os.kill(pool.engines[0].pid, signal.SIGKILL)
        await pool.engines[0].wait_until("broken")
        release.touch()
        assert audio(await reader.end()) == fake_pcm(reader.request)
        assert homes(reader.events) == [0, 1]


async def test_request_waits_for_the_first_engine_that_gets_ready(fake_pool, make_request):
    async with fake_pool(FakeScript(directives="[fake:load_hang]"), FakeScript(), wait=False) as pool:
        assert pool.state == "starting"
        request = make_request("a")
        events = await collect(pool, request)
        assert (homes(events), audio(events)) == ([1], fake_pcm(request))


async def test_cancel_wherever_the_request_is(fake_pool, make_request):
    script = FakeScript(places=2, directives="[fake:hold]")
    async with fake_pool(script, script, wait=False) as pool:
        waiting = Reader(pool, make_request("waiting"))
        await asyncio.sleep(0)
        await pool.cancel("waiting")
        assert kinds(await waiting.end()) == [Cancelled]
        for engine in pool.engines:
            await engine.wait_until()
        readers = [await Reader(pool, make_request(f"r{number}")).until(Started) for number in range(3)]
        await pool.cancel("r1")
        assert kinds(await readers[1].end())[-1] is Cancelled
        readers[0].task.cancel()
        await asyncio.wait([readers[0].task])
        await pool.cancel("never seen")
        assert sum(view.requests for view in pool.views()) == 1
        stats = await pool.stats()
        assert (stats.running, stats.waiting) == (1, 0)


@pytest.mark.parametrize("engines", [1, 2])
async def test_one_that_kills_processes_is_found_and_takes_no_other_with_it(fake_pool, make_request, engines):
    """All of them are in work beside it when it strikes, the first and the second time."""
    scripts = [FakeScript(places=8, step_seconds=0.005)] * engines
    async with fake_pool(*scripts) as pool:
        requests = [make_request(f"r{number}", "[fake:seconds=8]") for number in range(5)]
        poison = make_request("poison", "[fake:die_always]")
        results = await asyncio.gather(*(collect(pool, request) for request in [*requests[:3], poison, *requests[3:]]))
        assert pool.restarts <= 3
    bad = results.pop(3)
    assert kinds(bad)[-1] is Failed
    assert bad[-1].code == "engine_died"
    assert [audio(events) for events in results] == [fake_pcm(request) for request in requests]
    assert all(kinds(events)[-1] is Finished for events in results)


async def test_suspect_beside_which_another_one_kills_the_process_is_not_blamed(fake_pool, make_request, tmp_path):
    release = tmp_path / "go"
    async with fake_pool(FakeScript(places=4, release_file=str(release))) as pool:
        innocent = await Reader(pool, make_request("innocent", "[fake:hold]")).until(Started)
        readers = [innocent]
        for number in range(2):
            readers.append(Reader(pool, make_request(f"bad {number}", "[fake:die]")))
            await innocent.until(HandedOver, times=number + 2)
        release.touch()
        for reader in readers:
            assert audio(await reader.end()) == fake_pcm(reader.request)
        assert pool.restarts == 2


@pytest.mark.parametrize("engines", [1, 2])
async def test_suspect_gets_an_engine_for_itself_under_full_load(fake_pool, make_request, engines):
    async with fake_pool(*[FakeScript(places=4, step_seconds=0.002)] * engines) as pool:
        poison = [make_request(f"poison {number}", "[fake:die_always]") for number in range(2)]
        requests = [make_request(f"r{number}", f"[fake:seconds={number % 5 + 1}]") for number in range(40)]
        order = [*requests[:5], poison[0], *requests[5:20], poison[1], *requests[20:]]
        results = await asyncio.gather(*(collect(pool, request) for request in order))
    for request, events in zip(order, results, strict=True):
        if request.id.startswith("poison"):
            assert events[-1].code == "engine_died"
        else:
            assert audio(events) == fake_pcm(request)


async def test_restart_takes_healthy_engines_one_after_another(fake_pool, make_request):
    script = FakeScript(places=2, step_seconds=0.005)
    async with fake_pool(script, script, script) as pool:
        pids, states = pool.pids, []
        pool.on_change = lambda: states.append([engine.state for engine in pool.engines])
        readers = [
            await Reader(pool, make_request(f"r{number}", "[fake:seconds=5]")).until(Started) for number in range(6)
        ]
        await pool.restart()
        for reader in readers:
            assert audio(await reader.end()) == fake_pcm(reader.request)
        while pool.restarts < 3 or [engine.state for engine in pool.engines] != ["ready"] * 3:
            await pool._changed.wait()
        assert set(pids).isdisjoint(pool.pids)
        assert all(sum(state != "ready" for state in each) <= 1 for each in states)


async def test_restart_of_one_engine_leaves_the_others_alone(fake_pool):
    async with fake_pool(FakeScript(), FakeScript()) as pool:
        first, second = pool.pids
        await pool.restart(1)
        await pool.engines[1].wait_until("ready")
        assert pool.pids[0] == first
        assert pool.pids[1] != second


async def test_restart_mends_the_broken_ones_first(fake_pool, tmp_path, monkeypatch):
    async with fake_pool(FakeScript(), FakeScript(), policy=RestartPolicy(max_deaths=0)) as pool:
        os.kill(pool.engines[0].pid, signal.SIGKILL)
        await pool.engines[0].wait_until("broken")
        healthy = pool.pid
        await pool.restart()
        assert [engine.state for engine in pool.engines] == ["starting", "ready"]
        assert pool.engines[1].pid == healthy
        await pool.engines[1].wait_until("restarting")
        assert pool.engines[0].state == "ready"
        await pool.engines[1].wait_until("ready")
        assert (pool.problem, pool.state) == (None, "ready")


async def test_close_ends_everything(fake_pool, make_request):
    script = FakeScript(directives="[fake:hold]")
    async with fake_pool(script, script) as pool:
        readers = [await Reader(pool, make_request(f"r{number}")).until(HandedOver) for number in range(3)]
        await pool.close()
        assert [(await reader.end())[-1].code for reader in readers] == ["engine_not_ready"] * 3
        assert (pool.state, pool.pids) == ("stopped", ())
        assert (await collect(pool, make_request("late")))[-1].code == "engine_not_ready"
        await pool.close()


def test_facts_and_stats_of_several_are_joined():
    one = EngineFacts("m", "s", "NVIDIA H200", {"llm": "bfloat16"}, {"llm": 5}, {"llm": 10}, 3.0, places=64)
    two = EngineFacts("m", "s", "NVIDIA H200", {"llm": "bfloat16"}, {"llm": 5}, {"llm": 10}, 4.0, places=32)
    other = EngineFacts("m", "s", "NVIDIA L4", {}, {}, {}, 1.0, places=8, warnings=("slow",))
    assert joined_facts([]) is None
    assert joined_facts([one]) is one
    both = joined_facts([one, two])
    assert (both.device, both.places, both.load_seconds, both.memory) == ("2 × NVIDIA H200", 96, 4.0, {"llm": 10})
    assert joined_facts([one, other]).device == "NVIDIA H200, NVIDIA L4"
    assert joined_facts([one, other]).warnings == ("slow",)
    failed = replace(two, self_test=SelfTest(1.0, Notice("self_test_flow", "No.")))
    assert (both.degraded, joined_facts([one, failed]).degraded) == (None, failed.degraded)
    first, second = (
        EngineStats(1, 2, 3, 4, 5, extra={"a": 1.0}),
        EngineStats(1, 1, 1, 1, 1, 7, extra={"a": 1.0, "b": 2.0}),
    )
    assert joined_stats([]) is None
    assert joined_stats([first, second]) == EngineStats(2, 3, 4, 5, 6, 7, extra={"a": 2.0, "b": 2.0})
