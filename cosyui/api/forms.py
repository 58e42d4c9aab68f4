"""Bodies of requests that are about voices: forms with one file, and JSON objects of texts, read within bounds."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from python_multipart.exceptions import FormParserError
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.formparsers import MultiPartException
from starlette.requests import Request

from cosyui.api.bodies import MOST_FIELDS, bounded, too_large
from cosyui.api.problems import ApiError
from cosyui.settings import Settings


@dataclass(frozen=True)
class Upload:
    """A file of a form, with the name that its owner gave it."""

    name: str
    data: bytes


async def read_form(
    request: Request, settings: Settings, file: str, most: int, fields: Collection[str]
) -> tuple[dict[str, str], bytes | None]:
    """As `read_upload`, without the name."""
    texts, upload = await read_upload(request, settings, file, most, fields)
    return texts, upload.data if upload is not None else None


async def read_upload(
    request: Request, settings: Settings, file: str, most: int, fields: Collection[str]
) -> tuple[dict[str, str], Upload | None]:
    """Its texts, and its ``file``, of which there may be ``most`` bytes.

    Raises ApiError ``body_invalid``, ``body_too_large``, ``parameter_invalid`` or ``parameter_unknown``.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "multipart/form-data":
        raise ApiError("body_invalid", f"Send the body as multipart/form-data, with a file that is called {file}.")
    request = bounded(request, settings.body_max_bytes + most)
    try:
        form = await request.form(max_files=1, max_fields=MOST_FIELDS, max_part_size=settings.body_max_bytes)
    except (HTTPException, MultiPartException, FormParserError):
        message = f"The form cannot be read: it has up to {MOST_FIELDS} fields and one file, which is called {file}."
        raise ApiError("body_invalid", message) from None
    try:
        given: dict[str, Any] = dict(form)
        upload = given.pop(file, None)
        if isinstance(upload, str) or any(isinstance(value, UploadFile) for value in given.values()):
            raise ApiError("parameter_invalid", f"The form's file, and nothing else, is called {file}.", file)
        if upload is not None and (upload.size or 0) > most:
            raise too_large(most)
        texts = _texts(given, fields)
        return texts, Upload(upload.filename or "", await upload.read()) if upload is not None else None
    finally:
        await form.close()


async def read_texts(request: Request, settings: Settings, fields: Collection[str]) -> dict[str, str]:
    """A JSON object of texts; null is an empty one.

    Raises ApiError ``body_invalid``, ``body_too_large``, ``parameter_invalid`` or ``parameter_unknown``.
    """
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise ApiError("body_invalid", "Send the body as application/json.")
    data = await bounded(request, settings.body_max_bytes).body()
    try:
        given = json.loads(data)
    except (ValueError, RecursionError):
        raise ApiError("body_invalid", "The body is no valid JSON.") from None
    if not isinstance(given, dict):
        raise ApiError("body_invalid", "The body must be a JSON object.")
    return _texts(given, fields)


def _texts(given: Mapping[str, Any], fields: Collection[str]) -> dict[str, str]:
    texts: dict[str, str] = {}
    for name, value in given.items():
        shown = name[:64].encode("utf-8", "replace").decode()
        if name not in fields:
            raise ApiError("parameter_unknown", f"There is no parameter {shown}; there are {', '.join(fields)}.", shown)
        if not isinstance(value, str | None) or any("\ud800" <= char <= "\udfff" for char in value or ""):
            raise ApiError("parameter_invalid", f"The parameter {shown} must be a text without lone surrogates.", shown)
        texts[name] = value or ""
    return texts
