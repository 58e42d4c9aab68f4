import asyncio
import contextlib
import json
import socket

import httpx
import pytest
import uvicorn
from fastapi import FastAPI

from cosyui.api.origin import SameOrigin
from cosyui.api.v1 import V1
from cosyui.host.config import FakeScript
from tests.api.wire import PATIENCE, Wire
from tests.service.conftest import anyio_backend, clip, fake_service, form, new_service  # noqa: F401


def speech(text="A sentence to speak.", **changes):
    """A good body of a request."""
    body = {"model": "cosyui", "input": text, "voice": "en", "response_format": "pcm"} | changes
    return {name: value for name, value in body.items() if value is not ...}


async def until(condition):
    """Returns once the condition is true; fails after a while."""
    async with asyncio.timeout(PATIENCE):
        while not condition():  # noqa: ASYNC110  (there is no event to wait for)
            await asyncio.sleep(0.002)


@contextlib.asynccontextmanager
async def listening(app, listener):
    """uvicorn without its signals and its clock."""
    config = uvicorn.Config(app, log_config=None, access_log=False, lifespan="off")
    config.load()
    server = uvicorn.Server(config)
    server.lifespan = config.lifespan_class(config)
    await server.startup(sockets=[listener])
    try:
        yield
    finally:
        for one in server.servers:
            one.close()
        for connection in list(server.server_state.connections):
            connection.transport.abort()
        await until(lambda: not server.server_state.tasks)


class Site:
    """The API of a service on a port of its own."""

    def __init__(self, service, v1, port):
        self.service, self.v1, self.port = service, v1, port
        self.url = f"http://127.0.0.1:{port}"
        self.http = httpx.AsyncClient(base_url=f"{self.url}/v1/", timeout=PATIENCE, trust_env=False)

    async def speak(self, text="A sentence to speak.", headers=None, **changes):
        return await self.http.post("audio/speech", json=speech(text, **changes), headers=headers)

    async def post(self, content, kind="application/json"):
        return await self.http.post("audio/speech", content=content, headers={"content-type": kind})

    async def ask(self, body, path="/v1/audio/speech", method="POST"):
        """A raw connection on which a request has been sent."""
        data = json.dumps(body).encode()
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        head = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{self.port}\r\nContent-Type: application/json\r\n"
        writer.write(f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data)
        return reader, writer

    @property
    def idle(self):
        """Nothing is in work, and nothing is remembered of it."""
        view = self.service.overview()
        return not (view.running or view.waiting or self.service._drive.jobs or self.v1.gate.unfinished)

    async def job(self, job_id, **headers):
        """How a job is once it has ended."""
        await until(lambda: self.v1.jobs._jobs[job_id].ended)
        return (await self.http.get(f"jobs/{job_id}", headers=headers)).json()


@pytest.fixture
def api(fake_service, tmp_path):  # noqa: F811
    """Context manager of a server with a fake engine; ``fake`` is of its script, what else is given are settings."""

    @contextlib.asynccontextmanager
    async def start(voices=None, wait=True, fake=None, **settings):
        script = FakeScript(release_file=str(tmp_path / "release"), **(fake or {}))
        async with fake_service(script=script, wait=wait, **settings) as service:
            v1 = V1(service, voices or service.voices)
            app = FastAPI(openapi_url=None)
            app.mount("/v1", v1.app())
            app.add_middleware(SameOrigin, settings=service.settings)
            with socket.create_server(("127.0.0.1", 0)) as listener:
                listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # as app.py does
                async with listening(app, listener):
                    site = Site(service, v1, listener.getsockname()[1])
                    yield site
                    await site.http.aclose()

    return start


@pytest.fixture
def release(tmp_path):
    """The file that lets held takes go, once it is there."""
    return tmp_path / "release"


@pytest.fixture
def stream(api):
    """Context manager of a site, and of a maker of wires to it."""

    @contextlib.asynccontextmanager
    async def start(**given):
        async with api(**given) as site:
            app, wires = site.v1.app(), []

            async def connect(**options):
                wire = Wire(app, **options)
                wires.append(wire)
                assert (await wire.sent.get())["type"] == "websocket.accept"
                return wire

            yield site, connect
            for wire in wires:
                wire.leave()
                await wire.task
            await until(lambda: site.idle)

    return start
