"""What the OpenAPI document tells of batches."""

from __future__ import annotations

from cosyui.api.batches import FORM_FIELDS, LONGEST_PAUSE
from cosyui.api.openapi import ERROR, NO_NUL, SECONDS, TEXT, Schema, as_json, extended, listed, ref, route
from cosyui.service.batch_input import KINDS
from cosyui.service.batch_lines import LONGEST_NAME

_WORDS: Schema = {"type": "string", "pattern": NO_NUL}
_COUNT: Schema = {"type": "integer", "minimum": 0}
_PAUSE: Schema = {"type": "number", "minimum": 0, "maximum": LONGEST_PAUSE}
_ID: Schema = {"name": "batch_id", "in": "path", "required": True, "schema": TEXT}
_LINE: Schema = {
    "type": "object",
    "additionalProperties": False,
    "required": ["text"],
    "properties": {
        "text": _WORDS,
        "voice": _WORDS,
        "instruction": _WORDS,
        "speed": {"type": "number", "minimum": 0.5, "maximum": 2},
        "seed": {"type": "integer", "minimum": 0, "maximum": 2147483647},
        "language": _WORDS,
        "name": {**_WORDS, "maxLength": LONGEST_NAME, "description": "who speaks, or what the line is called"},
    },
}
_OPTIONS: Schema = {
    "cast": {"type": "object", "additionalProperties": _WORDS, "description": "voices by the names of those who speak"},
    "voice": {**_WORDS, "description": "of lines that have none"},
    "pause": {"anyOf": [_PAUSE, {"type": "null"}], "description": "seconds between two lines of the joined file"},
}
_BODY: Schema = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "lines": {"type": "array", "items": _LINE},
        "script": {**_WORDS, "description": "a dialogue, as in `Anna: Hello.`"},
        **_OPTIONS,
    },
    "oneOf": [{"required": ["lines"]}, {"required": ["script"]}],
}
_FORM: Schema = {
    "type": "object",
    "additionalProperties": False,
    "required": ["file"],
    "properties": {
        "file": {"type": "string", "format": "binary", "description": "CSV with a header, JSON Lines, or a dialogue"},
        "format": {"enum": list(KINDS), "description": "told by the ending of the file's name if it is left away"},
        "cast": {**_WORDS, "contentMediaType": "application/json"},
        "voice": _OPTIONS["voice"],
        "pause": _PAUSE,
    },
}
assert set(_FORM["properties"]) == {"file", *FORM_FIELDS}
_SHORT_ERROR: Schema = {"type": "object", "properties": {"code": TEXT, "message": TEXT}}
_MADE: Schema = {
    "type": "object",
    "required": ["line", "name", "voice", "status", "seed", "seconds"],
    "properties": {
        "line": {"type": "integer"},
        "name": TEXT,
        "voice": TEXT,
        "status": {"enum": ["waiting", "working", "done", "failed"]},
        "seed": {"type": "integer"},
        "seconds": {"type": "number"},
        "error": _SHORT_ERROR,
    },
}
_BATCH: Schema = {
    "type": "object",
    "required": ["id", "object", "created", "status", "counts", "seconds", "pause"],
    "properties": {
        "id": TEXT,
        "object": {"const": "batch"},
        "created": {"type": "integer"},
        "status": {"enum": ["working", "stopped", "paused", "done"]},
        "counts": {"type": "object", "properties": dict.fromkeys(("done", "failed", "waiting", "total"), _COUNT)},
        "seconds": {"type": "number"},
        "pause": {"type": "number"},
        "estimated_time_left": SECONDS,
        "url": TEXT,
        "error": _SHORT_ERROR,
        "lines": {"type": "array", "items": _MADE},
    },
}
_PROBLEM: Schema = {
    "type": "object",
    "properties": {"line": {"type": "integer"}, "code": TEXT, "param": {"type": ["string", "null"]}, "message": TEXT},
}


def with_batches(document: Schema) -> Schema:
    """The document, with the routes of batches."""
    inner = ERROR["properties"]["error"]
    inner = inner | {
        "properties": inner["properties"] | {"problems": {"type": "array", "items": _PROBLEM}, "count": _COUNT}
    }
    refusal = ERROR | {"properties": {"error": inner}}
    own = {"Batch": _BATCH, "BatchBody": _BODY, "BatchForm": _FORM, "BatchError": refusal}
    return extended(document, own, _paths())


def _paths() -> Schema:
    batch = as_json(ref("Batch"))
    content = as_json(ref("BatchBody")) | {"multipart/form-data": {"schema": ref("BatchForm")}}
    start = route("Start a batch", batch, 403, 409, 413, 429, 500, status=202)
    start["responses"]["400"] = {"description": "Problems, by lines", "content": as_json(ref("BatchError"))}
    archive = {"application/zip": {"schema": {"type": "string", "format": "binary"}}}
    remove = route("Stop and delete a batch", {}, 404, 500, status=204)
    return {
        "/batches": {
            "get": route("Your batches", as_json(listed("Batch")), 500),
            "post": start | {"requestBody": {"required": True, "content": content}},
        },
        "/batches/{batch_id}": {
            "get": route("How a batch is, with its lines", batch, 404, 500),
            "delete": remove,
            "parameters": [_ID],
        },
        "/batches/{batch_id}/result": {
            "get": route("Sound and subtitles of what is made", archive, 404, 409, 500),
            "parameters": [_ID],
        },
        "/batches/{batch_id}/stop": {
            "post": route("Stop a batch; what is made stays", batch, 404, 500),
            "parameters": [_ID],
        },
        "/batches/{batch_id}/resume": {
            "post": route("Make what is missing or has failed", batch, 404, 429, 500),
            "parameters": [_ID],
        },
    }
