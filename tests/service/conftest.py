import asyncio
import contextlib
import io
import itertools
import wave

import numpy as np
import pytest

from cosyui.engine.config import EngineConfig
from cosyui.host.config import FakeScript, HostConfig
from cosyui.host.pool import EnginePool
from cosyui.host.supervision import RestartPolicy
from cosyui.service.clips import ClipStore
from cosyui.service.outputs import OutputStore
from cosyui.service.service import SynthesisService, running
from cosyui.service.types import TakeForm
from cosyui.settings import Settings

LIMIT = 30.0
_LENGTHS = itertools.count(1)


@pytest.fixture
def anyio_backend():
    return "asyncio"


def wav_bytes(seconds=4.0, rate=16_000):
    time_axis = np.arange(int(seconds * rate)) / rate
    wobble = 0.3 * np.sin(2 * np.pi * 150 * time_axis) * (1 + 0.5 * np.sin(2 * np.pi * 3 * time_axis))
    buffer = io.BytesIO()
    with wave.open(buffer, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes((wobble * 32767).astype("<i2").tobytes())
    return buffer.getvalue()


@pytest.fixture(scope="session")
def clip():
    """Bytes of a good prompt clip."""
    return wav_bytes()


@pytest.fixture
def new_clip():
    """Makes bytes of a good prompt clip that nobody has used before."""
    return lambda: wav_bytes(4.0 + next(_LENGTHS) / 1000)


@pytest.fixture
def form(clip):
    """Makes a good form with the given text, or with other fields changed."""

    def make(text="A sentence to speak.", **changes):
        return TakeForm(**({"text": text, "clip": clip, "transcript": "What the clip says."} | changes))

    return make


@pytest.fixture
def new_service(tmp_path):
    """Makes a service that is not started; keyword arguments are settings."""

    def make(script=None, transcriber=None, engines=1, monitor=None, uploads=None, **settings):
        folders = {name: tmp_path / name.removesuffix("_dir") for name in ("outputs_dir", "clips_dir", "journal")}
        options = Settings.load(folders | {"engine": "fake"} | settings, {})
        policy = RestartPolicy(first_pause=0.01, longest_pause=0.02)
        client = EnginePool([HostConfig(EngineConfig("none"), "fake", script or FakeScript())] * engines, policy)
        clips = ClipStore.from_settings(options)
        outputs = OutputStore(options.outputs_dir)
        return SynthesisService(options, client, outputs, clips, transcriber, monitor, uploads)

    return make


@pytest.fixture
def fake_service(new_service):
    """Context manager of a started service with a fake engine; everything inside must end within LIMIT."""

    @contextlib.asynccontextmanager
    async def start(wait=True, **given):
        async with asyncio.timeout(LIMIT), running(new_service(**given)) as service:
            if wait:
                await service.client.wait_until()
            yield service

    return start
