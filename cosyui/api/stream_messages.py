"""Messages of the websocket, read within bounds and checked; and how what is wrong with them ends the connection."""

from __future__ import annotations

import json
import re
from typing import Any, Literal

from starlette.websockets import WebSocket, WebSocketDisconnect

from cosyui.api.bodies import SpeechBody, Text, checked, json_of
from cosyui.api.problems import ApiError
from cosyui.errors import CosyuiError

_FIELDS = {"start": None, "text": {"type", "text"}, "flush": {"type"}, "end": {"type"}}
"""Of each type of message; those of ``start`` are `StreamBody`'s."""
_NOT_HERE = ("input", "stream_format", "deadline")
_HIGH, _LONE = re.compile(r"[\ud800-\udbff]\Z"), re.compile(r"[\ud800-\udfff]")


class StreamError(ApiError):
    """``close`` is the code that the connection ends with."""

    def __init__(self, code: str, message: str, field: str | None = None, *, close: int, status: int = 400) -> None:
        super().__init__(code, message, field, status=status)
        self.close = close


class StreamBody(SpeechBody):
    """The fields of ``start``."""

    model: Text = "cosyui"
    input: Text = ""
    response_format: Literal["pcm", "opus"] = "pcm"


def close_code(error: CosyuiError) -> int:
    if isinstance(error, StreamError):
        return error.close
    if error.status in (429, 503):
        return 1013
    return 1011 if error.status >= 500 else 1008


async def send_event(websocket: WebSocket, event: dict[str, Any]) -> None:
    await websocket.send_text(json.dumps(event))


async def read_message(websocket: WebSocket, most: int) -> dict[str, Any]:
    """The next one, of ``most`` characters at most; its ``type`` is known.

    Raises StreamError ``message_invalid`` or ``message_too_large``, and WebSocketDisconnect.
    """
    message = await websocket.receive()
    if message["type"] == "websocket.disconnect":
        raise WebSocketDisconnect(message.get("code") or 1005)
    data = message.get("text")
    if data is None:
        raise StreamError("message_invalid", "Messages are JSON in text frames, not binary ones.", close=1003)
    if len(data) > most:
        hint = f"A message has up to {most} characters; send a longer text in several."
        raise StreamError("message_too_large", hint, close=1009, status=413)
    try:
        fields = json_of(data)
    except ApiError:
        raise StreamError("message_invalid", "The message is no valid JSON.", close=1007) from None
    if not isinstance(fields, dict):
        raise StreamError("message_invalid", "A message is a JSON object.", close=1007)
    kind = fields.get("type")
    if not isinstance(kind, str) or kind not in _FIELDS:
        raise StreamError("message_invalid", f"A message has a type: {', '.join(_FIELDS)}.", "type", close=1008)
    own = _FIELDS[kind]
    if own is not None and (fields.keys() != own or not isinstance(fields.get("text", ""), str)):
        hint = f"A message of type {kind} has {' and '.join(sorted(own))}, and nothing else."
        raise StreamError("message_invalid", hint, "type", close=1008)
    return fields


def stream_body(fields: dict[str, Any]) -> StreamBody:
    """What a ``start`` asks for. Raises ApiError ``parameter_*``."""
    fields = {name: value for name, value in fields.items() if name != "type"}
    for name in _NOT_HERE:
        if name in fields:
            raise ApiError("parameter_unknown", f"There is no parameter {name} in a stream.", name)
    return checked(StreamBody, fields, strict=True)


class Pieces:
    """Text out of the messages: a character whose two halves came in two of them is put together."""

    def __init__(self) -> None:
        self._half = ""

    def add(self, text: str) -> str:
        """Raises ApiError ``parameter_invalid`` for what is no text."""
        text = self._half + text
        match = _HIGH.search(text)
        self._half = match.group() if match else ""
        text = text.removesuffix(self._half)
        if _LONE.search(text):
            try:
                text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le")
            except UnicodeDecodeError:
                raise _half() from None
        if "\0" in text:
            raise ApiError("parameter_invalid", "A NUL character is no text.", "text")
        return text

    def end(self) -> None:
        """Raises as `add`."""
        if self._half:
            raise _half()


def _half() -> ApiError:
    return ApiError("parameter_invalid", "Half a character (a lone surrogate) is no text.", "text")
