"""Everything at once, by chance: whatever meets whatever, each take ends once, and nothing is left over.

Longer storms, by seeds of one's own: ``STORM_SEEDS="11 12 13" python -m pytest tests/service/test_chaos.py``.
"""

import asyncio
import os
import random
import threading

import psutil
import pytest

from cosyui.host.config import FakeScript
from cosyui.host.process import EngineProcess
from cosyui.service import recorder
from tests.service.storm import Storm

pytestmark = pytest.mark.anyio
GIVEN = os.environ.get("STORM_SEEDS")
SIZE = {"clients": 6, "takes": 5} if GIVEN else {"clients": 3, "takes": 2}


@pytest.fixture
def processes(monkeypatch):
    """Each engine's process that was started."""
    started = []

    class Counted(EngineProcess):
        def __init__(self, on_message):
            super().__init__(on_message)
            started.append(self)
            self.beside = sum(not process.ended.is_set() for process in started)

    monkeypatch.setattr("cosyui.host.client.EngineProcess", Counted)
    return started


def left_over():
    """Threads that are not the event loop's own, and open files."""
    threads = {thread for thread in threading.enumerate() if not thread.name.startswith("asyncio_")}
    return threads, psutil.Process().num_fds()


@pytest.mark.parametrize("seed", [int(word) for word in (GIVEN or "1 5 7").split()])
async def test_a_storm_leaves_nothing_but_what_was_asked_for(new_service, clip, processes, monkeypatch, seed):
    chance = random.Random(seed)
    monkeypatch.setattr(recorder, "MEMORY_BYTES", chance.choice((1, 4 << 20)))
    engines = chance.choice((1, 1, 2))
    script = FakeScript(places=chance.choice((1, 3)), step_seconds=chance.choice((0.0, 0.005)))
    tasks = asyncio.all_tasks()
    await asyncio.to_thread(int)
    threads, files = left_over()
    service = new_service(
        script=script,
        engines=engines,
        start=chance.choice(("lazy", "preload")),
        queue_size=chance.choice((0, 2, 5, 20)),
        client_queue=chance.choice((0, 1)),
        request_timeout=chance.choice((0.7, 1.5)),
        idle_unload_minutes=chance.choice((0, 0, 0.001)),
    )
    service.soft_restarter._patience = service.life_cycle._patience = chance.choice((0.2, 60.0))
    storm = Storm(service, seed, clip, **SIZE)
    try:
        await service.start()
        await storm.blow()
    finally:
        async with asyncio.timeout(30):
            await service.close()
    storm.rows()
    assert max((process.beside for process in processes), default=0) <= engines
    assert all(process.ended.is_set() for process in processes)
    for process in processes:
        process._process.wait()
    assert asyncio.all_tasks() <= tasks
    for thread in set(threading.enumerate()) - threads:
        if not thread.name.startswith("asyncio_"):
            thread.join(5)
    now = left_over()
    assert now[0] <= threads
    assert now[1] <= files
