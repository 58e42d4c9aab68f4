"""Long texts: taken as long jobs that let short takes go first, with progress, Stop, and nothing lost."""

import os
import signal

import numpy as np
import pytest
from watching import follow, samples, until

from cosyui.engine.request import Mode, PromptClip, SynthesisRequest
from cosyui.errors import EngineError
from cosyui.host.config import FakeScript
from cosyui.host.fake_sound import PAUSE_SECONDS, fake_pcm
from cosyui.service import recorder
from cosyui.service.types import Chunk, Done, FormError, Problem, QueueFullError, Running, Stopped, Waiting

pytestmark = pytest.mark.anyio
LONG = "A story that goes on and on. " * 10


def text_of(directives):
    return f"{LONG}{directives}"


def expected(ticket, text, *, long=True):
    clip = PromptClip(np.zeros(16_000, np.float32), 16_000)
    return fake_pcm(SynthesisRequest(ticket.id, text.strip(), Mode.ZERO_SHOT, clip, 1, long=long))


def running(update):
    return isinstance(update, Running)


@pytest.mark.parametrize("segments", [3, 10, 40])
async def test_file_has_all_segments_in_order_with_their_pauses(fake_service, form, monkeypatch, segments):
    monkeypatch.setattr(recorder, "MEMORY_BYTES", 1 << 18)
    text = text_of(f"[fake:segments={segments}][fake:seconds=20]")
    async with fake_service() as service:
        ticket = await service.submit(form(text))
        result = (await follow(ticket))[-1].result
    assert samples(result.path) == expected(ticket, text)
    assert result.seconds == pytest.approx(20 + PAUSE_SECONDS * (segments - 1), abs=0.05)
    assert result.stats.segments == segments


async def test_long_text_without_directives_becomes_several_segments(fake_service, form):
    async with fake_service() as service:
        ticket = await service.submit(form(LONG))
        updates = await follow(ticket)
    assert samples(updates[-1].result.path) == expected(ticket, LONG)
    assert updates[-1].result.stats.segments == 4


async def test_short_take_finishes_while_a_long_one_runs(fake_service, form):
    text = text_of("[fake:segments=400][fake:seconds=400][fake:slow=0.01]")
    async with fake_service() as service:
        story = await service.submit(form(text))
        updates = story.updates()
        await until(updates, running)
        for seconds in (1, 2):
            take = await service.submit(form(f"[fake:seconds={seconds}]"))
            assert service.overview().waiting == ()
            done = (await follow(take))[-1]
            assert isinstance(done, Done)
            assert samples(done.result.path) == expected(take, f"[fake:seconds={seconds}]", long=False)
            assert story.id in [entry.id for entry in service.overview().running]
        before = (await until(updates, running)).speech_seconds_done
        after = await until(updates, lambda update: running(update) and update.speech_seconds_done > before)
        assert after.segments == 400
        await story.cancel()


async def test_stop_frees_the_place_of_a_long_job_and_leaves_nothing(fake_service, form, monkeypatch):
    monkeypatch.setattr(recorder, "MEMORY_BYTES", 0)
    text = text_of("[fake:segments=400][fake:seconds=400][fake:slow=0.01]")
    async with fake_service(queue_size=1) as service:
        first, second = [await service.submit(form(text)) for _ in range(2)]
        with pytest.raises(QueueFullError):
            await service.submit(form(text))
        waiting = second.updates()
        assert (await until(waiting, lambda update: isinstance(update, Waiting))).position == 1
        updates = first.updates()
        await until(updates, lambda update: running(update) and update.speech_seconds_done > 2)
        assert list(service.outputs.root.rglob(".*.part")), "written as it comes"
        await first.cancel()
        assert [update async for update in updates][-1] == Stopped()
        await until(waiting, running)
        assert service.client.restarts == 0
        await second.cancel()
        assert [path for path in service.outputs.root.rglob("*") if path.is_file()] == []


@pytest.mark.parametrize(("order", "outcome"), [("bad=2", Done), ("bad_always=2", Problem)])
async def test_bad_segment_in_the_middle_is_redone_or_named(fake_service, form, order, outcome):
    text = text_of(f"[fake:segments=3][fake:seconds=6][fake:{order}]")
    async with fake_service() as service:
        ticket = await service.submit(form(text))
        updates = await follow(ticket)
        left = [path.suffix for path in service.outputs.root.rglob("*") if path.is_file()]
    last = updates[-1]
    assert isinstance(last, outcome)
    done = [update.speech_seconds_done for update in updates if running(update)]
    assert done == sorted(done)
    if outcome is Done:
        assert samples(last.result.path) == expected(ticket, text)
        assert last.result.stats.retries == 1
    else:
        assert isinstance(last.error, EngineError)
        assert "Part 2 of 3" in last.error.message
        assert left == []


async def test_engine_that_dies_in_a_long_job_repeats_nothing(fake_service, form, tmp_path, monkeypatch):
    monkeypatch.setattr(recorder, "MEMORY_BYTES", 1 << 16)
    release = tmp_path / "go"
    text = text_of("[fake:segments=4][fake:seconds=8][fake:hold]")
    async with fake_service(script=FakeScript(release_file=str(release))) as service:
        ticket = await service.submit(form(text, stream=True))
        updates = ticket.updates()
        first = await until(updates, lambda update: isinstance(update, Chunk))
        os.kill(service.client.pid, signal.SIGKILL)
        release.touch()
        rest = [update async for update in updates]
        assert first.pcm + b"".join(update.pcm for update in rest if isinstance(update, Chunk)) == expected(
            ticket, text
        )
        assert samples(rest[-1].result.path) == expected(ticket, text)


async def test_long_job_is_given_up_only_without_progress(fake_service, form):
    """The whole takes longer than the limit, each piece of it far less."""
    slow = text_of("[fake:segments=30][fake:seconds=15][fake:slow=0.1]")
    async with fake_service(request_timeout=2.0) as service:
        assert isinstance((await follow(await service.submit(form(slow))))[-1], Done)
        hung = (await follow(await service.submit(form(text_of("[fake:hang]")))))[-1]
        assert hung.error.code == "request_timeout"


async def test_long_jobs_can_be_switched_off(fake_service, form):
    async with fake_service(long_max_chars=0) as service:
        with pytest.raises(FormError) as caught:
            await service.submit(form(LONG))
        assert caught.value.code == "text_too_long"


async def test_journal_tells_long_jobs(fake_service, form, caplog):
    caplog.set_level("INFO", logger="cosyui")
    async with fake_service() as service:
        await follow(await service.submit(form(LONG)))
    (fields,) = [record.fields for record in caplog.records if record.getMessage() == "request"]
    assert (fields["long"], fields["segments"]) == (True, 4)
