"""Health routes for whoever restarts or routes to this server. They tell states and codes, nothing of requests."""

from __future__ import annotations

from fastapi import APIRouter
from fastapi.responses import JSONResponse

from cosyui.service.service import SynthesisService


def health_router(service: SynthesisService) -> APIRouter:
    """``/health/live``: 200 while this process answers. ``/health/ready``: 200 when a request would be worked on,

    also if it had to load the model first, else 503; with the engine's state, how far it is loaded and, if there is
    one, the problem's code and sentence. ``degraded``: why takes may be nonsense, None if the self-test says nothing.
    Asking starts nothing.
    """
    router = APIRouter(prefix="/health", tags=["health"])

    @router.get("/live")
    async def live() -> JSONResponse:
        return JSONResponse({"status": "alive"})

    @router.get("/ready")
    async def ready() -> JSONResponse:
        problem, progress, facts = service.client.problem, service.client.progress, service.client.facts
        degraded = facts.degraded if facts is not None else None
        body = {
            "status": "ready" if service.ready else "draining" if service.draining else "not ready",
            "engine": service.client.state,
            "loading": None if progress is None else {"stage": progress.stage, "share": round(progress.share, 3)},
            "degraded": degraded.message if degraded is not None else None,
            "code": problem.code if problem is not None else None,
            "message": problem.message if problem is not None else None,
        }
        return JSONResponse(body, status_code=200 if service.ready else 503)

    return router
