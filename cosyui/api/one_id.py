"""Where something in between names requests, too: an answer keeps the id that the service gave it."""

from __future__ import annotations

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

HEADER = "x-request-id"


class OneRequestId:
    """Of several ``X-Request-Id`` of an answer the first is left, which is that of the take."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_one(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                given = headers.getlist(HEADER)
                if len(given) > 1:
                    headers[HEADER] = given[0]
            await send(message)

        await self._app(scope, receive, send_with_one)
