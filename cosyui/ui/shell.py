"""What stands between the network and Gradio: closed routes, the page's first script, a few headers."""

from __future__ import annotations

from pathlib import Path

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from cosyui.ui.login import LOGIN

SCRIPTS = tuple(Path(__file__).with_name(name) for name in ("first.js", "player.js"))
_API = "/gradio_api"
_CLOSED = (
    "/monitoring",
    "/config",
    "/openapi.json",
    LOGIN,
    "/logout",
    f"{_API}/info",
    f"{_API}/openapi.json",
    f"{_API}/api/",
    f"{_API}/call/",
    f"{_API}/proxy=",
    f"{_API}/file=http:",
    f"{_API}/file=https:",
    f"{_API}/deep_link",
    f"{_API}/dev/",
    f"{_API}/vibe-",
    f"{_API}/run-history/",
    f"{_API}/runs",
    f"{_API}/profiling/",
)
"""Routes of Gradio that this page does not use. Some would fetch foreign addresses or tell about the inside."""


class Shell:
    """ASGI middleware. Puts its scripts at the top of the page: the first must run before Gradio picks its language.

    ``login``: the page has one.
    """

    def __init__(self, app: ASGIApp, login: bool = False) -> None:
        self._app = app
        self._closed = tuple(path for path in _CLOSED if not (login and path == LOGIN))
        self._script = b"".join(b"<script>" + path.read_bytes() + b"</script>" for path in SCRIPTS)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
        elif scope["path"].startswith(self._closed):
            await PlainTextResponse("Not found", status_code=404)(scope, receive, send)
        elif scope["path"] == "/" and scope["method"] == "GET":
            await self._page(scope, receive, send)
        else:
            await self._app(scope, receive, _with_headers(send))

    async def _page(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Collect the page, add the script, send it on. Asked for uncompressed, so that there is text to add to."""
        plain = [(name, value) for name, value in scope["headers"] if name != b"accept-encoding"]
        start: Message | None = None
        body = bytearray()

        async def collect(message: Message) -> None:
            nonlocal start
            if message["type"] == "http.response.start":
                start = message
            if message["type"] != "http.response.body":
                return
            body.extend(message.get("body", b""))
            if not message.get("more_body", False):
                assert start is not None
                await self._finish(start, bytes(body), send)

        await self._app({**scope, "headers": plain}, receive, _with_headers(collect))

    async def _finish(self, start: Message, body: bytes, send: Send) -> None:
        if Headers(raw=start["headers"]).get("content-type", "").startswith("text/html"):
            body = body.replace(b"<head>", b"<head>" + self._script, 1)
            headers = MutableHeaders(raw=list(start["headers"]))
            headers["content-length"] = str(len(body))
            start = {**start, "headers": headers.raw}
        await send(start)
        await send({"type": "http.response.body", "body": body})


def _with_headers(send: Send) -> Send:
    async def add(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(raw=list(message["headers"]))
            headers["x-content-type-options"] = "nosniff"
            headers["referrer-policy"] = "same-origin"
            message = {**message, "headers": headers.raw}
        await send(message)

    return add
