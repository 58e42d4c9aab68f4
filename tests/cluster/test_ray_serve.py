"""The whole of it on Ray, where Ray is installed: a replica is killed in the middle, and every answer is right."""

import asyncio
import contextlib
import os
import signal
import socket
import sqlite3
import subprocess
import sys

import httpx
import numpy as np
import psutil
import pytest

from cosyui.engine.request import SAMPLE_RATE
from cosyui.host.fake_sound import tone_hz

pytest.importorskip("ray")
LIMIT = 120.0
SECONDS = 3


@pytest.fixture
def anyio_backend():
    return "asyncio"


@pytest.fixture
def cluster(tmp_path):
    """Two replicas with the fake engine; its address, process and folder."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    settings = {"ENGINE": "fake", "FAKE_PLACES": "2", "TRANSCRIBER": "off", "PORT": str(port), "CLIENT_QUEUE": "10"}
    variables = {f"COSYUI_{name}": value for name, value in settings.items()}
    shares = ["--num-gpus=0", "--num-cpus=0.4", "--front-cpus=0.4", "--min-replicas=2", "--max-replicas=2"]
    process = subprocess.Popen(
        [sys.executable, "-m", "cosyui.serve_ray", *shares],
        cwd=tmp_path,
        env={**os.environ, **variables},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert any("CosyUI is at" in line for line in process.stdout), "it does not start"
        yield f"http://127.0.0.1:{port}", process, tmp_path
    finally:
        process.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(LIMIT / 2)
        process.kill()
        process.wait()


def a_replica(process):
    """One of the processes that have an engine."""
    children = psutil.Process(process.pid).children(recursive=True)
    return next(child for child in children if "ServeReplica:cosyui:Voice" in " ".join(child.cmdline()))


def pitch(pcm):
    wave = np.frombuffer(pcm, "<i2").astype(float)
    spectrum = np.abs(np.fft.rfft(wave * np.hanning(len(wave))))
    return np.argmax(spectrum) * SAMPLE_RATE / len(wave)


@pytest.mark.anyio
async def test_a_killed_replica_costs_no_request(cluster):
    address, process, folder = cluster
    first_sound = asyncio.Event()

    async def take(client, number):
        body = {"model": "cosyui", "voice": "en", "response_format": "pcm", "seed": number}
        body["input"] = f"[fake:slow=0.1][fake:seconds={SECONDS}] take {number}"
        async with client.stream("POST", "/v1/audio/speech", json=body) as answer:
            assert answer.status_code == 200
            pcm = b""
            async for piece in answer.aiter_bytes():
                pcm += piece
                first_sound.set()
            (name,) = answer.headers.get_list("x-request-id")
        assert len(pcm) == 2 * SECONDS * SAMPLE_RATE
        assert abs(pitch(pcm) - tone_hz(name)) < 1

    async with (
        asyncio.timeout(LIMIT),
        httpx.AsyncClient(base_url=address, timeout=LIMIT) as client,
        asyncio.TaskGroup() as takes,
    ):
        for number in range(12):
            takes.create_task(take(client, number))
        await first_sound.wait()
        a_replica(process).kill()
    # The journal is written when the front goes down.
    process.send_signal(signal.SIGINT)
    await asyncio.to_thread(process.wait, LIMIT / 2)
    with contextlib.closing(sqlite3.connect(folder / ".cosyui" / "journal.sqlite")) as journal:
        rows = journal.execute("SELECT outcome, attempts FROM requests").fetchall()
    assert [outcome for outcome, _ in rows] == ["done"] * 12
    assert {attempts for _, attempts in rows} == {1, 2}
