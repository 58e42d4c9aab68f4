import asyncio
import contextlib

import numpy as np
import pytest

from cosyui.engine.config import EngineConfig
from cosyui.engine.request import Mode, PromptClip, SynthesisRequest
from cosyui.host.client import EngineClient
from cosyui.host.config import FakeScript, HostConfig
from cosyui.host.pool import EnginePool
from cosyui.host.supervision import RestartPolicy

LIMIT = 30.0


@pytest.fixture
def anyio_backend():
    return "asyncio"


@pytest.fixture
def make_request():
    # 10 s at 48 kHz are 1.9 MB: far more than a pipe holds, so a request does not fit into it in one go.
    clip = PromptClip(np.zeros(480_000, np.float32), 48_000, "words")

    def make(request_id, text="a sentence to speak"):
        return SynthesisRequest(request_id, text, Mode.ZERO_SHOT, clip, seed=1)

    return make


@pytest.fixture(params=["client", "pool"])
def fake_client(request):
    """Context manager of a started client with a fake engine; everything inside must end within LIMIT.

    A pool of one engine behaves like the engine alone.
    """

    @contextlib.asynccontextmanager
    async def start(wait=True, policy=None, **script):
        policy = policy or RestartPolicy(first_pause=0.01, longest_pause=0.02)
        config = HostConfig(EngineConfig("none"), "fake", FakeScript(**script))
        client = EngineClient(config, policy) if request.param == "client" else EnginePool([config], policy)
        async with running(client, wait):
            yield client

    return start


@pytest.fixture
def fake_pool():
    """Context manager of a started pool, one fake engine for each script; all of them are waited for."""

    @contextlib.asynccontextmanager
    async def start(*scripts, wait=True, policy=None):
        policy = policy or RestartPolicy(first_pause=0.01, longest_pause=0.02)
        pool = EnginePool([HostConfig(EngineConfig("none"), "fake", script) for script in scripts], policy)
        async with running(pool, wait):
            if wait:
                for engine in pool.engines:
                    await engine.wait_until()
            yield pool

    return start


@contextlib.asynccontextmanager
async def running(client, wait):
    try:
        async with asyncio.timeout(LIMIT):
            await client.start()
            if wait:
                await client.wait_until()
            yield
    finally:
        await client.close()
