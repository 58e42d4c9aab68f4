"""The websocket ``/v1/audio/stream``: text comes in pieces, and its sound leaves while the rest is written."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import Any

from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket, WebSocketDisconnect

from cosyui.api.bodies import Wish
from cosyui.api.gate import Gate
from cosyui.api.problems import error_object
from cosyui.api.recital import Recital
from cosyui.api.stream_messages import StreamError, close_code, read_message, send_event, stream_body
from cosyui.api.wishes import Wishes
from cosyui.errors import CosyuiError
from cosyui.service.drive import internal
from cosyui.service.service import SynthesisService

logger = logging.getLogger(__name__)

KEPT_SECONDS = 600.0
"""How long a connection on which nothing is spoken waits for a start."""
FAREWELL_SECONDS = 5.0
"""How long one that is given up may take to hear why."""


class AudioStream:
    """ASGI application of its route. One connection speaks one text after the other, each from ``start`` to ``done``.

    Whatever goes wrong is told in an event and ends the connection.
    """

    def __init__(self, service: SynthesisService, gate: Gate, wishes: Wishes) -> None:
        self._service = service
        self._gate = gate
        self._wishes = wishes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        websocket = WebSocket(scope, receive, send)
        await websocket.accept()
        try:
            while True:
                await self._text(websocket)
        except (WebSocketDisconnect, OSError):  # an OSError is the server's word for it
            return
        except CosyuiError as error:
            await _give_up(websocket, error)
        except Exception:
            request_id = websocket.state.request_id
            logger.exception("stream_crashed", extra={"fields": {"request_id": request_id}})
            await _give_up(websocket, internal(request_id))

    async def _text(self, websocket: WebSocket) -> None:
        """One, from its start to its end."""
        client: str = websocket.state.client
        try:
            async with asyncio.timeout(KEPT_SECONDS):
                start = await self._message(websocket)
        except TimeoutError:
            raise _idle(KEPT_SECONDS) from None
        if start["type"] != "start":
            raise StreamError("message_unexpected", "A text begins with a message of type start.", "type", close=1008)
        self._gate.check_rate(client)
        body = stream_body(start)
        form = await self._wishes.form(Wish(body), client, stream=True)
        with self._gate.inside(client):
            async with self._service.encoders.open(body.response_format, body.sample_rate) as encoder:
                recital = Recital(self._service, form, websocket, encoder)
                about = {"id": websocket.state.request_id, "format": body.response_format}
                await recital.tell("started", **about, sample_rate=body.sample_rate)
                await self._recite(websocket, recital)
        await recital.tell_done()  # nobody listens for messages of this text any more: the next may be a start

    async def _recite(self, websocket: WebSocket, recital: Recital) -> None:
        speaking = asyncio.ensure_future(recital.speak())
        listening = asyncio.ensure_future(self._listen(websocket, recital))
        both = (speaking, listening)
        try:
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        finally:
            ended = [task for task in both if task.done()]
            for task in both:
                task.cancel()
            await asyncio.wait(both)
            for task in both:
                if not task.cancelled():
                    task.exception()  # of two that end at once, one is heard
        for task in ended:
            task.result()

    async def _listen(self, websocket: WebSocket, recital: Recital) -> None:
        """Takes in the text, and then notices when the listener goes; ends by an error only."""
        patience, loop = self._service.settings.stream_idle_seconds, asyncio.get_running_loop()
        try:
            async with asyncio.timeout(patience) as limit:
                while True:
                    message = await self._message(websocket)
                    if recital.ended or message["type"] == "start":
                        hint = f"A message of type {message['type']} is not expected before the text is done."
                        raise StreamError("message_unexpected", hint, "type", close=1008)
                    match message["type"]:
                        case "flush":
                            recital.flush()
                        case "end":
                            recital.end()
                            limit.reschedule(None)
                        case _ if message["text"]:
                            recital.add(message["text"])
                            limit.reschedule(loop.time() + patience)
        except TimeoutError:
            raise _idle(patience) from None

    async def _message(self, websocket: WebSocket) -> dict[str, Any]:
        return await read_message(websocket, self._service.settings.body_max_bytes)


async def _give_up(websocket: WebSocket, error: CosyuiError) -> None:
    event: dict[str, Any] = {"type": "error", "error": error_object(error)}
    retry_after: int = getattr(error, "retry_after", 0)
    if retry_after:
        event["retry_after"] = retry_after
    with contextlib.suppress(TimeoutError, OSError, WebSocketDisconnect):
        async with asyncio.timeout(FAREWELL_SECONDS):
            await send_event(websocket, event)
            await websocket.close(close_code(error), error.code)


def _idle(seconds: float) -> StreamError:
    message = f"Nothing came for {seconds:g} seconds, and the text has no end yet. Connect again."
    return StreamError("idle", message, close=1008, status=408)
