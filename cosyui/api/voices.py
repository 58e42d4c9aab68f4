"""Saved voices under ``/v1/audio/voices``: listed, made, heard, changed, deleted, taken along."""

from __future__ import annotations

import asyncio
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from cosyui.api.forms import read_form, read_texts
from cosyui.api.gate import Gate
from cosyui.api.problems import ApiError, unknown_route
from cosyui.errors import RightsError
from cosyui.service.service import SynthesisService
from cosyui.service.voice_names import BuiltInVoices, VoiceData
from cosyui.service.voice_record import Voice, VoiceForm
from cosyui.service.voice_zip import SLACK
from cosyui.speech.clip.intake import read_source

WORDS = ("name", "transcript", "language", "consent")
"""Parameters of a voice that are texts."""
_ONE = ("GET", "PATCH", "DELETE")
"""What is done with one voice."""
_ANY = (*_ONE, "POST", "PUT", "OPTIONS", "TRACE", "QUERY")


class VoiceRoutes:
    """Reading costs nothing of a client's limits; what makes or changes a voice is one of its requests a minute."""

    def __init__(self, service: SynthesisService, gate: Gate) -> None:
        self._settings = service.settings
        self._voices = service.voices
        self._gate = gate
        self._built_in = BuiltInVoices()

    def routes(self) -> list[Route]:
        base, one = "/audio/voices", "/audio/voices/{voice_id}"
        return [
            Route(base, self._all, methods=["GET", "POST"]),
            Route(f"{base}/import", self._import, methods=_ANY),
            Route(one, self._one, methods=_ONE),
            Route(f"{one}/preview", self._preview),
            Route(f"{one}/export", self._export),
        ]

    async def _all(self, request: Request) -> Response:
        return await (self._add(request) if request.method == "POST" else self._list(request))

    async def _one(self, request: Request) -> Response:
        work = {"PATCH": self._change, "DELETE": self._remove}.get(request.method, self._get)
        return await work(request)

    async def _list(self, request: Request) -> Response:
        built_in = [(name, self._built_in.find(name)) for name in self._built_in.list()]
        data = [_built_in_view(name, voice) for name, voice in built_in if voice is not None]
        data += [_view(voice) for voice in self._voices.all()]
        return JSONResponse({"object": "list", "data": data})

    async def _add(self, request: Request) -> Response:
        client = self._counted(request)
        texts, clip = await read_form(request, self._settings, "clip", self._settings.clip_max_bytes, WORDS)
        form = VoiceForm(
            texts.get("name", ""),
            clip,
            texts.get("transcript", ""),
            texts.get("language"),
            texts.get("consent", ""),
            maker=self._key(client),
        )
        with self._gate.inside(client):
            return _made(await asyncio.to_thread(self._voices.add, form))

    async def _import(self, request: Request) -> Response:
        if request.method != "POST":  # no voice has this id: it is an address of its own
            raise unknown_route(HTTPException(405, headers={"Allow": "POST"}))
        client = self._counted(request)
        most = self._settings.clip_max_bytes + SLACK
        texts, data = await read_form(request, self._settings, "file", most, ("name",))
        if data is None:
            raise ApiError("parameter_missing", "Send the file of a voice that was exported.", "file")
        with self._gate.inside(client):
            name, maker = texts.get("name", ""), self._key(client)
            return _made(await asyncio.to_thread(self._voices.import_, data, name=name, maker=maker))

    async def _get(self, request: Request) -> Response:
        voice_id = _id(request)
        built_in = self._built_in.find(voice_id)
        if built_in is not None:
            return JSONResponse(_built_in_view(voice_id, built_in) | {"transcript": built_in.transcript})
        return JSONResponse(_whole(self._voices.get(voice_id)))

    async def _change(self, request: Request) -> Response:
        client = self._counted(request)
        voice_id = self._saved_id(request)
        texts = await read_texts(request, self._settings, WORDS)
        by = self._key(client)
        return JSONResponse(_whole(await asyncio.to_thread(self._voices.change, voice_id, **texts, by=by)))

    async def _remove(self, request: Request) -> Response:
        client = self._counted(request)
        await asyncio.to_thread(self._voices.remove, self._saved_id(request), self._key(client))
        return Response(status_code=204)

    async def _preview(self, request: Request) -> Response:
        voice_id = _id(request)
        built_in = self._built_in.find(voice_id)
        if built_in is not None:
            data = await asyncio.to_thread(read_source, built_in.clip, self._settings.clip_max_bytes)
        else:
            data = await asyncio.to_thread(self._voices.clip, voice_id)
        return Response(data, media_type="audio/wav", headers=_file(f'inline; filename="{voice_id}.wav"'))

    async def _export(self, request: Request) -> Response:
        voice_id = self._saved_id(request)
        data = await asyncio.to_thread(self._voices.export, voice_id)
        return Response(data, media_type="application/zip", headers=_file(f'attachment; filename="{voice_id}.zip"'))

    def _counted(self, request: Request) -> str:
        client: str = request.state.client
        self._gate.check_rate(client)
        return client

    def _key(self, client: str) -> str:
        """Whose voices a client may change; an address is nobody for long."""
        return client if self._settings.api_key_digests else ""

    def _saved_id(self, request: Request) -> str:
        voice_id = _id(request)
        if self._built_in.find(voice_id) is not None:
            message = "This voice is built in: it can be used, and neither changed, deleted nor exported."
            raise RightsError("voice_built_in", message, "voice")
        return voice_id


def _id(request: Request) -> str:
    return str(request.path_params["voice_id"])


def _file(disposition: str) -> dict[str, str]:
    return {"content-disposition": disposition, "cache-control": "no-store"}


def _made(voice: Voice) -> Response:
    return JSONResponse(_whole(voice), 201, {"location": f"/v1/audio/voices/{voice.id}"})


def _view(voice: Voice) -> dict[str, Any]:
    told = {"id": voice.id, "object": "voice", "name": voice.name, "language": voice.language}
    return told | {"has_transcript": bool(voice.transcript), "built_in": False, "created": voice.created}


def _whole(voice: Voice) -> dict[str, Any]:
    return _view(voice) | {"transcript": voice.transcript, "consent": voice.consent, "seconds": voice.seconds}


def _built_in_view(name: str, voice: VoiceData) -> dict[str, Any]:
    told = {"id": name, "object": "voice", "name": name, "language": voice.language}
    return told | {"has_transcript": True, "built_in": True, "created": None}
