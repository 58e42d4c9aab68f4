"""What the OpenAPI document tells of voices."""

from __future__ import annotations

from cosyui.api.openapi import _TEXT, Schema, _json, _ref, _route

_ID: Schema = {"name": "voice_id", "in": "path", "required": True, "schema": _TEXT}
_FILE: Schema = {"type": "string", "format": "binary"}
_OPTIONAL: Schema = {"type": ["string", "null"]}
_WORDS: Schema = {
    "name": {"type": "string", "maxLength": 80},
    "transcript": {"type": "string", "description": "what is said in the clip; empty: it is used across languages"},
    "language": _OPTIONAL | {"description": "of the clip, as in `en`"},
    "consent": {"type": "string", "maxLength": 1000, "description": "who agreed that the voice is used"},
}
_VOICE: Schema = {
    "type": "object",
    "required": ["id", "object", "name", "language", "has_transcript", "built_in", "created"],
    "properties": {
        "id": _TEXT,
        "object": {"const": "voice"},
        "name": _TEXT,
        "language": _OPTIONAL,
        "has_transcript": {"type": "boolean"},
        "built_in": {"type": "boolean"},
        "created": {"type": ["integer", "null"]},
        "transcript": _TEXT,
        "consent": _TEXT,
        "seconds": {"type": "number"},
    },
}


def with_voices(document: Schema) -> Schema:
    """The document, with the routes of voices."""
    schemas = document["components"]["schemas"] | {"Voice": _VOICE}
    components = document["components"] | {"schemas": schemas}
    return document | {"components": components, "paths": document["paths"] | _paths()}


def _paths() -> Schema:
    voice = _json(_ref("Voice"))
    listed = {
        "type": "object",
        "properties": {"object": {"const": "list"}, "data": {"type": "array", "items": _ref("Voice")}},
    }
    made = (400, 409, 413, 429, 500)
    add = _form({"clip": _FILE, **_WORDS}, ["name", "clip", "consent"])
    change = {"required": True, "content": _json({"type": "object", "properties": _WORDS})}
    take = _form({"file": _FILE, "name": _WORDS["name"]}, ["file"])
    remove = _route("Delete a saved voice", {}, 403, 404, 429, 500, status=204)
    return {
        "/audio/voices": {
            "get": _route("All voices", _json(listed)),
            "post": _route("Save a voice", voice, *made, status=201) | {"requestBody": add},
        },
        "/audio/voices/import": {
            "post": _route("Save a voice that was exported", voice, *made, status=201) | {"requestBody": take},
        },
        "/audio/voices/{voice_id}": {
            "get": _route("One voice", voice, 404),
            "patch": _route("Change the words of a voice", voice, 403, 404, *made) | {"requestBody": change},
            "delete": remove,
            "parameters": [_ID],
        },
        "/audio/voices/{voice_id}/preview": {
            "get": _route("Its clip", {"audio/wav": {"schema": _FILE}}, 404),
            "parameters": [_ID],
        },
        "/audio/voices/{voice_id}/export": {
            "get": _route("A file of it, to be imported", {"application/zip": {"schema": _FILE}}, 403, 404),
            "parameters": [_ID],
        },
    }


def _form(fields: Schema, required: list[str]) -> Schema:
    schema = {"type": "object", "required": required, "properties": fields}
    return {"required": True, "content": {"multipart/form-data": {"schema": schema}}}
