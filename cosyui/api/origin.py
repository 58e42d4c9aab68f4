"""Requests that a page of another site makes in somebody's browser: they change nothing here and read nothing."""

from __future__ import annotations

import ipaddress
from typing import Any

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from cosyui.api.problems import ApiError, error_object
from cosyui.service.rights import UNPROVEN, is_loopback
from cosyui.settings import Settings

HARMLESS = ("GET", "HEAD", "OPTIONS")
EVERYWHERE = ("0.0.0.0", "::")  # noqa: S104
PORTS = {"http": 80, "https": 443}
PASSED_ON = ("forwarded", "via", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-real-ip")
"""What a proxy adds. Whose address is loopback all the same cannot prove that he sits here."""
HEALTH = "/health/"
"""Answers to every name: it tells nothing, and whoever asks restarts what does not answer."""
API = "/v1/"
"""Pages of the sites in COSYUI_CORS_ORIGINS may use it; no cookie counts there, only a key."""


class SameOrigin:
    """ASGI middleware, the outermost. Does not answer to foreign names, and takes orders from our own pages only.

    A foreign name is one that somebody else's DNS may point here: then his page would count as ours. Where the server
    listens on all addresses and no names are set, the page is shown under any, but nobody is at this machine then.
    """

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self._app = app
        self._listed = settings.host_names
        self._allowed = settings.api_origins
        self._names = {_split(name)[0] for name in settings.host_names} | {"localhost", settings.host.lower()}
        self._any_name = settings.host in EVERYWHERE and not settings.host_names

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        known = self._knows(headers.get("host"))
        if not known and not self._any_name and not scope["path"].startswith(HEALTH):
            message = "This server does not answer to this name. Its operator can add it: COSYUI_HOSTS=name,other-name."
            await _refuse(421, "host_unknown", message, scope, receive, send)
            return
        foreign = self._foreign(headers) and not self._is_allowed(scope["path"], headers)
        if foreign and (scope["type"] == "websocket" or scope["method"] not in HARMLESS):
            message = (
                "This came from a page of another site. Open this server's own page; if it is behind a proxy, "
                "its operator names the proxy's address in COSYUI_HOSTS."
            )
            await _refuse(403, "origin_foreign", message, scope, receive, send)
            return
        if foreign:  # Gradio would allow it to read the answer
            scope = {**scope, "headers": [(name, value) for name, value in scope["headers"] if name != b"origin"]}
        client = scope.get("client")
        if client is not None and is_loopback(client[0]) and (not known or any(name in headers for name in PASSED_ON)):
            scope = {**scope, "client": (UNPROVEN, client[1])}
        await self._app(scope, receive, send)

    def _knows(self, host: str | None) -> bool:
        """No browser leaves the header away."""
        if host is None:
            return True
        name, _ = _split(host.lower())
        return name in self._names or _is_address(name)

    def _is_allowed(self, path: str, headers: Headers) -> bool:
        return path.startswith(API) and headers.get("origin", "").lower() in self._allowed

    def _foreign(self, headers: Headers) -> bool:
        origin = headers.get("origin")
        if origin is None:
            return headers.get("sec-fetch-site") in ("cross-site", "same-site")
        scheme, _, netloc = origin.lower().partition("://")
        if scheme not in PORTS:  # also "null"
            return True
        default, host = PORTS[scheme], headers.get("host", "").lower()
        return netloc not in self._listed and _split(netloc, default) != _split(host, default)


def _split(netloc: str, port: int | None = None) -> tuple[str, str]:
    """Name and port, which is ``port`` if none is given."""
    name, colon, given = netloc.rpartition(":")
    if not colon or netloc.endswith("]"):
        name, given = netloc, ""
    return name.removeprefix("[").removesuffix("]").removesuffix("."), given or str(port or "")


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


async def _refuse(status: int, code: str, message: str, scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "websocket":
        await receive()  # the handshake; refused before it is accepted, it is answered with 403
        await send({"type": "websocket.close", "code": 1008, "reason": code})
        return
    body: dict[str, Any] = {"code": code, "message": message}
    if scope["path"].startswith(API):
        body = {"error": error_object(ApiError(code, message, status=status))}
    answer = JSONResponse(body, status, {"connection": "close"})
    await answer(scope, receive, send)
