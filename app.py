"""The server: settings, engines, service, health routes and page, put together on one port."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import errno
import logging
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import uvicorn
from fastapi import FastAPI

from cosyui import __version__
from cosyui.api.gate import Gate
from cosyui.api.health import health_router
from cosyui.api.metrics import metrics_router
from cosyui.api.origin import SameOrigin
from cosyui.api.problems import not_found
from cosyui.api.v1 import V1
from cosyui.errors import CosyuiError, SetupError
from cosyui.host.config import HostConfig
from cosyui.host.devices import find_devices
from cosyui.host.engines import Engines
from cosyui.host.pool import EnginePool
from cosyui.ops.logs import log, setup_logging
from cosyui.service.clips import ClipStore
from cosyui.service.outputs import OutputStore
from cosyui.service.scratch import scratch_folder
from cosyui.service.service import SynthesisService, running
from cosyui.settings import PREFIX, Settings
from cosyui.speech.clip.transcribe import find_transcriber
from cosyui.speech.text.lexicon import Lexicon

logger = logging.getLogger("cosyui.app")
BAD_SETUP = 2
"""Exit code when the server cannot start as configured."""
CLIPS, UPLOADS = "clips", "uploads"
"""Folders of temporary files."""
Wait = Callable[[], Coroutine[Any, Any, None]]
GRACE_SECONDS = 2
"""How long what was made last may be fetched when the server goes down, and then how long open connections may finish:
a page keeps one all the time."""


class Site(NamedTuple):
    """The application, whose lifespan starts and stops its service. ``drain`` waits until what was asked for is

    answered, as long as the settings allow; ``farewell`` ends what the page keeps open.
    """

    app: FastAPI
    drain: Wait
    farewell: Wait


class Server(uvicorn.Server):
    """Ends with code 0 on SIGINT and SIGTERM; uvicorn alone would raise the signal again after its clean shutdown.

    ``drain`` is awaited when the first signal comes, and it answers as before until then; a second signal does not
    wait. ``farewell`` comes after it: a page keeps connections open that would otherwise be cut off.
    """

    def __init__(self, config: uvicorn.Config, drain: Wait, farewell: Wait) -> None:
        super().__init__(config)
        self._drain = drain
        self._farewell = farewell
        self._leaving: asyncio.Task[None] | None = None

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        signals = (signal.SIGINT, signal.SIGTERM)
        for number in signals:
            loop.add_signal_handler(number, self._leave, number)
        try:
            yield
        finally:
            for number in signals:
                loop.remove_signal_handler(number)

    def _leave(self, number: int) -> None:
        if self._leaving is None:
            self._leaving = asyncio.ensure_future(self._drain())
            self._leaving.add_done_callback(lambda _: self._go(number))
        elif not self._leaving.cancel():  # it waits no more
            self.handle_exit(number, None)

    def _go(self, number: int) -> None:
        self._leaving = asyncio.ensure_future(self._farewell())
        self.handle_exit(number, None)


def read_options(arguments: Sequence[str]) -> tuple[Settings, bool]:
    """Options from the command line over COSYUI_* variables, and whether they shall only be checked.

    Raises:
        SetupError: ``setting_unknown`` or ``setting_invalid``.
    """
    parser = argparse.ArgumentParser(
        "app.py", description="CosyUI: voice cloning as a web page.", allow_abbrev=False, exit_on_error=False
    )
    parser.add_argument("--version", action="version", version=f"cosyui {__version__}")
    parser.add_argument("--check", action="store_true", help="check options, port and output folder, then end")
    for name, field in Settings.model_fields.items():
        option, variable = f"--{name.replace('_', '-')}", PREFIX + name.upper()
        parser.add_argument(option, metavar="VALUE", help=f"{field.description} ({variable})".replace("%", "%%"))
    try:
        known, unknown = parser.parse_known_args(arguments)
    except argparse.ArgumentError as error:
        raise SetupError("setting_invalid", f"{error}.") from None
    if unknown:
        raise SetupError("setting_unknown", f"{unknown[0]} is not an option; app.py --help lists them.")
    overrides = vars(known)
    only_check = overrides.pop("check")
    return Settings.load(overrides), only_check


def listen(settings: Settings) -> socket.socket:
    """The bound socket, before anything heavy is started.

    Raises:
        SetupError: ``port_in_use`` or ``setting_invalid``.
    """
    where = f"{settings.host}:{settings.port}"
    try:
        family = socket.getaddrinfo(settings.host, settings.port, type=socket.SOCK_STREAM)[0][0]
        listener = socket.create_server((settings.host, settings.port), family=family, backlog=128)
        # Connections have it from here: asyncio sets it for none that came through such a socket, and then the second
        # half of an answer waits some 40 ms until the first is acknowledged.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return listener
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            message = f"Port {settings.port} is in use. Stop the other program or choose another with --port."
            raise SetupError("port_in_use", message) from None
        raise SetupError("setting_invalid", f"Cannot listen on {where}: {error.strerror}.") from None


def build(settings: Settings, outputs: OutputStore, devices: Sequence[str] = (), scratch: Path | None = None) -> Site:
    """The whole application with engines on this machine: see `assemble`.

    ``scratch`` is a folder for temporary files, ours alone.
    """
    pool = EnginePool(HostConfig.from_settings(settings).on_devices(devices))
    return assemble(make_service(settings, pool, outputs, scratch))


def make_service(
    settings: Settings, engines: Engines, outputs: OutputStore, scratch: Path | None = None
) -> SynthesisService:
    return SynthesisService(
        settings,
        engines,
        outputs,
        ClipStore.from_settings(settings, scratch and scratch / CLIPS),
        find_transcriber(settings.transcriber),
        uploads=scratch and scratch / UPLOADS,
    )


def assemble(service: SynthesisService) -> Site:
    """Page and API of a service."""
    settings = service.settings

    @contextlib.asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with running(service):
            print(f"CosyUI is at {address(settings)}", flush=True)
            yield

    app = FastAPI(title="CosyUI", lifespan=lifespan, docs_url=None, redoc_url=None, openapi_url=None)
    app.add_exception_handler(404, not_found)
    app.include_router(health_router(service))
    v1 = V1(service, service.voices)
    app.include_router(metrics_router(service, v1.gate))
    app.mount("/v1", v1.app())
    farewell = _add_page(app, service) if settings.page else _nobody_to_tell
    app.add_middleware(SameOrigin, settings=settings)
    return Site(app, partial(_drain, service, v1.gate), farewell)


def _add_page(app: FastAPI, service: SynthesisService) -> Wait:
    from cosyui.ui.page import mount  # imported here: Gradio takes seconds, a wrong option should not wait for it
    from cosyui.ui.shell import Shell
    from cosyui.ui.uploads import NamelessUploads

    farewell = mount(app, service)
    app.add_middleware(Shell, login=service.rights.login_needed)
    app.add_middleware(NamelessUploads)
    return farewell


async def _nobody_to_tell() -> None:
    """There is no page."""


async def _drain(service: SynthesisService, gate: Gate) -> None:
    """Takes first, then what is still on its way to those who asked."""
    loop, seconds = asyncio.get_running_loop(), service.settings.drain_seconds
    end = loop.time() + seconds
    busy = await service.drain(seconds) or gate.unfinished
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout_at(end):
            await gate.empty()
    if busy:
        await asyncio.sleep(GRACE_SECONDS)  # pages and jobs fetch what was made last


def address(settings: Settings) -> str:
    host = "127.0.0.1" if settings.host in ("0.0.0.0", "::") else settings.host  # noqa: S104
    return f"http://{f'[{host}]' if ':' in host else host}:{settings.port}"


def serve(settings: Settings, only_check: bool) -> int:
    """Run until a signal comes, or end at once with all that a start needs checked; the exit code.

    Raises:
        SetupError: the port, the output folder, the lexicon or the GPUs cannot be used.
    """
    outputs = OutputStore(settings.outputs_dir)
    outputs.check()
    if settings.lexicon:
        Lexicon.load(settings.lexicon)  # the engine's process reads it for itself; what is wrong with it is told now
    with contextlib.closing(listen(settings)) as listener, scratch_folder() as scratch:
        devices = find_devices(settings)
        if only_check:
            return 0
        # Gradio's own folder for uploads would be one for all users of the machine.
        os.environ["GRADIO_TEMP_DIR"] = str(scratch / UPLOADS)
        site = build(settings, outputs, devices, scratch)
        config = uvicorn.Config(
            site.app,
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=GRACE_SECONDS,
            ws_max_size=2 * settings.body_max_bytes,  # what is a little too large still gets an answer
            ws_per_message_deflate=False,  # sound does not get smaller by it
        )
        server = Server(config, site.drain, site.farewell)
        asyncio.run(server.serve(sockets=[listener]))
        log(logger, logging.INFO, "server_stopped")
        return 0 if server.started else 1


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 2 and one line on stderr when the server cannot start as configured."""
    try:
        settings, only_check = read_options(sys.argv[1:] if arguments is None else arguments)
        setup_logging(settings.log_level)
        return serve(settings, only_check)
    except CosyuiError as error:
        print(f"cosyui: {error}", file=sys.stderr)
        return BAD_SETUP


if __name__ == "__main__":
    sys.exit(main())
