"""Batches under ``/v1/batches``: started, looked after, stopped, resumed, fetched, deleted."""

from __future__ import annotations

import asyncio
from typing import Any

from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Route

from cosyui.api.bodies import Text, bounded, checked, json_of
from cosyui.api.forms import read_upload
from cosyui.api.gate import Gate
from cosyui.api.problems import ApiError, error_object
from cosyui.service.batch_input import KINDS, Kind, kind_of, parse, parse_objects
from cosyui.service.batch_lines import BatchError, Parsed
from cosyui.service.batch_record import Batch
from cosyui.service.owners import owner_hash
from cosyui.service.rights import UNPROVEN
from cosyui.service.service import SynthesisService

LONGEST_PAUSE = 10.0
FORM_FIELDS = ("format", "cast", "voice", "pause")


class BatchOptions(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    cast: dict[Text, Text] = Field({}, description="voices by the names of those who speak")
    voice: Text = Field("", description="of lines that have none")
    pause: float | None = Field(
        None, ge=0, le=LONGEST_PAUSE, allow_inf_nan=False, description="seconds between two lines of the joined file"
    )


class BatchBody(BatchOptions):
    """``lines`` or a ``script``."""

    lines: list[Any] | None = Field(
        None, description="objects with text, voice, instruction, speed, seed, language, name"
    )
    script: Text | None = Field(None, description="a dialogue, as in `Anna: Hello.`; the cast has the voices")


class BatchRoutes:
    """A batch is there for the client alone that started it, also after the server was started again.

    Starting and resuming count as requests of a minute, and a batch at work as one that is unfinished.
    """

    def __init__(self, service: SynthesisService, gate: Gate) -> None:
        self._settings = service.settings
        self._batches = service.batches
        self._gate = gate
        self._followers: set[asyncio.Task[None]] = set()

    def routes(self) -> list[Route]:
        one = "/batches/{batch_id}"
        return [
            Route("/batches", self._all, methods=["GET", "POST"]),
            Route(one, self._one, methods=["GET", "DELETE"]),
            Route(f"{one}/result", self._result),
            Route(f"{one}/stop", self._stop, methods=["POST"]),
            Route(f"{one}/resume", self._resume, methods=["POST"]),
        ]

    async def _all(self, request: Request) -> Response:
        owner = self._owner(request)
        if request.method == "POST":
            return await self._start(request, owner)
        return JSONResponse({"object": "list", "data": [self._view(batch) for batch in self._batches.of(owner)]})

    async def _start(self, request: Request, owner: str) -> Response:
        client: str = request.state.client
        self._gate.check_rate(client)
        try:
            parsed, options, script = await self._read(request)
            self._gate.enter(client)
            try:
                batch = await self._batches.add(owner, client, parsed, script=script, **options)
            except BaseException:
                self._gate.leave(client)
                raise
        except BatchError as error:
            return JSONResponse({"error": error_object(error) | _problems(error)}, error.status)
        self._follow(batch, client)
        return JSONResponse(self._view(batch), 202, {"location": f"/v1/batches/{batch.id}"})

    async def _one(self, request: Request) -> Response:
        batch = self._found(request)
        if request.method == "DELETE":
            await self._batches.remove(batch)
            return Response(status_code=204)
        return JSONResponse(self._view(batch) | {"lines": self._lines(batch)})

    async def _result(self, request: Request) -> Response:
        batch = self._found(request)
        path = await self._batches.result(batch)
        headers = {"cache-control": "no-store"}
        return FileResponse(path, media_type="application/zip", filename=f"{batch.id}.zip", headers=headers)

    async def _stop(self, request: Request) -> Response:
        batch = self._found(request)
        await self._batches.stop(batch)
        return JSONResponse(self._view(batch))

    async def _resume(self, request: Request) -> Response:
        client: str = request.state.client
        batch = self._found(request)
        self._gate.check_rate(client)
        if self._batches.work(batch) is None:
            self._gate.enter(client)
            try:
                await self._batches.resume(batch)
            except BaseException:
                self._gate.leave(client)
                raise
            self._follow(batch, client)
        return JSONResponse(self._view(batch))

    def _follow(self, batch: Batch, client: str) -> None:
        """It is one of the client's unfinished requests until nothing is at work for it."""

        async def follow() -> None:
            try:
                await self._batches.ended(batch)
            finally:
                self._gate.leave(client)

        task = asyncio.ensure_future(follow())
        self._followers.add(task)
        task.add_done_callback(self._followers.discard)

    def _owner(self, request: Request) -> str:
        """By its key, or without keys by its address: the client's name in the gate is another one after each start."""
        if self._settings.api_key_digests:
            return owner_hash("key", request.state.client)
        return owner_hash("addr", request.client.host if request.client else UNPROVEN)

    def _found(self, request: Request) -> Batch:
        return self._batches.find(request.path_params["batch_id"], self._owner(request))

    async def _read(self, request: Request) -> tuple[Parsed, dict[str, Any], bool]:
        """The lines, the options, and whether it is a script. Raises ApiError and BatchError."""
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind == "multipart/form-data":
            return await self._read_form(request)
        if kind != "application/json":
            message = "Send the body as application/json, or as multipart/form-data with a file of lines."
            raise ApiError("body_invalid", message)
        fields = json_of(await bounded(request, self._settings.body_max_bytes).body())
        if not isinstance(fields, dict):
            raise ApiError("body_invalid", "The body must be a JSON object.")
        body = checked(BatchBody, fields, strict=True)
        if (body.lines is None) == (body.script is None):
            raise ApiError("parameter_missing", "Send lines or a script, and not both.", "lines")
        options = body.model_dump(include=set(BatchOptions.model_fields))
        if body.script is not None:
            return await asyncio.to_thread(parse, body.script, "txt"), options, True
        return await asyncio.to_thread(parse_objects, body.lines or []), options, False

    async def _read_form(self, request: Request) -> tuple[Parsed, dict[str, Any], bool]:
        texts, upload = await read_upload(request, self._settings, "file", self._settings.body_max_bytes, FORM_FIELDS)
        if upload is None:
            raise ApiError("parameter_missing", "Send a file of lines.", "file")
        given: dict[str, Any] = {name: texts[name] for name in ("voice", "pause") if texts.get(name)}
        if texts.get("cast"):
            given["cast"] = json_of(texts["cast"])
        options = checked(BatchOptions, given, strict=False)
        kind = _kind(texts.get("format") or "", upload.name)
        return await asyncio.to_thread(parse, upload.data, kind), options.model_dump(), kind == "txt"

    def _view(self, batch: Batch) -> dict[str, Any]:
        work, counts = self._batches.work(batch), batch.counts()
        told: dict[str, Any] = {
            "id": batch.id,
            "object": "batch",
            "created": batch.order.created,
            "status": batch.state,
            "counts": counts | {"total": len(batch.order.lines)},
            "seconds": round(batch.seconds, 3),
            "pause": batch.order.pause,
        }
        if work is not None:
            left = work.seconds_left
            told["estimated_time_left"] = None if left is None else round(left, 3)
        elif counts["done"]:
            told["url"] = f"/v1/batches/{batch.id}/result"
        if batch.progress.code is not None:
            told["error"] = {"code": batch.progress.code, "message": batch.progress.message}
        return told

    def _lines(self, batch: Batch) -> list[dict[str, Any]]:
        work = self._batches.work(batch)
        busy = work.busy if work is not None else frozenset()
        told = []
        for index, (line, state) in enumerate(zip(batch.order.lines, batch.progress.lines, strict=True)):
            status = "working" if index in busy else state.status
            view: dict[str, Any] = {"line": line.number, "name": line.name, "voice": line.voice, "status": status}
            view |= {"seed": state.seed, "seconds": round(state.seconds, 3)}
            if state.code is not None:
                view["error"] = {"code": state.code, "message": state.message}
            told.append(view)
        return told


def _kind(asked: str, file_name: str) -> Kind:
    found = next((kind for kind in KINDS if kind == asked), None) if asked else kind_of(file_name)
    if found is None:
        message = f"Name the file as .csv, .tsv, .jsonl or .txt, or give a format: {', '.join(KINDS)}."
        raise ApiError("parameter_invalid", message, "format")
    return found


def _problems(error: BatchError) -> dict[str, Any]:
    problems = [
        {"line": one.line, "code": one.code, "param": one.field, "message": one.message} for one in error.problems
    ]
    return {"problems": problems, "count": error.count}
