"""Uploads lose the name that their owner gave them before anything is written to the disk."""

from __future__ import annotations

import re

from starlette.types import ASGIApp, Message, Receive, Scope, Send

ROUTE = "/gradio_api/upload"
_HEAD_END = b"\r\n\r\n"
_LONGEST_HEAD = 16 << 10
_NAME = re.compile(rb'(filename\*?)=("(?:\\.|[^"\\\r\n])*"|[^;\r\n]*)', re.IGNORECASE)
_EXTENSION = re.compile(
    rb"\.(wav|flac|mp3|ogg|opus|m4a|mp4|aac|webm|aiff?|csv|tsv|jsonl|ndjson|txt)\"?$", re.IGNORECASE
)
"""Kept for the browser's player, and to tell one kind of text from another; of sound the content alone counts."""


class NamelessUploads:
    """ASGI middleware: the file of an upload form is called ``clip``. The page sends one file a form; what follows the

    head of the first part goes by untouched.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] == ROUTE:
            receive = _renamed(receive)
        await self._app(scope, receive, send)


def _renamed(receive: Receive) -> Receive:
    done = False

    async def read() -> Message:
        nonlocal done
        message = await receive()
        if done or message["type"] != "http.request":
            return message
        body = bytearray(message.get("body", b""))
        while _HEAD_END not in body and len(body) < _LONGEST_HEAD and message.get("more_body", False):
            message = await receive()
            body += message.get("body", b"")
        head, end, rest = bytes(body).partition(_HEAD_END)
        done = True
        return {**message, "body": _NAME.sub(_plain, head) + end + rest}

    return read


def _plain(match: re.Match[bytes]) -> bytes:
    extension = _EXTENSION.search(match[2])
    return b'filename="clip' + (extension[0].rstrip(b'"').lower() if extension else b"") + b'"'
