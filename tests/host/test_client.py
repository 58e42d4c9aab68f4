"""The engine client against a real child process with the fake engine in it."""

import asyncio
import contextlib
import os
import select
import signal
import subprocess
import sys
import textwrap

import pytest

from cosyui.engine.config import EngineConfig
from cosyui.engine.request import AudioChunk, Cancelled, Failed, Finished, Progress, Started
from cosyui.errors import CheckpointError
from cosyui.host.client import EngineClient
from cosyui.host.config import HostConfig
from cosyui.host.fake_sound import fake_pcm
from cosyui.host.pool import EnginePool
from cosyui.host.stream import HandedOver
from cosyui.host.supervision import RestartPolicy

pytestmark = pytest.mark.anyio


async def collect(client, request):
    async with contextlib.aclosing(client.events(request)) as events:
        return [event async for event in events]


def audio(events):
    return b"".join(event.pcm for event in events if isinstance(event, AudioChunk))


def kinds(events):
    return [type(event) for event in events if not isinstance(event, AudioChunk | Progress)]


async def first_chunk(events):
    async for event in events:
        if isinstance(event, AudioChunk):
            return event
    raise AssertionError("no chunk came")


def one(client):
    """The engine of a pool of one."""
    return client.engines[0] if isinstance(client, EnginePool) else client


