"""What every request to the API passes: it gets an id, its key is looked at, and its errors get their shape."""

from __future__ import annotations

import logging
import re
import uuid

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from cosyui.api.gate import Gate
from cosyui.api.problems import error_response, unknown_route
from cosyui.errors import CosyuiError
from cosyui.ops.logs import log
from cosyui.service.rights import UNPROVEN

logger = logging.getLogger(__name__)

OPEN = "/openapi.json"
"""Needs no key: it tells nothing of anybody."""
_OWN_ID = re.compile(r"[\w.:-]{1,100}", re.ASCII)


class Front:
    """ASGI middleware. Leaves ``request_id`` and ``client`` in the request's state.

    Whatever goes wrong before an answer has begun is one in OpenAI's shape; later the connection is broken off, so
    that nobody takes half a file for a whole one. What nobody foresaw is told by the id alone; the log has the rest.
    """

    def __init__(self, app: ASGIApp, gate: Gate) -> None:
        self._app = app
        self._gate = gate

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        headers, state = Headers(scope=scope), {"request_id": f"req-{uuid.uuid4().hex[:16]}"}
        scope["state"] = state
        own, began = headers.get("x-request-id", ""), False

        async def fail(error: CosyuiError) -> None:
            if scope["type"] == "websocket":
                await send({"type": "websocket.close", "code": 1008, "reason": error.code})
            elif began:
                log(logger, logging.WARNING, "answer_broken_off", request_id=state["request_id"], code=error.code)
            else:
                await error_response(error)(scope, receive, tell)

        async def tell(message: Message) -> None:
            nonlocal began
            if message["type"] == "http.response.start":
                began = True
                answer = MutableHeaders(raw=list(message["headers"]))
                answer["x-request-id"] = state["request_id"]
                if _OWN_ID.fullmatch(own):
                    answer["x-client-request-id"] = own
                message = {**message, "headers": answer.raw}
            await send(message)

        try:
            if scope["path"] != scope.get("root_path", "") + OPEN:
                address = scope["client"][0] if scope.get("client") else UNPROVEN
                state["client"] = self._gate.client(headers.get("authorization"), address)
            await self._app(scope, receive, tell)
        except ClientDisconnect:
            return
        except CosyuiError as error:
            await fail(error)
        except HTTPException as error:
            await fail(unknown_route(error))
        except Exception:
            logger.exception("api_crashed", extra={"fields": {"request_id": state["request_id"]}})
            await fail(_internal(state["request_id"]))


def _internal(request_id: str) -> CosyuiError:
    message = f"Something went wrong inside the service. Try again; if it stays, look for {request_id} in the log."
    return CosyuiError("internal", message)
