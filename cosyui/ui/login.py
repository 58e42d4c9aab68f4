"""The login of the page: Gradio's own form and cookies, behind a gate that every route of the page passes."""

from __future__ import annotations

import gradio as gr
from starlette.requests import HTTPConnection
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from cosyui.errors import TooManyError
from cosyui.service.rights import UNPROVEN, Rights

LOGIN = "/login"
_OPEN = ("/assets/", "/static/", "/svelte/", "/theme.css", "/gradio_api/theme.css", "/favicon.ico", "/manifest.json")
"""What the form itself is made of."""


class LoginGate:
    """ASGI middleware of Gradio's own application, some of whose routes do not ask who comes.

    Bounds the attempts, also: Gradio asks whether a name and a password are right, not how often.
    """

    def __init__(self, app: ASGIApp, server: gr.routes.App, rights: Rights) -> None:
        self._app = app
        self._server = server
        self._rights = rights

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif scope["type"] == "http" and (scope["path"], scope["method"]) == (LOGIN, "POST"):
            await self._log_in(scope, receive, send)
        elif scope["path"] == "/" or scope["path"].startswith(_OPEN) or self._logged_in(scope):
            await self._app(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
        else:
            body = {"code": "login_needed", "message": "Open the page and log in first."}
            await JSONResponse(body, 401)(scope, receive, send)

    def _logged_in(self, scope: Scope) -> bool:
        cookies, name = HTTPConnection(scope).cookies, self._server.cookie_id
        tokens = (cookies.get(f"access-token-{name}"), cookies.get(f"access-token-unsecure-{name}"))
        return any(token in self._server.tokens for token in tokens if token)

    async def _log_in(self, scope: Scope, receive: Receive, send: Send) -> None:
        address = scope["client"][0] if scope.get("client") else UNPROVEN
        try:
            self._rights.begin_attempt(address)
        except TooManyError as error:
            # Gradio's form has eyes for 400 only; its own text above tells of the limit.
            body = {"code": error.code, "message": error.message}
            await JSONResponse(body, 400)(scope, receive, send)
            return

        async def watch(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._rights.end_attempt(address, right=message["status"] == 200)
            await send(message)

        await self._app(scope, receive, watch)