def gone(pid, seconds=10.0):
    """True as soon as the process has ended; also for one that is not our child."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([handle], [], [], seconds)[0])
    finally:
        os.close(handle)


async def test_audio_arrives_whole_and_in_order(fake_client, make_request):
    async with fake_client() as client:
        request = make_request("a", "[fake:seconds=2][fake:chunks=40]")
        events = await collect(client, request)
    chunks = [event for event in events if isinstance(event, AudioChunk)]
    assert kinds(events) == [HandedOver, Started, Finished]
    assert [chunk.index for chunk in chunks] == list(range(40))
    assert audio(events) == fake_pcm(request)
    assert events[-1].stats.retries == 0


async def test_requests_at_once_keep_their_own_audio(fake_client, make_request):
    async with fake_client() as client:
        requests = [make_request(f"r{number}", "x" * 10 * number) for number in range(1, 5)]
        results = await asyncio.gather(*(collect(client, request) for request in requests))
    assert [audio(events) for events in results] == [fake_pcm(request) for request in requests]


async def test_kill_during_a_request_gives_one_retry_without_repeated_audio(fake_client, make_request, tmp_path):
    release = tmp_path / "go"
    async with fake_client(release_file=str(release)) as client:
        request = make_request("a", "[fake:seconds=3][fake:hold]")
        pid = client.pid
        async with contextlib.aclosing(client.events(request)) as stream:
            chunk = await first_chunk(stream)
            os.kill(pid, signal.SIGKILL)
            release.touch()
            rest = [event async for event in stream]
        assert chunk.pcm + audio(rest) == fake_pcm(request)
        assert kinds(rest) == [HandedOver, Finished]
        assert rest[-1].stats.retries == 1
        assert client.restarts == 1
        assert client.pid not in (None, pid)


async def test_second_death_is_a_clear_error_and_the_next_request_works(fake_client, make_request):
    async with fake_client() as client:
        events = await collect(client, make_request("a", "[fake:die_always]"))
        assert kinds(events) == [HandedOver, Started, HandedOver, Failed]
        assert events[-1].code == "engine_died"
        assert "was killed by SIGKILL" in events[-1].message
        assert "twice" in events[-1].message
        following = make_request("b")
        assert audio(await collect(client, following)) == fake_pcm(following)


@pytest.mark.parametrize(("order", "code"), [("oom", "out_of_memory"), ("fail=output_bad", "output_bad")])
async def test_failure_of_a_request_leaves_the_process_alone(fake_client, make_request, order, code):
    async with fake_client() as client:
        events = await collect(client, make_request("a", f"[fake:{order}]"))
        assert events[-1].code == code
        assert kinds(await collect(client, make_request("b")))[-1] is Finished
        assert client.restarts == 0


async def test_closing_the_iterator_cancels_in_the_engine(fake_client, make_request):
    async with fake_client() as client:
        async with contextlib.aclosing(client.events(make_request("a", "[fake:hold]"))) as stream:
            await first_chunk(stream)
        # The engine works on one at a time: this one can only finish if the held one is gone.
        assert kinds(await collect(client, make_request("b")))[-1] is Finished
        stats = await client.stats()
        assert (stats.running, stats.waiting, stats.finished) == (0, 0, 1)


async def test_cancel_from_elsewhere_ends_the_stream(fake_client, make_request):
    async with fake_client() as client:
        async with contextlib.aclosing(client.events(make_request("a", "[fake:hold]"))) as stream:
            await first_chunk(stream)
            await client.cancel("a")
            assert kinds([event async for event in stream]) == [Cancelled]
        await client.cancel("a")
        await client.cancel("never seen")


async def test_cancel_while_the_engine_still_loads(fake_client, make_request):
    async with fake_client(wait=False, directives="[fake:load_hang]") as client:
        task = asyncio.create_task(collect(client, make_request("a")))
        await asyncio.sleep(0)
        assert client.state == "starting"
        await client.cancel("a")
        assert kinds(await task) == [Cancelled]


async def test_request_submitted_while_loading_is_done_after_it(fake_client, make_request):
    async with fake_client(wait=False) as client:
        assert client.state == "starting"
        request = make_request("a")
        assert audio(await collect(client, request)) == fake_pcm(request)


async def test_load_error_comes_back_unchanged(fake_client, make_request):
    async with fake_client(directives="[fake:load_error]") as client:
        assert client.state == "broken"
        assert isinstance(client.problem, CheckpointError)
        assert client.problem.code == "checkpoint_missing_file"
        assert client.restarts == 0
        events = await collect(client, make_request("a"))
        assert [(event.code, event.message, event.status) for event in events] == [
            ("checkpoint_missing_file", client.problem.message, 503)
        ]
        assert await client.stats() is None


async def test_real_engine_tells_why_its_model_cannot_be_loaded(make_request, tmp_path):
    client = EngineClient(HostConfig(EngineConfig(str(tmp_path / "nothing here"), device="cpu")))
    async with asyncio.timeout(120):
        try:
            await client.start()
            assert await client.wait_until() == "broken"
        finally:
            await client.close()
    assert isinstance(client.problem, CheckpointError)
    assert client.problem.code == "model_unknown"
    assert "nothing here" in client.problem.message


async def test_process_that_keeps_dying_is_given_up_and_its_last_words_are_kept(
    fake_client, make_request, tmp_path, monkeypatch
):
    script = tmp_path / "python"
    script.write_text("#!/bin/sh\necho first line >&2\necho driver exploded >&2\nexit 3\n")
    script.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(script))
    policy = RestartPolicy(max_failed_starts=3, first_pause=0.01, longest_pause=0.01)
    async with fake_client(policy=policy, wait=False) as client:
        events = await collect(client, make_request("a"))  # waits for a start, then shares the verdict
        assert client.state == "broken"
        assert client.restarts == 2
        assert client.problem.code == "engine_died"
        assert "exit code 3" in client.problem.message
        assert "driver exploded" in client.problem.message
        assert one(client).last_words == ("first line", "driver exploded")
        assert [event.code for event in events] == ["engine_died"]

        monkeypatch.undo()
        await client.restart()
        assert await client.wait_until() == "ready"
        assert client.problem is None
        assert kinds(await collect(client, make_request("b")))[-1] is Finished


async def test_asked_restart_replaces_the_process_and_keeps_requests(fake_client, make_request, tmp_path):
    release = tmp_path / "go"
    async with fake_client(release_file=str(release), policy=RestartPolicy(max_deaths=0)) as client:
        request = make_request("a", "[fake:hold]")
        pid = client.pid
        async with contextlib.aclosing(client.events(request)) as stream:
            chunk = await first_chunk(stream)
            await client.restart()
            release.touch()
            rest = [event async for event in stream]
        assert chunk.pcm + audio(rest) == fake_pcm(request)
        assert client.pid != pid
        assert client.state == "ready"


async def test_death_while_idle_is_noticed_and_mended(fake_client, make_request):
    async with fake_client() as client:
        os.kill(client.pid, signal.SIGKILL)
        await client.wait_until("restarting")
        assert client.latest_stats is None
        request = make_request("a")
        events = await collect(client, request)  # waits for the new process
        assert audio(events) == fake_pcm(request)
        assert (events[-1].stats.retries, client.restarts) == (0, 1)


async def test_restart_cuts_a_pause_short(fake_client, make_request):
    async with fake_client(policy=RestartPolicy(first_pause=3600, longest_pause=3600)) as client:
        await collect(client, make_request("a", "[fake:die_always]"))
        assert client.state == "restarting"
        await client.restart()
        assert await client.wait_until() == "ready"


async def test_close_ends_requests_and_a_hanging_process(fake_client, make_request, monkeypatch):
    async with fake_client() as client:
        pid = client.pid
        monkeypatch.setattr("cosyui.host.process.GRACE", 0.2)
        async with contextlib.aclosing(client.events(make_request("a", "[fake:hang]"))) as stream:
            await first_chunk(stream)
            await client.close()
            assert gone(pid, 0)
            assert [event.code async for event in stream] == ["engine_not_ready"]
        await client.close()
        assert [event.code for event in await collect(client, make_request("b"))] == ["engine_not_ready"]


async def test_ctrl_c_does_not_reach_the_engine(fake_client, make_request):
    async with fake_client() as client:
        assert os.getsid(client.pid) != os.getsid(0)
        os.kill(client.pid, signal.SIGINT)
        assert kinds(await collect(client, make_request("a")))[-1] is Finished
        assert client.restarts == 0


async def test_prints_in_the_engine_do_not_garble_the_pipe(fake_client, make_request):
    async with fake_client() as client:
        request = make_request("a", "[fake:noise]")
        process = one(client)._process
        assert audio(await collect(client, request)) == fake_pcm(request)
        await client.close()
        assert {"noise on stdout", "noise on stderr"} <= set(process.tail)


async def test_same_id_twice_is_refused(fake_client, make_request):
    async with fake_client() as client, contextlib.aclosing(client.events(make_request("a", "[fake:hold]"))) as stream:
        await first_chunk(stream)
        with pytest.raises(ValueError, match="already running"):
            await collect(client, make_request("a"))


@pytest.mark.parametrize("directives", ["", "[fake:load_hang]"], ids=["idle", "loading"])
def test_engine_ends_when_the_server_is_killed(directives):
    server = textwrap.dedent(f"""
        import asyncio
        from cosyui.engine.config import EngineConfig
        from cosyui.host.client import EngineClient
        from cosyui.host.config import FakeScript, HostConfig

        async def main():
            client = EngineClient(HostConfig(EngineConfig("none"), "fake", FakeScript(directives={directives!r})))
            await client.start()
            if not {directives!r}:
                await client.wait_until()
            print(client.pid, flush=True)
            await asyncio.Event().wait()

        asyncio.run(main())
    """)
    with subprocess.Popen([sys.executable, "-c", server], stdout=subprocess.PIPE, text=True) as parent:
        line = parent.stdout.readline()
        parent.kill()
    child = int(line)
    assert gone(child)
