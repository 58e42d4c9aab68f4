"""What is told of a take's file that was cleaned up: a link to it may live longer than the file."""

from __future__ import annotations

from pathlib import PurePath

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from cosyui.ops.purge import is_take
from cosyui.service.outputs import OutputStore

ROUTE = "/gradio_api/file="


class GoneTakes:
    """ASGI middleware: 410 and a sentence for a path that is a take's and has no file; all else goes by."""

    def __init__(self, app: ASGIApp, outputs: OutputStore) -> None:
        self._app = app
        self._outputs = outputs

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"].startswith(ROUTE) and self._is_gone(scope["path"]):
            message = "The file of this take was cleaned up. Make the take again: the same seed makes the same."
            await JSONResponse({"code": "take_gone", "message": message}, 410)(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    def _is_gone(self, path: str) -> bool:
        file, root = PurePath(path.removeprefix(ROUTE)), self._outputs.root.resolve()
        if not file.is_relative_to(root) or not is_take(below := file.relative_to(root)):
            return False
        return len(below.parts) == 2 and self._outputs.find(str(below)) is None
