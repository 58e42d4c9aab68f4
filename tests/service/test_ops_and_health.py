"""Health routes and the log."""

import io
import json
import logging

import pytest

from cosyui.host.config import FakeScript
from cosyui.ops.logs import JsonFormatter, log, relay, setup_logging
from cosyui.service.types import Done
from tests.service.watching import follow, http


@pytest.mark.anyio
async def test_ready_only_with_a_loaded_engine(fake_service):
    async with fake_service() as service, http(service) as client:
        assert (await client.get("/health/live")).status_code == 200
        answer = await client.get("/health/ready")
        assert (answer.status_code, answer.json()["engine"]) == (200, "ready")
        await service.close()
        assert (await client.get("/health/live")).status_code == 200
        assert (await client.get("/health/ready")).status_code == 503


@pytest.mark.anyio
async def test_a_failed_self_test_is_told_and_takes_are_made(fake_service, form):
    async with fake_service() as service, http(service) as client:
        assert (await client.get("/health/ready")).json()["degraded"] is None
        assert service.overview().problems == ()
    script = FakeScript(directives="[fake:degraded]")
    async with fake_service(engines=2, script=script) as service, http(service) as client:
        for engine in service.client.engines:
            await engine.wait_until("ready")
        answer = await client.get("/health/ready")
        assert (answer.status_code, answer.json()["status"]) == (200, "ready")
        assert answer.json()["degraded"].startswith("Self-test")
        assert [problem.code for problem in service.overview().problems] == ["self_test_take"] * 2
        assert isinstance((await follow(await service.submit(form())))[-1], Done)


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("directives", "engine", "code"),
    [("[fake:load_hang]", "starting", None), ("[fake:load_error]", "broken", "checkpoint_missing_file")],
)
async def test_not_ready_says_why(fake_service, directives, engine, code):
    async with fake_service(wait=False, script=FakeScript(directives=directives)) as service, http(service) as client:
        await service.client.wait_until(engine)
        answer = await client.get("/health/ready")
        assert answer.status_code == 503
        assert (answer.json()["engine"], answer.json()["code"]) == (engine, code)
        assert (await client.get("/health/live")).status_code == 200


@pytest.fixture
def lines():
    """The JSON lines logged meanwhile; the logging of the test run is put back afterwards."""
    root = logging.getLogger("cosyui")
    before = root.handlers[:], root.level, root.propagate
    stream = io.StringIO()
    setup_logging("info", stream)
    yield lambda: [json.loads(line) for line in stream.getvalue().splitlines()]
    root.handlers[:], root.level, root.propagate = before


def test_log_lines_are_json_with_fields(lines):
    logger = logging.getLogger("cosyui.test")
    log(logger, logging.INFO, "request", request_id="a", rtf=0.12345, code=None)
    log(logger, logging.DEBUG, "unseen")
    (line,) = lines()
    assert (line["event"], line["level"], line["request_id"], line["rtf"]) == ("request", "info", "a", 0.123)


def test_lines_of_the_engine_keep_their_level_and_fields(lines):
    logger = logging.getLogger("cosyui.test")
    record = logging.makeLogRecord({"name": "x", "levelno": 40, "levelname": "ERROR", "msg": "bad", "request_id": "a"})
    relay(logger, JsonFormatter().format(record), pid=1)
    texts = ["plain words", "[1, 2]", '{"a": 1}', '"event"', "[" * 8000]
    for text in texts:
        relay(logger, text, pid=1)
    first, *others = lines()
    assert (first["event"], first["level"], first["request_id"], first["pid"]) == ("bad", "error", "a", 1)
    assert [line["event"] for line in others] == ["engine_stderr"] * len(texts)
    assert [line["line"] for line in others] == texts
