"""Errors of the API in OpenAI's shape: ``{"error": {"message", "type", "param", "code"}}`` with an HTTP status."""

from __future__ import annotations

from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from cosyui.errors import CosyuiError
from cosyui.service.types import FormError

PARAMS = {"text": "input", "instruction": "instructions"}
"""How the API calls fields of a form that have another name here."""
_TYPES = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}


class ApiError(CosyuiError):
    """A request that the API itself cannot take; ``retry_after``: seconds after which it may; ``allow``: methods."""

    def __init__(
        self,
        code: str,
        message: str,
        field: str | None = None,
        *,
        status: int = 400,
        retry_after: int = 0,
        allow: str = "",
    ) -> None:
        super().__init__(code, message, field)
        self.status = status
        self.retry_after = retry_after
        self.allow = allow


def error_object(error: CosyuiError) -> dict[str, Any]:
    """What stands under ``error``; the sentences of all problems of a form, code and parameter of the first."""
    every = error.problems if isinstance(error, FormError) else (error,)
    kind = _TYPES.get(error.status, "invalid_request_error" if error.status < 500 else "server_error")
    message = " ".join(dict.fromkeys(one.message for one in every))
    param = PARAMS.get(error.field or "", error.field)
    return {"message": message, "type": kind, "param": param, "code": error.code}


def error_response(error: CosyuiError) -> JSONResponse:
    headers: dict[str, str] = {}
    retry_after: int = getattr(error, "retry_after", 0)
    if retry_after:
        headers["retry-after"] = str(retry_after)
    if isinstance(error, ApiError) and error.allow:
        headers["allow"] = error.allow
    if error.status == 401:
        headers["www-authenticate"] = "Bearer"
    return JSONResponse({"error": error_object(error)}, error.status, headers)


def unknown_route(error: HTTPException) -> ApiError:
    """What the router says, in the API's words."""
    message = f"There is no such address or method here (HTTP {error.status_code}); see /v1/openapi.json."
    allow = (error.headers or {}).get("Allow", "")
    return ApiError("route_unknown", message, status=error.status_code, allow=allow)


async def not_found(request: Request, error: Exception) -> Response:
    """For addresses that reach no route at all, as one with a line break in it."""
    assert isinstance(error, HTTPException)
    if request.url.path.startswith("/v1/"):
        return error_response(unknown_route(error))
    return JSONResponse({"code": "route_unknown", "message": "There is nothing here."}, 404)
