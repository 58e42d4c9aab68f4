"""The API under ``/v1``: what OpenAI's has for speech, and jobs."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route, Router, WebSocketRoute
from starlette.types import ASGIApp

from cosyui.api.batch_document import with_batches
from cosyui.api.batches import BatchRoutes
from cosyui.api.bodies import Wish, read_wish
from cosyui.api.front import OPEN, Front
from cosyui.api.gate import Gate
from cosyui.api.jobs import JobBook, SpeechJob
from cosyui.api.openapi import document
from cosyui.api.problems import ApiError
from cosyui.api.results import result_response
from cosyui.api.speaking import Speaking
from cosyui.api.stream import AudioStream
from cosyui.api.voice_document import with_voices
from cosyui.api.voices import VoiceRoutes
from cosyui.api.wishes import Wishes, model_names
from cosyui.service.service import SynthesisService
from cosyui.service.types import TakeForm
from cosyui.service.voice_names import Voices
from cosyui.speech.sound.encode import formats

_LONGEST_KEY = 255
_TOLD = ("X-Request-Id", "X-Client-Request-Id", "X-Seed", "Server-Timing", "Retry-After", "X-Audio-Sample-Rate")
"""Headers of answers that pages of allowed sites may read."""


class V1:
    """Its routes; ``gate`` and ``jobs`` are there to be looked at."""

    def __init__(self, service: SynthesisService, voices: Voices) -> None:
        self._service = service
        self._wishes = Wishes(service, voices)
        self._created = int(time.time())
        self.gate = Gate(service.settings)
        self.jobs = JobBook(service, self.gate)
        formats()  # finding out takes some tenths of a second: not while somebody waits

    def app(self) -> ASGIApp:
        routes = [
            Route("/audio/speech", self._speech, methods=["POST"]),
            WebSocketRoute("/audio/stream", AudioStream(self._service, self.gate, self._wishes)),
            Route("/models", self._models),
            Route("/models/{name:path}", self._model),
            Route("/jobs", self._start_job, methods=["POST"]),
            Route("/jobs/{job_id}", self._job, methods=["GET", "DELETE"]),
            Route("/jobs/{job_id}/result", self._result),
            *VoiceRoutes(self._service, self.gate).routes(),
            *BatchRoutes(self._service, self.gate).routes(),
            Route(OPEN, self._openapi),
        ]
        app: ASGIApp = Front(Router(routes, redirect_slashes=False), self.gate)
        origins = self._service.settings.api_origins
        if not origins:
            return app
        methods = ("GET", "POST", "PATCH", "DELETE")
        return CORSMiddleware(
            app, allow_origins=origins, allow_methods=methods, allow_headers=["*"], expose_headers=_TOLD
        )

    async def _speech(self, request: Request) -> Any:
        wish, form = await self._read(request, stream=True)
        return Speaking(self._service, self.gate, form, wish.body)

    async def _models(self, request: Request) -> Response:
        return JSONResponse({"object": "list", "data": [self._about(name) for name in model_names(self._service)]})

    async def _model(self, request: Request) -> Response:
        name = request.path_params["name"]
        if name not in model_names(self._service):
            raise ApiError("model_not_found", "There is no such model here.", "model", status=404)
        return JSONResponse(self._about(name))

    async def _start_job(self, request: Request) -> Response:
        key = request.headers.get("idempotency-key", "")
        if len(key) > _LONGEST_KEY:
            message = f"An Idempotency-Key has up to {_LONGEST_KEY} characters."
            raise ApiError("parameter_invalid", message, "Idempotency-Key")
        wish, form = await self._read(request, stream=False)
        fingerprint = await asyncio.to_thread(wish.fingerprint) if key else b""
        job = await self.jobs.start(form, wish.body, key, fingerprint)
        return JSONResponse(self.jobs.view(job), 202, {"location": f"/v1/jobs/{job.id}"})

    async def _job(self, request: Request) -> Response:
        job = self._found(request)
        if request.method == "DELETE":
            await self.jobs.cancel(job)
        return JSONResponse(self.jobs.view(job))

    async def _result(self, request: Request) -> Response:
        return await result_response(self._found(request), self._service.encoders)

    async def _openapi(self, request: Request) -> Response:
        return JSONResponse(with_batches(with_voices(document())))

    async def _read(self, request: Request, *, stream: bool) -> tuple[Wish, TakeForm]:
        client: str = request.state.client
        self.gate.check_rate(client)
        wish = await read_wish(request, self._service.settings)
        return wish, await self._wishes.form(wish, client, stream=stream)

    def _found(self, request: Request) -> SpeechJob:
        return self.jobs.find(request.path_params["job_id"], request.state.client)

    def _about(self, name: str) -> dict[str, Any]:
        return {"id": name, "object": "model", "created": self._created, "owned_by": "cosyui"}
