import asyncio
import contextlib

import numpy as np
import pytest

from cosyui.engine.config import EngineConfig
from cosyui.engine.request import Mode, PromptClip, SynthesisRequest
from cosyui.host.client import EngineClient
from cosyui.host.config import FakeScript, HostConfig
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


@pytest.fixture
def fake_client():
    """Context manager of a started client with a fake engine; everything inside must end within LIMIT."""

    @contextlib.asynccontextmanager
    async def start(wait=True, policy=None, **script):
        policy = policy or RestartPolicy(first_pause=0.01, longest_pause=0.02)
        client = EngineClient(HostConfig(EngineConfig("none"), "fake", FakeScript(**script)), policy)
        try:
            async with asyncio.timeout(LIMIT):
                await client.start()
                if wait:
                    await client.wait_until()
                yield client
        finally:
            await client.close()

    return start
