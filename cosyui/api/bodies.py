"""Bodies of requests for speech: read within bounds, from JSON or from a form with a clip, and checked for their types.

What they ask for is checked by the service.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NoReturn, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, field_validator
from python_multipart.exceptions import FormParserError
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.formparsers import MultiPartException
from starlette.requests import ClientDisconnect, Request
from starlette.types import Message, Receive

from cosyui.api.problems import ApiError
from cosyui.engine.request import SAMPLE_RATE
from cosyui.settings import Settings
from cosyui.speech.sound.encode import RATES

DRAINED = 64 << 20
"""Bytes of a body over its limit that are read and thrown away: most clients hear nothing before they sent all."""
MOST_FIELDS = 30


def _plain(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError("half a character (a lone surrogate) is no text") from None
    if "\0" in text:
        raise ValueError("a NUL character is no text")
    return text


Text = Annotated[str, AfterValidator(_plain)]


class SpeechBody(BaseModel):
    """OpenAI's fields; from ``seed`` on our own."""

    model_config = ConfigDict(extra="forbid", frozen=True, protected_namespaces=())

    model: Text = Field(description="the loaded model's name, `cosyui`, or one of OpenAI's names for such models")
    input: Text = Field(description="the text to speak")
    voice: Text | None = Field(
        None,
        description='a voice\'s name, or `{"id": name}`; needed unless a form brings a clip',
        json_schema_extra={
            "anyOf": [
                {"type": "string"},
                {
                    "type": "object",
                    "properties": {"id": {"type": "string"}},
                    "required": ["id"],
                    "additionalProperties": False,
                },
            ]
        },
    )
    instructions: Text | None = Field(None, description="how to speak: a dialect, an emotion, a pace")
    response_format: Literal["mp3", "opus", "aac", "flac", "wav", "pcm"] = "mp3"
    speed: float = Field(1.0, allow_inf_nan=False, description="0.5 to 2")
    stream_format: Literal["audio", "sse"] = "audio"
    seed: int | None = Field(None, description="0 to 2147483647: the same seed gives the same take again")
    sample_rate: int = Field(SAMPLE_RATE, json_schema_extra={"enum": list(RATES)}, description="Hz")
    language: Text | None = Field(None, description="of the text, as in `en`; found out if it is left away")
    deadline: float | None = Field(
        None, allow_inf_nan=False, description="seconds after which nobody wants the result any more"
    )

    @field_validator("voice", mode="before")
    @classmethod
    def _named(cls, voice: Any) -> Any:
        return voice["id"] if isinstance(voice, dict) and list(voice) == ["id"] else voice


class CloneBody(SpeechBody):
    """The fields of a form; its file is ``clip``."""

    transcript: Text = Field("", description="what is said in the clip; without it, it is used across languages")


Body = TypeVar("Body", bound=BaseModel)


@dataclass(frozen=True)
class Wish:
    """What a request brought."""

    body: SpeechBody
    clip: bytes | None = None
    transcript: str = ""

    def fingerprint(self) -> bytes:
        """The same for requests that ask for the same; takes a while for a large clip."""
        clip = hashlib.sha256(self.clip or b"").digest()
        return hashlib.sha256(self.body.model_dump_json().encode() + clip).digest()


async def read_wish(request: Request, settings: Settings) -> Wish:
    """Raises ApiError ``body_invalid``, ``body_too_large``, ``parameter_missing``, ``parameter_invalid`` or

    ``parameter_unknown``.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == "multipart/form-data":
        return await _read_form(bounded(request, settings.body_max_bytes + settings.clip_max_bytes), settings)
    if kind != "application/json":
        message = "Send the body as application/json, or as multipart/form-data if it has a clip."
        raise ApiError("body_invalid", message)
    fields = json_of(await bounded(request, settings.body_max_bytes).body())
    if not isinstance(fields, dict):
        raise ApiError("body_invalid", "The body must be a JSON object.")
    return Wish(body=checked(SpeechBody, fields, strict=True))


def json_of(data: bytes | str) -> Any:
    """Raises ApiError ``body_invalid`` for what is no JSON."""
    try:
        return json.loads(data, parse_constant=_no_number)
    except (ValueError, RecursionError):
        raise ApiError("body_invalid", "The body is no valid JSON.") from None


async def _read_form(request: Request, settings: Settings) -> Wish:
    try:
        form = await request.form(max_files=1, max_fields=MOST_FIELDS, max_part_size=settings.body_max_bytes)
    except (HTTPException, MultiPartException, FormParserError):
        message = f"The form cannot be read: it has up to {MOST_FIELDS} fields and one file, which is called clip."
        raise ApiError("body_invalid", message) from None
    try:
        fields: dict[str, Any] = dict(form)
        upload = fields.pop("clip", None)
        if isinstance(upload, str) or any(isinstance(value, UploadFile) for value in fields.values()):
            raise ApiError("parameter_invalid", "The form's file, and nothing else, is called clip.", "clip")
        clip = None
        if upload is not None:
            if (upload.size or 0) > settings.clip_max_bytes:
                raise too_large(settings.clip_max_bytes)
            clip = await upload.read()
    finally:
        await form.close()
    body = checked(CloneBody, fields, strict=False)
    return Wish(body=body, clip=clip, transcript=body.transcript)


def checked(kind: type[Body], fields: dict[str, Any], *, strict: bool) -> Body:
    """A form has text only: there a number may be one that is written. Raises ApiError as `read_wish`."""
    try:
        return kind.model_validate(fields, strict=strict)
    except ValidationError as error:
        _refuse(error, kind)


def _refuse(error: ValidationError, kind: type[BaseModel]) -> NoReturn:
    """The first thing that is wrong."""
    detail = error.errors(include_url=False, include_input=False, include_context=False)[0]
    if not detail["loc"]:  # a name that is no text
        raise ApiError("body_invalid", "The body is no valid JSON.")
    param = str(detail["loc"][0])[:64]
    match detail["type"]:
        case "missing":
            raise ApiError("parameter_missing", f"The parameter {param} is missing.", param)
        case "extra_forbidden":
            raise ApiError("parameter_unknown", f"There is no parameter {param}.", param)
    reason = detail["msg"].removeprefix("Value error, ")
    about = kind.model_fields[param].description
    hint = f" ({about})" if about else ""
    raise ApiError("parameter_invalid", f"The parameter {param} is not possible: {reason}{hint}.", param)


def _no_number(name: str) -> NoReturn:
    raise ValueError(name)


def bounded(request: Request, limit: int) -> Request:
    """The same request; reading more than ``limit`` bytes of it raises ApiError ``body_too_large``."""
    told = request.headers.get("content-length", "")
    if told.isdecimal() and int(told) > limit and (int(told) > DRAINED or "expect" in request.headers):
        raise too_large(limit)
    return Request(request.scope, _counted(request.receive, limit))


def _counted(receive: Receive, limit: int) -> Receive:
    read = 0

    async def bounded() -> Message:
        nonlocal read
        message = await receive()
        read += len(message.get("body", b""))
        if read <= limit:
            return message
        while message.get("more_body", False) and read <= DRAINED:
            message = await receive()
            read += len(message.get("body", b""))
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        raise too_large(limit)

    return bounded


def too_large(limit: int) -> ApiError:
    message = f"The body is too large; {limit / 2**20:.1f} MB are allowed."
    return ApiError("body_too_large", message, status=413)
