"""What the OpenAPI document tells of voices."""

from __future__ import annotations

from cosyui.api.openapi import TEXT, Schema, as_json, extended, listed, ref, route
from cosyui.service.voice_names import BuiltInVoices
from cosyui.service.voice_record import ID_PATTERN, LONGEST_CONSENT, LONGEST_NAME
from cosyui.speech.text.language import KNOWN_LANGUAGES
from cosyui.speech.text.screen import MAX_TRANSCRIPT_CHARS

_BLANK = r"[\s\u001c-\u001f\u0085]"
_IN_LINE = r"[^\u0000-\u001f\u007f-\u009f\u2028\u2029\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]"
"""Neither a control character nor the end of a line, nor one that changes the direction of writing."""
_NAME = rf"^{_BLANK}*{_IN_LINE}*(\p{{L}}|\p{{N}}|\p{{P}}|\p{{S}}){_IN_LINE}*{_BLANK}*$"
_SOMETHING = r"[^\s\u0000-\u001f\u007f-\u009f]"
_ID: Schema = {
    "name": "voice_id",
    "in": "path",
    "required": True,
    "schema": {"type": "string", "pattern": f"{ID_PATTERN}|^({'|'.join(BuiltInVoices().list())})$"},
}
_FILE: Schema = {"type": "string", "format": "binary"}
_OPTIONAL: Schema = {"type": ["string", "null"]}
_WORDS: Schema = {
    "name": {
        "type": "string",
        "minLength": 1,
        "maxLength": LONGEST_NAME,
        "pattern": _NAME,
        "description": "something that can be seen, in one line; no other voice has it, if only in other capitals",
    },
    "transcript": {
        "type": "string",
        "maxLength": MAX_TRANSCRIPT_CHARS,
        "pattern": rf"^{_BLANK}*$|\p{{L}}|\p{{N}}",
        "description": "what is said in the clip; empty: it is used across languages",
    },
    "language": {"enum": [*KNOWN_LANGUAGES, "auto", ""], "description": "of the clip, as in `en`; empty: any"},
    "consent": {
        "type": "string",
        "minLength": 1,
        "maxLength": LONGEST_CONSENT,
        "pattern": _SOMETHING,
        "description": "who agreed that the voice is used",
    },
}
_CHANGES: Schema = _WORDS | {
    "transcript": {"anyOf": [_WORDS["transcript"], {"type": "null"}]},
    "language": {"enum": [*_WORDS["language"]["enum"], None], "description": _WORDS["language"]["description"]},
}
"""JSON has null, which is empty; a form has none."""
_VOICE: Schema = {
    "type": "object",
    "required": ["id", "object", "name", "language", "has_transcript", "built_in", "created"],
    "properties": {
        "id": TEXT,
        "object": {"const": "voice"},
        "name": TEXT,
        "language": _OPTIONAL,
        "has_transcript": {"type": "boolean"},
        "built_in": {"type": "boolean"},
        "created": {"type": ["integer", "null"]},
        "transcript": TEXT,
        "consent": TEXT,
        "seconds": {"type": "number"},
    },
}


def with_voices(document: Schema) -> Schema:
    """The document, with the routes of voices."""
    return extended(document, {"Voice": _VOICE}, _paths())


def _paths() -> Schema:
    voice = as_json(ref("Voice"))
    made = (400, 409, 413, 429, 500)
    add = _form({"clip": _FILE, **_WORDS}, ["name", "clip", "consent"], clip="audio/*")
    change = {"required": True, "content": as_json(_object(_CHANGES, []))}
    take = _form(
        {"file": _FILE, "name": _WORDS["name"] | {"minLength": 0, "pattern": f"^$|{_NAME}"}},
        ["file"],
        file="application/zip",
    )
    remove = route("Delete a saved voice", {}, 403, 404, 429, 500, status=204)
    return {
        "/audio/voices": {
            "get": route("All voices", as_json(listed("Voice"))),
            "post": route("Save a voice", voice, *made, status=201) | {"requestBody": add},
        },
        "/audio/voices/import": {
            "post": route("Save a voice that was exported", voice, *made, status=201) | {"requestBody": take},
        },
        "/audio/voices/{voice_id}": {
            "get": route("One voice", voice, 404),
            "patch": route("Change the words of a voice", voice, 403, 404, *made) | {"requestBody": change},
            "delete": remove,
            "parameters": [_ID],
        },
        "/audio/voices/{voice_id}/preview": {
            "get": route("Its clip", {"audio/wav": {"schema": _FILE}}, 404),
            "parameters": [_ID],
        },
        "/audio/voices/{voice_id}/export": {
            "get": route("A file of it, to be imported", {"application/zip": {"schema": _FILE}}, 403, 404),
            "parameters": [_ID],
        },
    }


def _form(fields: Schema, required: list[str], **files: str) -> Schema:
    """``files`` are those of its fields that are files, with the media type."""
    body: Schema = {"schema": _object(fields, required)}
    body["encoding"] = {name: {"contentType": kind} for name, kind in files.items()}
    return {"required": True, "content": {"multipart/form-data": body}}


def _object(fields: Schema, required: list[str]) -> Schema:
    return {"type": "object", "required": required, "properties": fields, "additionalProperties": False}
