"""The sound of a take on its way to the page while it is made: a websocket, as far ahead as the page has played."""

from __future__ import annotations

import asyncio
import re
import secrets
from collections import OrderedDict
from typing import Literal

from starlette.websockets import WebSocket, WebSocketDisconnect

from cosyui.engine.request import SAMPLE_RATE
from cosyui.service.recorder import Recorder

Outcome = Literal["done", "failed", "stopped"]
Farewell = tuple[int, str]
"""Code and reason at the end of a connection."""

ROUTE = "/listen/{key}"
AHEAD_BYTES = 2 * SAMPLE_RATE * 8
"""Sent but not played yet, at most: 8 seconds, which the browser holds."""
PIECE_BYTES = 32 << 10
PATIENCE_SECONDS = 60.0
"""How long a listener with enough to play may play nothing: then the rest is left to the file."""
MOST_KEPT = 300
"""Pages whose take can be listened to, as long as they are open."""
_PLAYED = re.compile(r"[0-9]{1,12}", re.ASCII)


class Live:
    """One take that may be heard: ``sound`` grows until it has an ``outcome``. Who knows ``key`` is its listener."""

    def __init__(self, sound: Recorder) -> None:
        self.sound = sound
        self.key = secrets.token_urlsafe()
        self.outcome: Outcome | None = None

    def end(self, outcome: Outcome) -> None:
        """The first outcome counts."""
        self.outcome = self.outcome or outcome
        self.sound.grown.set()


class LiveTakes:
    """Those of the pages, the latest of each. A key opens one connection, and none after the page's next take."""

    def __init__(self) -> None:
        self._by_session: OrderedDict[str, Live] = OrderedDict()

    def open(self, session: str, sound: Recorder) -> Live:
        self.forget(session)
        live = self._by_session[session] = Live(sound)
        if len(self._by_session) > MOST_KEPT:  # not every browser says when it leaves
            self._by_session.popitem(last=False)
        return live

    def forget(self, session: str) -> None:
        self._by_session.pop(session, None)

    def claim(self, key: str) -> Live | None:
        """The take of this key, once; None for a wrong one."""
        for session, live in self._by_session.items():
            if secrets.compare_digest(live.key.encode(), key.encode()):
                self.forget(session)
                return live
        return None

    async def route(self, websocket: WebSocket) -> None:
        """Endpoint of ``ROUTE``; a wrong key is refused before anything is accepted."""
        live = self.claim(websocket.path_params["key"])
        if live is None:
            await websocket.close(1008, "key_unknown")
            return
        await websocket.accept()
        await _Listener(websocket, live).serve()


class _Listener:
    """Sends binary messages of int16 samples at 24 kHz, then one text message with the outcome.

    What comes from the page is the number of samples that it has played, as text. Neither a slow listener nor one who
    leaves is felt by the take: its sound is read again where it lies.
    """

    def __init__(self, websocket: WebSocket, live: Live) -> None:
        self._websocket = websocket
        self._live = live
        self._sent = self._played = 0

    async def serve(self) -> None:
        tasks = (asyncio.ensure_future(self._tell()), asyncio.ensure_future(self._hear()))
        try:
            ended, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
        try:
            for task in ended:
                await self._websocket.close(*task.result())
                return
        except (WebSocketDisconnect, OSError):  # an OSError is the server's word for it
            return

    async def _tell(self) -> Farewell:
        live, grown = self._live, self._live.sound.grown
        while live.outcome in (None, "done"):
            grown.clear()  # before the look at what there is: what comes after it is not missed
            room = AHEAD_BYTES - (self._sent - self._played)
            try:
                piece = await live.sound.read(self._sent, min(room, PIECE_BYTES)) if room > 0 else b""
            except OSError:
                return 1011, "file_gone"
            if piece:
                self._sent += len(piece)
                await self._websocket.send_bytes(piece)
            elif live.outcome == "done" and self._sent >= live.sound.size:
                break
            else:
                try:
                    async with asyncio.timeout(PATIENCE_SECONDS if live.outcome or room <= 0 else None):
                        await grown.wait()
                except TimeoutError:
                    return 1008, "idle"
        await self._websocket.send_json({"type": live.outcome, "samples": self._sent // 2})
        return 1000, str(live.outcome)

    async def _hear(self) -> Farewell:
        while True:
            message = await self._websocket.receive()
            if message["type"] == "websocket.disconnect":
                raise WebSocketDisconnect(message.get("code", 1005))
            text = message.get("text") or ""
            if not _PLAYED.fullmatch(text):
                return 1008, "message_unexpected"
            self._played = min(self._sent, max(self._played, 2 * int(text)))
            self._live.sound.grown.set()
