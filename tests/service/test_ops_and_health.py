"""Health routes, the monitor and the log."""

import io
import json
import logging
import os
import subprocess
import sys
from types import SimpleNamespace

import httpx
import pytest
from fastapi import FastAPI

from cosyui.api.health import health_router
from cosyui.host.config import FakeScript
from cosyui.ops.logs import JsonFormatter, log, relay, setup_logging
from cosyui.ops.monitor import Monitor, Nvml


def http(service):
    app = FastAPI()
    app.include_router(health_router(service))
    return httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://test")


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


class FakeNVMLError(Exception):
    pass


def nvml(**functions):
    """A stand-in for pynvml where every function fails that is not given."""

    def fail(*_):
        raise FakeNVMLError

    names = "Init DeviceGetCount DeviceGetHandleByIndex DeviceGetMemoryInfo DeviceGetUtilizationRates DeviceGetUUID"
    names += " DeviceGetName DeviceGetTemperature Shutdown"
    module = {f"nvml{name}": functions.get(name, fail) for name in names.split()}
    return Nvml(SimpleNamespace(NVMLError=FakeNVMLError, NVML_TEMPERATURE_GPU=0, **module))


def test_no_driver_means_no_gpus():
    assert nvml().gpus() == ()
    assert nvml(Init=lambda: None).gpus() == ()


def test_each_figure_of_a_gpu_may_be_missing():
    def handle(index):
        if index == 1:
            raise FakeNVMLError
        return index

    working = {"Init": lambda: None, "DeviceGetCount": lambda: 3, "DeviceGetHandleByIndex": handle}
    bare = nvml(**working).gpus()
    assert [(gpu.used, gpu.total, gpu.utilisation, gpu.temperature) for gpu in bare] == [(None,) * 4] * 2
    memory = SimpleNamespace(used=3, total=8)
    full = nvml(**working, DeviceGetMemoryInfo=lambda _: memory, DeviceGetUUID=lambda handle: f"GPU-{handle}".encode())
    assert [(gpu.uuid, gpu.used, gpu.total) for gpu in full.gpus()] == [("GPU-0", 3, 8), ("GPU-2", 3, 8)]


def test_monitor_follows_a_process_that_ends():
    monitor = Monitor(nvml())
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        sample = monitor.sample(child.pid)
        assert sample.process.pid == os.getpid()
        assert sample.process.rss > 1 << 20
        assert sample.engine.pid == child.pid
        assert 0 < sample.ram_available <= sample.ram_total
        child.communicate(b"\n")
    assert monitor.sample(child.pid).engine is None
    assert monitor.sample().engine is None


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
    for text in ("plain words", "[1, 2]", '{"a": 1}', '"event"'):
        relay(logger, text, pid=1)
    first, *others = lines()
    assert (first["event"], first["level"], first["request_id"], first["pid"]) == ("bad", "error", "a", 1)
    assert [line["event"] for line in others] == ["engine_stderr"] * 4
    assert [line["line"] for line in others] == ["plain words", "[1, 2]", '{"a": 1}', '"event"']
