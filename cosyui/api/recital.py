"""A text spoken while it arrives: each part of it is a take of its own, and their sound is one."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Coroutine
from dataclasses import replace
from typing import Any

from starlette.websockets import WebSocket, WebSocketDisconnect

from cosyui.api.jobs import rounded
from cosyui.api.speaking import was_stopped
from cosyui.api.stream_messages import Pieces, StreamError, send_event
from cosyui.engine.request import SAMPLE_RATE
from cosyui.errors import BusyError, InputError
from cosyui.host.encoding import SoundEncoder
from cosyui.service.service import SynthesisService
from cosyui.service.ticket import Ticket
from cosyui.service.types import Chunk, FormError, Problem, Running, Stopped, TakeForm, Waiting
from cosyui.speech.sound.joints import HEAD_SECONDS, TAIL_SECONDS
from cosyui.speech.text.arriving import Arriving, Part

LONGEST_PART = 200
"""Characters; whoever listens waits for so much text at most."""
PROGRESS_SECONDS = 5.0
_SILENT = ("text_empty", "text_nothing_to_speak")
_Submitted = tuple[Part, Ticket | None]


class Recital:
    """`add` text, `flush`, `end`; `speak` runs beside it, and whatever ends it ends its takes.

    At most two takes are there at a time: while one is heard, the next is made. All have the seed of the first.
    """

    def __init__(self, service: SynthesisService, form: TakeForm, websocket: WebSocket, encoder: SoundEncoder) -> None:
        self._service = service
        self._form = form
        self._websocket = websocket
        self._encoder = encoder
        self._pieces = Pieces()
        self._arriving = Arriving(min(LONGEST_PART, service.settings.max_chars))
        self._parts: asyncio.Queue[Part | None] = asyncio.Queue()  # bounded by the text's length
        self._tickets: list[Ticket] = []
        self._characters = 0
        self._began = 0.0
        self._first_chunk: float | None = None
        self._samples = 0
        self._spoken = 0
        self._pause = 0.0
        self._place: Waiting | Running | None = None
        self.ended = False

    def add(self, text: str) -> None:
        """Raises ApiError ``parameter_invalid`` or InputError ``text_too_long``."""
        self._began = self._began or time.monotonic()
        text = self._pieces.add(text)
        self._characters += len(text)
        most = self._service.settings.longest_text
        if self._characters > most:
            message = f"The text has more than {most} characters. Begin a new one after it is done."
            raise InputError("text_too_long", message, "text")
        self._put(self._arriving.add(text))

    def flush(self) -> None:
        """Speak what is there."""
        self._put(self._arriving.flush())

    def end(self) -> None:
        """No more text comes."""
        self._pieces.end()
        self.flush()
        self._parts.put_nowait(None)
        self.ended = True

    async def speak(self) -> None:
        """Until all sound of the whole text has left. Raises CosyuiError for what goes wrong with a part."""
        ahead: asyncio.Future[_Submitted | None] | None = None
        try:
            current = await self._next()
            if current is None:
                code, message = "text_nothing_to_speak", "There is nothing to speak in the text: send words."
                if not self._characters:
                    code, message = "text_empty", "There is no text: send some before the end."
                raise InputError(code, message, "text")
            while current is not None:
                part, ticket = current
                ticket = ticket or await self._submit(part)
                ahead = asyncio.ensure_future(self._next())
                if ticket is not None:
                    await self._play(part, ticket)
                current, ahead = await ahead, None
            await self._send(self._encoder.finish())
        finally:
            if ahead is not None:
                ahead.cancel()
                await asyncio.gather(ahead, return_exceptions=True)
            for ticket in self._tickets:
                await ticket.cancel()

    async def tell_done(self) -> None:
        await self.tell("done", segments=self._spoken, characters=self._characters, **self._figures())

    async def tell(self, event: str, **fields: Any) -> None:
        await self._pass_on(send_event(self._websocket, {"type": event, **fields}))

    def _put(self, parts: list[Part]) -> None:
        for part in parts:
            self._parts.put_nowait(part)

    async def _next(self) -> _Submitted | None:
        """The next part and its take, if there is room for it by now; None at the end."""
        while (part := await self._parts.get()) is not None:
            try:
                ticket = await self._submit(part)
            except BusyError:
                if not self._tickets:
                    raise
                return part, None  # again when the take before it has left its place
            if ticket is not None:
                return part, ticket
        return None

    async def _submit(self, part: Part) -> Ticket | None:
        """None where nothing remains to be spoken once the text is cleaned."""
        try:
            ticket = await self._service.submit(
                replace(self._form, text=part.text), part=bool(self._tickets or self._spoken)
            )
        except FormError as error:
            if all(problem.code in _SILENT for problem in error.problems):
                return None
            raise
        self._tickets.append(ticket)
        self._form = replace(self._form, seed=ticket.seed)
        return ticket

    async def _play(self, part: Part, ticket: Ticket) -> None:
        await self.tell("segment", index=self._spoken, characters=len(part.text), id=ticket.id, seed=ticket.seed)
        self._spoken += 1
        silence = round(SAMPLE_RATE * max(0.0, self._pause - HEAD_SECONDS - TAIL_SECONDS))
        async with contextlib.aclosing(ticket.updates()) as updates, self._progress():
            async for update in updates:
                match update:
                    case Waiting() | Running():
                        self._place = update
                    case Chunk(pcm):
                        await self._sound(bytes(2 * silence) + pcm)
                        silence = 0
                    case Problem(error):
                        raise error
                    case Stopped():
                        was_stopped()
        self._tickets.remove(ticket)
        self._pause = part.pause
        await self.tell("timing", **self._figures())

    @contextlib.asynccontextmanager
    async def _progress(self) -> AsyncIterator[None]:
        """A word now and then, so that nobody takes a wait for a dead connection."""
        telling = asyncio.create_task(self._keep_telling())
        try:
            yield
        finally:
            telling.cancel()
            await asyncio.wait([telling])

    async def _keep_telling(self) -> None:
        with contextlib.suppress(StreamError, WebSocketDisconnect):  # who sends the sound hears of it, too
            while True:
                await asyncio.sleep(PROGRESS_SECONDS)
                await self.tell("progress", **self._progress_told(), **self._figures())

    def _progress_told(self) -> dict[str, Any]:
        match self._place:
            case Waiting(position, seconds):
                return {"status": "queued", "position": position, "estimated_wait_time": rounded(seconds)}
        return {"status": "running", "position": 0, "estimated_wait_time": 0.0}

    async def _sound(self, pcm: bytes) -> None:
        self._samples += len(pcm) // 2
        await self._send(self._encoder.add(pcm))
        if self._first_chunk is None:
            self._first_chunk = time.monotonic() - self._began
            await self.tell("timing", **self._figures())

    async def _send(self, encoding: Awaitable[bytes]) -> None:
        """Comes back once there is room for more on the way to the listener."""
        if sound := await encoding:
            await self._pass_on(self._websocket.send_bytes(sound))

    async def _pass_on(self, sending: Coroutine[Any, Any, None]) -> None:
        """A connection that nobody reads from may stay open for ever: what it holds is not."""
        patience = self._service.settings.stream_idle_seconds
        try:
            async with asyncio.timeout(patience):
                await sending
        except TimeoutError:
            message = f"Nothing of the sound was read for {patience:g} seconds. Connect again."
            raise StreamError("idle", message, close=1008, status=408) from None

    def _figures(self) -> dict[str, Any]:
        first = None if self._first_chunk is None else round(1000 * self._first_chunk, 1)
        return {"first_chunk_ms": first, "seconds": round(self._samples / SAMPLE_RATE, 3)}
