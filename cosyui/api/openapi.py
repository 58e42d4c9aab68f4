"""The OpenAPI document of the routes under ``/v1``."""

from __future__ import annotations

from functools import cache
from typing import Any

from cosyui import __version__
from cosyui.api.bodies import CloneBody, SpeechBody
from cosyui.speech.sound.encode import MEDIA_TYPES

Schema = dict[str, Any]
NO_NUL = "^[^\\u0000]*$"

TEXT: Schema = {"type": "string"}
SECONDS: Schema = {"type": ["number", "null"]}
ERROR: Schema = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type", "param", "code"],
            "properties": {"message": TEXT, "type": TEXT, "param": {"type": ["string", "null"]}, "code": TEXT},
        }
    },
}
_MODEL: Schema = {
    "type": "object",
    "required": ["id", "object", "created", "owned_by"],
    "properties": {
        "id": TEXT,
        "object": {"const": "model"},
        "created": {"type": "integer"},
        "owned_by": TEXT,
    },
}
_JOB: Schema = {
    "type": "object",
    "required": ["id", "object", "created", "seed", "response_format", "status"],
    "properties": {
        "id": TEXT,
        "object": {"const": "speech.job"},
        "created": {"type": "integer"},
        "seed": {"type": "integer"},
        "response_format": {"enum": list(MEDIA_TYPES)},
        "status": {"enum": ["queued", "running", "done", "failed", "stopped"]},
        "position": {"type": "integer"},
        "estimated_wait_time": SECONDS,
        "progress": {"type": "object", "properties": {"done": SECONDS, "expected": SECONDS, "left": SECONDS}},
        "url": TEXT,
        "seconds": SECONDS,
        "notices": {"type": "array", "items": {"type": "object", "properties": {"code": TEXT, "message": TEXT}}},
        "error": ERROR["properties"]["error"],
    },
}
_JOB_ID: Schema = {
    "name": "job_id",
    "in": "path",
    "required": True,
    "schema": {"type": "string", "pattern": "^[0-9]{6}-[0-9a-f]{8}$"},
}
_KEY: Schema = {"name": "Idempotency-Key", "in": "header", "schema": {"type": "string", "maxLength": 255}}


@cache
def document() -> Schema:
    """Of all routes, with the schemas of bodies, answers and errors."""
    audio: Schema = {kind: {"schema": {"type": "string", "format": "binary"}} for kind in MEDIA_TYPES.values()}
    spoken = audio | {"text/event-stream": {"schema": TEXT}}
    clone = _of_a_form(_schema_of(CloneBody))
    clone["properties"]["clip"] = {"type": "string", "format": "binary", "description": "a recording of the voice"}
    models = {"type": "object", "properties": {"object": {"const": "list"}, "data": {"type": "array", "items": _MODEL}}}
    return {
        "openapi": "3.1.0",
        "info": {"title": "CosyUI", "version": __version__},
        "servers": [{"url": "/v1"}],
        "security": [{}, {"key": []}],
        "components": {
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
            "schemas": {"SpeechBody": _schema_of(SpeechBody), "CloneBody": clone, "Job": _JOB, "Error": ERROR},
        },
        "paths": {
            "/audio/speech": {
                "post": route("Speak a text", spoken, 400, 404, 413, 429, 500, 503, 504) | {"requestBody": _body()}
            },
            "/models": {"get": route("Names of the model", as_json(models))},
            "/models/{model}": {
                "get": route("One of them", as_json(_MODEL), 404),
                "parameters": [{"name": "model", "in": "path", "required": True, "schema": TEXT}],
            },
            "/jobs": {
                "post": route("Start a job", as_json(ref("Job")), 400, 404, 409, 413, 429, 500, 503, status=202)
                | {"requestBody": _body(), "parameters": [_KEY]}
            },
            "/jobs/{job_id}": {
                "get": route("How a job is", as_json(ref("Job")), 404),
                "delete": route("Stop a job", as_json(ref("Job")), 404),
                "parameters": [_JOB_ID],
            },
            "/jobs/{job_id}/result": {
                "get": route("The file of a job", audio, 404, 409, 410),
                "parameters": [_JOB_ID],
            },
        },
    }


def _schema_of(body: type[SpeechBody]) -> Schema:
    schema = body.model_json_schema()
    schema["properties"]["voice"].pop("default", None)
    for field in schema["properties"].values():
        for one in field.get("anyOf", [field]):
            if one.get("type") == "string" and "enum" not in one:
                one["pattern"] = NO_NUL
    return schema


def _of_a_form(schema: Schema) -> Schema:
    """A form has no null: what is not given is left away."""
    for field in schema["properties"].values():
        if "anyOf" in field:
            field["anyOf"] = [one for one in field["anyOf"] if one != {"type": "null"}]
        if field.get("default", "") is None:
            del field["default"]
    return schema


def extended(document: Schema, schemas: Schema, paths: Schema) -> Schema:
    """The document with more of both."""
    known = document["components"]
    components = known | {"schemas": known["schemas"] | schemas}
    return document | {"components": components, "paths": document["paths"] | paths}


def listed(name: str) -> Schema:
    """A list of what this schema is of."""
    data = {"type": "array", "items": ref(name)}
    return {"type": "object", "properties": {"object": {"const": "list"}, "data": data}}


def ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def as_json(schema: Schema) -> Schema:
    return {"application/json": {"schema": schema}}


def _body() -> Schema:
    content = as_json(ref("SpeechBody")) | {"multipart/form-data": {"schema": ref("CloneBody")}}
    return {"required": True, "content": content}


def route(summary: str, content: Schema, *errors: int, status: int = 200) -> Schema:
    """Any route may answer 401, too."""
    answers: Schema = {str(status): {"description": summary, "content": content}}
    for code in sorted({401, *errors}):
        answers[str(code)] = {"description": "An error", "content": as_json(ref("Error"))}
    return {"summary": summary, "responses": answers}
