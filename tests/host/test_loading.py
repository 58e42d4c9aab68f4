"""How far a load is, and an end that is no death."""

import asyncio
import contextlib
import io
import pickle

import pytest
import torch
from test_client import audio, collect, first_chunk, gone, one

from cosyui.engine.config import EngineConfig
from cosyui.engine.loading import BEGINS, LoadProgress, Steps
from cosyui.host.config import FakeScript, HostConfig
from cosyui.host.fake_sound import fake_pcm
from cosyui.host.messages import LoadFailed, Start
from cosyui.host.stream import HandedOver
from cosyui.host.worker import Worker


def test_shares_grow_whatever_a_load_leaves_out():
    told = []
    step = Steps(told.append)
    for stage, part in (("files", 0.0), ("weights", 0.0), ("weights", 0.5), ("precision", 0.5), ("kernels", 2.0)):
        step(stage, part)
    assert [progress.stage for progress in told] == ["files", "weights", "weights", "precision", "kernels"]
    shares = [progress.share for progress in told]
    assert shares == sorted(shares)
    assert shares[1] < shares[2] < BEGINS["encoders"]
    assert shares[-1] == BEGINS["self_test"]
    step("ready")
    assert told[-1] == LoadProgress("ready", 1.0)


@pytest.mark.anyio
async def test_progress_is_that_of_the_slowest_engine(fake_pool, tmp_path):
    release = tmp_path / "go"
    scripts = [
        FakeScript(release_file=str(release), directives=f"[fake:load_hold={stage}]") for stage in ("kernels", "files")
    ]
    async with fake_pool(*scripts, wait=False) as pool:
        assert pool.progress == LoadProgress("process", 0.0)
        for engine, stage in zip(pool.engines, ("kernels", "files"), strict=True):
            while engine.progress.stage != stage:
                await engine._changed.wait()
        assert pool.progress == LoadProgress("files", BEGINS["files"])
        release.touch()
        await pool.wait_until()
        assert pool.progress is None


@pytest.mark.anyio
async def test_requests_survive_an_unload_and_load_at_once(fake_client, make_request, tmp_path):
    release = tmp_path / "go"
    async with fake_client(release_file=str(release)) as client:
        request, pid = make_request("a", "[fake:hold]"), client.pid
        async with contextlib.aclosing(client.events(request)) as stream:
            chunk = await first_chunk(stream)
            await client.unload()
            assert gone(pid, 0)
            release.touch()
            rest = [event async for event in stream]
        assert chunk.pcm + audio(rest) == fake_pcm(request)
        assert [event.attempt for event in rest if isinstance(event, HandedOver)] == [2]
        assert (client.state, client.restarts, one(client).residents.unfinished) == ("ready", 0, [])


@pytest.mark.anyio
async def test_an_unloaded_engine_is_gone_and_wakes_for_a_request(fake_client, make_request):
    async with fake_client() as client:
        stats = asyncio.create_task(client.stats())
        await asyncio.sleep(0)
        await client.unload()
        await client.unload()
        assert (client.state, client.pid, client.latest_stats, client.progress) == ("unloaded", None, None, None)
        assert await client.clear() in (None, [])
        await stats
        request = make_request("a")
        assert audio(await collect(client, request)) == fake_pcm(request)
        assert client.restarts == 0


@pytest.mark.anyio
async def test_closing_a_lazy_engine_ends_it(fake_client, make_request):
    async with fake_client() as client:
        await client.unload()
        await client.close()
        assert client.state == "stopped"
        assert [event.code for event in await collect(client, make_request("a"))] == ["engine_not_ready"]
        client.load()
        assert client.pid is None


def test_a_model_without_room_is_told_with_figures_and_ends_the_load(monkeypatch):
    def full(*_):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 260.00 MiB. GPU 0 has ...")

    monkeypatch.setattr("cosyui.engine.engine.Engine", full)
    out = io.BytesIO()
    worker = Worker(out)
    worker.inbox.put(Start(HostConfig(EngineConfig(model="embedded", device="cpu"))))
    worker.run()
    told = pickle.loads(out.getvalue())
    assert isinstance(told, LoadFailed)
    assert told.error.code == "out_of_memory"
    for words in ("260.00 MiB more were needed", "MiB were free", "restart the engine"):
        assert words in told.error.message
