"""Which files of the output folder are given out, and what is told of a take's that was cleaned up."""

from __future__ import annotations

from pathlib import PurePath

from starlette.responses import JSONResponse, PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from cosyui.ops.purge import is_take
from cosyui.service.outputs import OutputStore

ROUTE = "/gradio_api/file="
_GIVEN = (".wav", ".zip")
"""Endings. The folder has records of batches, too, and those have texts."""


class OutputFiles:
    """ASGI middleware: 410 and a sentence for a path that is a take's and has no file, 403 for what is no sound; files

    elsewhere go by.
    """

    def __init__(self, app: ASGIApp, outputs: OutputStore) -> None:
        self._app = app
        self._outputs = outputs

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path, root = scope.get("path", ""), self._outputs.root.resolve()
        file = PurePath(path.removeprefix(ROUTE))
        if not path.startswith(ROUTE) or not file.is_relative_to(root):
            await self._app(scope, receive, send)
        elif file.suffix not in _GIVEN:
            await PlainTextResponse("Not here", 403)(scope, receive, send)
        elif self._is_gone(file.relative_to(root)):
            message = "The file of this take was cleaned up. Make the take again: the same seed makes the same."
            await JSONResponse({"code": "take_gone", "message": message}, 410)(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    def _is_gone(self, below: PurePath) -> bool:
        return is_take(below) and len(below.parts) == 2 and self._outputs.find(str(below)) is None
