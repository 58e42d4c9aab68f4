"""Every stage of the real engine goes wrong in every way: the service lives, the user is told, the journal knows."""

import asyncio
import itertools
import os
from pathlib import Path

import pytest
import torch
from watching import follow

from cosyui.bench.make_checkpoint import make_checkpoint
from cosyui.host.config import HostConfig
from cosyui.host.pool import EnginePool
from cosyui.host.supervision import RestartPolicy
from cosyui.service.clips import ClipStore
from cosyui.service.outputs import OutputStore
from cosyui.service.service import SynthesisService, running
from cosyui.service.types import Done, Problem
from cosyui.settings import Settings

pytestmark = pytest.mark.anyio
FAULTY = Path(__file__).parent / "faulty"
STAGES = ("text", "prompt", "prefill", "decode", "flow", "vocoder", "output")
ENDS = ("hang", "kill", "assert")


def ends(stage, kind):
    """Whether only a new process helps: also where all who are decoded together are concerned."""
    return kind in ENDS or (stage == "decode" and kind != "nan")


SILENCE = 3.0
"""Seconds of an engine that says nothing, after which it is replaced."""
STEPS = ("oom", "memory", "exception")
HERE = [("decode", "exception"), ("decode", "hang"), ("flow", "kill"), ("vocoder", "assert")]
"""Starting a process takes seconds: on a CPU each of its ends comes in one stage only."""
MATRIX = [
    *itertools.product([stage for stage in STAGES if stage != "decode"], STEPS),
    *itertools.product(("prompt", "decode", "flow", "vocoder"), ("nan",)),
    *([*itertools.product(STAGES, ENDS), *itertools.product(["decode"], STEPS)] if torch.cuda.is_available() else HERE),
]
CODES = {"oom": "out_of_memory", "memory": "out_of_memory", "exception": "engine_fault", "nan": "output_bad"}


@pytest.fixture(scope="module")
def anyio_backend():
    return "asyncio"


@pytest.fixture(scope="module")
async def service(tmp_path_factory):
    """With the real engine on a tiny checkpoint, whose process has `faulty` on its path."""
    folder = tmp_path_factory.mktemp("faults")
    (folder / "orders").mkdir()
    make_checkpoint(folder / "tiny", "tiny", seed=3, steady_pitch=True)
    places = {name: folder / name for name in ("outputs_dir", "clips_dir", "journal")}
    options = Settings.load(places | {"model": str(folder / "tiny"), "threads": 1, "request_timeout": SILENCE}, {})
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setenv("FAULTS", str(folder / "orders"))
        monkeypatch.setenv("PYTHONPATH", str(FAULTY), prepend=os.pathsep)
        policy = RestartPolicy(max_deaths=1000, first_pause=0.01, longest_pause=0.02)
        pool = EnginePool(HostConfig.from_settings(options).on_devices(()), policy)
        service = SynthesisService(options, pool, OutputStore(options.outputs_dir), ClipStore.from_settings(options))
        async with running(service):
            assert await service.client.wait_until() == "ready"
            yield service


async def take(service, form, text="Yes.", **changes):
    ticket = await service.submit(form(text, seed=7, **changes))
    async with asyncio.timeout(60):
        return ticket.id, (await follow(ticket))[-1]


@pytest.mark.parametrize(("stage", "kind"), MATRIX)
async def test_fault_of_a_stage(service, form, new_clip, stage, kind):
    order = Path(os.environ["FAULTS"]) / f"{stage}-{kind}"
    order.touch()
    restarts = service.client.restarts
    take_id, last = await take(service, form, clip=new_clip(), stream=True)
    assert not order.exists(), "the fault has come"
    row = next(row for row in service.operations.journal.recent if row.id == take_id)
    if isinstance(last, Problem):
        assert row.outcome == "failed"
        assert row.code == last.error.code
        assert last.error.code == ("request_timeout" if kind == "hang" else CODES[kind])
        assert last.error.message.endswith((".", "id."))
        assert not any(word in last.error.message for word in ("Traceback", "asked for", "Error"))
    else:
        assert isinstance(last, Done), "nothing but an end or an error"
        assert ends(stage, kind) or kind in ("nan", "oom")
        assert row.outcome == "done"
        assert row.retries or row.redone or row.attempts > 1
    _, after = await take(service, form)
    assert isinstance(after, Done)
    assert (service.client.restarts > restarts) == ends(stage, kind)
    assert after.result.seconds > 0.3
    overview = service.overview()
    assert not overview.running
    assert not overview.waiting
