"""Figures for Prometheus, for whoever may use the API."""

import httpx
import pytest
from fastapi import FastAPI
from prometheus_client.parser import text_string_to_metric_families

from cosyui.api.metrics import metrics_router
from cosyui.api.v1 import V1
from cosyui.service.types import Done
from cosyui.service.voice_names import BuiltInVoices
from tests.service.conftest import anyio_backend, clip, fake_service, form, new_service  # noqa: F401

pytestmark = pytest.mark.anyio


def scraper(service):
    app = FastAPI()
    app.include_router(metrics_router(service, V1(service, BuiltInVoices()).gate))
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test")


async def test_a_take_is_counted_and_nothing_of_it_told(fake_service, form):  # noqa: F811
    async with fake_service() as service, scraper(service) as http:
        ticket = await service.submit(form("Nobody shall see this.", client="somebody"))
        assert isinstance([update async for update in ticket.updates()][-1], Done)
        service.operations.sampler.tick()
        answer = await http.get("/metrics")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain")
    figures = {
        one.name: one.value
        for family in text_string_to_metric_families(answer.text)
        for one in family.samples
        if not one.labels or one.labels.get("outcome") == "done"
    }
    assert figures["cosyui_requests_total"] == 1
    assert figures["cosyui_request_seconds_count"] == 1
    assert figures["cosyui_speech_seconds_total"] > 0.5
    assert figures["cosyui_ready"] == 1
    assert not any(private in answer.text for private in ("Nobody", "somebody", ticket.id))


async def test_it_needs_a_key_where_the_api_does(fake_service):  # noqa: F811
    async with fake_service(api_keys="right-key-of-somebody") as service, scraper(service) as http:
        refused = await http.get("/metrics")
        let_in = await http.get("/metrics", headers={"authorization": "Bearer right-key-of-somebody"})
    assert (refused.status_code, refused.json()["error"]["code"]) == (401, "api_key_missing")
    assert let_in.status_code == 200
