"""``/metrics`` for Prometheus: figures of the service, for whoever may use the API."""

from __future__ import annotations

from fastapi import APIRouter, Request
from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4
from starlette.responses import Response

from cosyui.api.gate import Gate
from cosyui.api.problems import error_response
from cosyui.errors import CosyuiError
from cosyui.service.rights import UNPROVEN
from cosyui.service.service import SynthesisService


def metrics_router(service: SynthesisService, gate: Gate) -> APIRouter:
    """Needs an API key where the API needs one (Prometheus: ``authorization: credentials``)."""
    router = APIRouter(tags=["metrics"])

    @router.get("/metrics")
    async def metrics(request: Request) -> Response:
        address = request.client.host if request.client is not None else UNPROVEN
        try:
            gate.client(request.headers.get("authorization"), address)
        except CosyuiError as error:
            return error_response(error)
        return Response(service.operations.metrics.text(), media_type=CONTENT_TYPE_PLAIN_0_0_4)

    return router
