"""The answer that is a take: it goes out while it is made, and the take ends with whoever listens."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import time
from typing import Any, NoReturn

from starlette.requests import Request
from starlette.types import Message, Receive, Scope, Send

from cosyui.api.bodies import SpeechBody
from cosyui.api.gate import Gate
from cosyui.api.problems import ApiError, error_object
from cosyui.api.wishes import audio_headers
from cosyui.errors import CosyuiError
from cosyui.host.encoding import SoundEncoder
from cosyui.service.service import SynthesisService
from cosyui.service.ticket import Ticket
from cosyui.service.types import Chunk, Done, Problem, Result, Running, Stopped, TakeForm
from cosyui.speech.sound.encode import MEDIA_TYPES


class Speaking:
    """An ASGI response. Its head leaves with the first bytes of sound: until then what goes wrong is an HTTP error.

    Who does not read for ``stream_idle_seconds`` is given up.
    """

    def __init__(self, service: SynthesisService, gate: Gate, form: TakeForm, body: SpeechBody) -> None:
        self._service = service
        self._gate = gate
        self._form = form
        self._body = body
        self._events = body.stream_format == "sse"
        self._began = time.monotonic()
        self._timing: dict[str, float] = {}
        self._started = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._gate.inside(self._form.client):
            work = asyncio.ensure_future(self._speak(Request(scope), self._patient(send)))
            gone = asyncio.ensure_future(_gone(receive))
            try:
                await asyncio.wait((work, gone), return_when=asyncio.FIRST_COMPLETED)
            except asyncio.CancelledError:
                was_stopped()  # the server goes down, and this task with it: whoever waits still hears why
            finally:
                heard = work.done()
                gone.cancel()
                work.cancel()
                await asyncio.wait((work, gone))
            if heard:
                work.result()
            elif not work.cancelled():
                work.exception()  # nobody is there to hear of it

    async def _speak(self, request: Request, send: Send) -> None:
        async with self._service.encoders.open(self._body.response_format, self._body.sample_rate) as encoder:
            ticket = await self._service.submit(self._form)
            request.state.request_id = ticket.id
            try:
                await self._pass_on(ticket, encoder, send)
            except CosyuiError as error:
                if error.code == "idle" or not (self._started and self._events):
                    raise
                await self._send_event({"type": "error", "error": error_object(error)}, send)
                await send({"type": "http.response.body", "body": b""})

    async def _pass_on(self, ticket: Ticket, encoder: SoundEncoder, send: Send) -> None:
        async with contextlib.aclosing(ticket.updates()) as updates:
            async for update in updates:
                match update:
                    case Running():
                        self._note("queue")
                    case Chunk(pcm):
                        self._note("first_chunk")
                        await self._send(await encoder.add(pcm), ticket, send)
                    case Done(result):
                        await self._send(await encoder.finish(), ticket, send)
                        if self._events:
                            await self._send_event(self._done(result), send)
                        await send({"type": "http.response.body", "body": b""})
                    case Problem(error):
                        raise error
                    case Stopped():
                        was_stopped()

    def _patient(self, send: Send) -> Send:
        """A connection that nobody reads from may stay open for ever: what it holds is not."""
        patience = self._service.settings.stream_idle_seconds

        async def bounded(message: Message) -> None:
            try:
                async with asyncio.timeout(patience):
                    await send(message)
            except TimeoutError:
                raise ApiError("idle", f"Nothing was read for {patience:g} seconds.", status=408) from None

        return bounded

    def _note(self, what: str) -> None:
        """Milliseconds from the beginning until something came for the first time."""
        self._timing.setdefault(what, 1000 * (time.monotonic() - self._began))

    async def _send(self, sound: bytes, ticket: Ticket, send: Send) -> None:
        if not sound:
            return
        if not self._started:
            self._started = True
            headers = [(name.encode(), value.encode()) for name, value in self._headers(ticket).items()]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
        if self._events:
            await self._send_event({"type": "speech.audio.delta", "audio": base64.b64encode(sound).decode()}, send)
        else:
            await send({"type": "http.response.body", "body": sound, "more_body": True})

    async def _send_event(self, event: dict[str, Any], send: Send) -> None:
        data = f"data: {json.dumps(event)}\n\n".encode()
        await send({"type": "http.response.body", "body": data, "more_body": True})

    def _headers(self, ticket: Ticket) -> dict[str, str]:
        timing = ", ".join(f"{name};dur={value:.1f}" for name, value in self._timing.items())
        kind = "text/event-stream" if self._events else MEDIA_TYPES[self._body.response_format]
        own = {"content-type": kind, "server-timing": timing, "x-seed": str(ticket.seed), "x-accel-buffering": "no"}
        return own | audio_headers(self._body)

    def _done(self, result: Result) -> dict[str, Any]:
        """OpenAI counts tokens; here they are characters of the text, and tokens of speech."""
        read, made = len(self._form.text.strip()), result.stats.speech_tokens
        usage = {"input_tokens": read, "output_tokens": made, "total_tokens": read + made}
        return {"type": "speech.audio.done", "usage": usage}


def was_stopped() -> NoReturn:
    raise ApiError("stopped", "This was stopped: by an operator, or because the server goes down.", status=503)


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
