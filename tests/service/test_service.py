"""The whole way of a take, with the fake engine in its real child process."""

import asyncio
import contextlib
import errno
import os
import signal
import threading

import psutil
import pytest
from watching import follow, samples, until

from cosyui.engine.request import Mode
from cosyui.errors import BusyError, CheckpointError, CosyuiError, EngineError, InputError, SetupError
from cosyui.host.config import FakeScript
from cosyui.host.fake_sound import tone_hz
from cosyui.service.types import Chunk, Done, FormError, Problem, QueueFullError, Running, Stopped, Waiting
from cosyui.speech.sound.audio_out import WavWriter

pytestmark = pytest.mark.anyio


def speaking(update):
    return isinstance(update, Running) and update.speech_seconds_done > 0


def tone(ticket, seconds):
    """What the fake engine makes for a ticket (its id is only known after the submit)."""
    import numpy as np

    time_axis = np.arange(round(seconds * 24_000)) / 24_000
    return (0.3 * np.sin(2 * np.pi * tone_hz(ticket.id) * time_axis) * 32767).astype("<i2").tobytes()


async def test_take_ends_in_a_file_with_its_own_audio(fake_service, form):
    async with fake_service() as service:
        ticket = await service.submit(form("[fake:seconds=2]", seed=7))
        updates = await follow(ticket)
        result = updates[-1].result
        assert samples(result.path) == tone(ticket, 2)
        assert result.path.is_relative_to(service.outputs.root)
        assert service.outputs.find(f"{result.path.parent.name}/{ticket.id}.wav") == result.path
        assert (result.seconds, result.seed, ticket.seed) == (2.0, 7, 7)
        assert 0 <= result.waited_seconds <= result.first_chunk_seconds <= result.total_seconds
        assert result.stats.speech_tokens == 50
        assert not any(isinstance(update, Chunk) for update in updates)
        overview = service.overview()
        assert (overview.finished, overview.running, overview.waiting) == (1, (), ())
        assert overview.rtf == result.stats.rtf


async def test_streamed_take_hands_out_its_audio_in_pieces(fake_service, form):
    async with fake_service() as service:
        updates = await follow(await service.submit(form("[fake:seconds=2][fake:chunks=5]", stream=True)))
        pieces = [update.pcm for update in updates if isinstance(update, Chunk)]
        assert len(pieces) == 5
        assert b"".join(pieces) == samples(updates[-1].result.path)


async def test_seed_is_drawn_and_reported(fake_service, form):
    async with fake_service() as service:
        tickets = [await service.submit(form()) for _ in range(3)]
        results = [(await follow(ticket))[-1].result for ticket in tickets]
    assert [result.seed for result in results] == [ticket.seed for ticket in tickets]
    assert len({ticket.seed for ticket in tickets}) == 3
    assert all(0 <= ticket.seed < 2**31 for ticket in tickets)


async def test_takes_at_once_keep_their_own_audio(fake_service, form):
    async with fake_service() as service:
        tickets = [await service.submit(form(f"[fake:seconds={number}]")) for number in (1, 2, 3)]
        for seconds, ticket in zip((1, 2, 3), tickets, strict=True):
            assert samples((await follow(ticket))[-1].result.path) == tone(ticket, seconds)


async def test_killed_engine_gives_one_retry_and_the_right_audio(fake_service, form, tmp_path):
    release = tmp_path / "go"
    async with fake_service(script=FakeScript(release_file=str(release))) as service:
        ticket = await service.submit(form("[fake:seconds=3][fake:hold]", stream=True))
        updates = ticket.updates()
        first = await until(updates, lambda update: isinstance(update, Chunk))
        os.kill(service.client.pid, signal.SIGKILL)
        release.touch()
        rest = [update async for update in updates]
        assert first.pcm + b"".join(update.pcm for update in rest if isinstance(update, Chunk)) == tone(ticket, 3)
        assert any(isinstance(update, Running) and update.retried for update in rest)
        assert samples(rest[-1].result.path) == tone(ticket, 3)
        assert rest[-1].result.stats.retries == 1


async def test_engine_that_dies_twice_fails_one_take_only(fake_service, form):
    async with fake_service() as service:
        poison = await service.submit(form("[fake:die_always]"))
        waiting = await service.submit(form("[fake:seconds=1]"))
        last = (await follow(poison))[-1]
        assert isinstance(last, Problem)
        assert last.error.code == "engine_died"
        assert samples((await follow(waiting))[-1].result.path) == tone(waiting, 1)
        assert service.overview().engine_restarts == 2


@pytest.mark.parametrize(
    ("order", "code"), [("oom", "out_of_memory"), ("fail=output_bad", "output_bad"), ("empty", "output_bad")]
)
async def test_failed_take_tells_its_code_and_frees_its_place(fake_service, form, order, code):
    async with fake_service(queue_size=0) as service:
        last = (await follow(await service.submit(form(f"text [fake:{order}]"))))[-1]
        assert isinstance(last.error, EngineError)
        assert last.error.code == code
        assert isinstance((await follow(await service.submit(form())))[-1], Done)
        assert not list(service.outputs.root.rglob("*.tmp*"))


async def test_full_queue_refuses_with_a_hint_and_takes_again_after_a_cancel(fake_service, form):
    async with fake_service(queue_size=2, client_queue=2) as service:
        tickets = [await service.submit(form("[fake:hold][fake:seconds=9]")) for _ in range(3)]
        with pytest.raises(QueueFullError) as caught:
            await service.submit(form())
        assert (caught.value.code, caught.value.status) == ("queue_full", 429)
        assert caught.value.retry_after >= 1
        assert str(caught.value.retry_after) in caught.value.message
        assert service.overview().rejected == 1
        await tickets[2].cancel()
        await service.submit(form())
        with pytest.raises(QueueFullError):
            await service.submit(form())


async def test_positions_are_pushed_as_the_queue_moves(fake_service, form):
    async with fake_service() as service:
        await follow(await service.submit(form()))  # so that a speed is known
        tickets = [await service.submit(form("[fake:hold]")) for _ in range(3)]
        last = tickets[2].updates()
        waiting = await until(last, lambda update: isinstance(update, Waiting))
        assert waiting.position == 2
        assert waiting.eta_seconds > 0
        assert [entry.position for entry in service.overview().waiting] == [1, 2]
        await tickets[1].cancel()
        assert (await until(last, lambda update: isinstance(update, Waiting))).position == 1
        await tickets[0].cancel()
        assert (await until(last, speaking)).segments == 1
        assert [entry.id for entry in service.overview().running] == [tickets[2].id]


async def test_cancelled_running_take_lets_the_next_one_run(fake_service, form):
    async with fake_service() as service:
        held = await service.submit(form("[fake:hold]"))
        following = await service.submit(form())
        updates = held.updates()
        await until(updates, speaking)
        await held.cancel()
        assert [type(update) for update in [update async for update in updates]][-1] is Stopped
        assert isinstance((await follow(following))[-1], Done)
        assert service.overview().stopped == 1
        await held.cancel()
        assert service.overview().stopped == 1


async def test_take_cancelled_before_it_ran_leaves_no_trace(fake_service, form):
    async with fake_service(queue_size=0) as service:
        ticket = await service.submit(form())
        await ticket.cancel()
        assert await follow(ticket) == [Stopped()]
        assert isinstance((await follow(await service.submit(form())))[-1], Done)
        assert len(list(service.outputs.root.rglob("*.wav"))) == 1


async def test_reader_that_goes_away_cancels_its_take(fake_service, form):
    async with fake_service(queue_size=0) as service:
        ticket = await service.submit(form("[fake:hold]"))
        async with contextlib.aclosing(ticket.updates()) as updates:
            await until(updates, speaking)
        assert service.ticket(ticket.id) is None
        assert isinstance((await follow(await service.submit(form())))[-1], Done)


async def test_writing_holds_up_nobody_and_can_be_cancelled(fake_service, form, monkeypatch):
    async with fake_service(queue_size=0) as service:
        gate, entered, finish = threading.Event(), threading.Event(), WavWriter.finish

        def slow_finish(writer):
            entered.set()
            assert gate.wait(20)
            finish(writer)

        monkeypatch.setattr(WavWriter, "finish", slow_finish)
        ticket = await service.submit(form())
        updates = ticket.updates()
        await until(updates, lambda _: [entry.state for entry in service.overview().running] == ["writing"])
        await asyncio.to_thread(entered.wait)
        monkeypatch.setattr(WavWriter, "finish", finish)
        assert isinstance((await follow(await service.submit(form())))[-1], Done)  # no place is taken while writing
        service._drive.jobs[ticket.id].task.cancel()
        gate.set()
        assert [update async for update in updates][-1] == Stopped()
        assert not list(service.outputs.root.rglob(f"*{ticket.id}*"))


async def test_take_waits_while_the_model_loads(fake_service, form):
    async with fake_service(wait=False, script=FakeScript(directives="[fake:load_hang]")) as service:
        ticket = await service.submit(form())
        updates = ticket.updates()
        assert await until(updates, lambda update: isinstance(update, Waiting)) == Waiting(0, None, "starting")
        assert not service.ready
        await ticket.cancel()
        assert [update async for update in updates][-1] == Stopped()


async def test_failed_load_is_told_with_its_own_code(fake_service, form):
    async with fake_service(wait=False, script=FakeScript(directives="[fake:load_error]")) as service:
        early = await follow(await service.submit(form()))
        assert early[-1].error.code == "checkpoint_missing_file"
        assert service.client.state == "broken"
        with pytest.raises(CheckpointError) as caught:
            await service.submit(form())
        assert caught.value.code == "checkpoint_missing_file"
        overview = service.overview()
        assert (overview.engine, overview.problem.code, overview.facts) == ("broken", "checkpoint_missing_file", None)


async def test_engine_that_hangs_is_replaced(fake_service, form):
    async with fake_service(request_timeout=2.0) as service:
        pid = service.client.pid
        last = (await follow(await service.submit(form("[fake:hang]"))))[-1]
        assert last.error.code == "request_timeout"
        following = await follow(await service.submit(form("[fake:seconds=1]")))
        assert isinstance(following[-1], Done)
        assert service.client.pid != pid


async def test_every_problem_of_a_form_is_told_with_its_field(fake_service, form):
    async with fake_service() as service:
        with pytest.raises(FormError) as caught:
            await service.submit(form("...", clip=None, transcript=" ", speed=9.0, seed=-1))
        assert [(problem.field, problem.code) for problem in caught.value.problems] == [
            ("text", "text_nothing_to_speak"),
            ("transcript", "transcript_missing"),
            ("speed", "speed_out_of_range"),
            ("seed", "seed_out_of_range"),
            ("clip", "clip_missing"),
        ]
        assert (caught.value.code, caught.value.field) == ("text_nothing_to_speak", "text")
        with pytest.raises(FormError) as caught:
            await service.submit(form(mode=Mode.INSTRUCT, instruction=" "))
        assert [problem.code for problem in caught.value.problems] == ["instruction_missing"]


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda clip: None, "clip_missing"),
        (lambda clip: b"", "clip_empty_file"),
        (lambda clip: b"no audio at all" * 100, "clip_unreadable"),
        (lambda clip: clip[: len(clip) // 2], "clip_too_short"),
        (lambda clip: clip[:44] + bytes(len(clip) - 44), "clip_silent"),
        (lambda clip: clip * 3, "clip_too_large"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_bad_clip_is_told_and_takes_no_place(fake_service, form, clip, tmp_path, change, code):
    async with fake_service(queue_size=0, clip_max_bytes=2 * len(clip)) as service:
        bad = change(clip)
        if bad is not None:  # as an upload: a file
            (tmp_path / "upload.wav").write_bytes(bad)
            bad = tmp_path / "upload.wav"
        with pytest.raises(InputError) as caught:
            service.check_clip(bad)
        assert (caught.value.code, caught.value.field) == (code, "clip")
        with pytest.raises(FormError) as caught:
            await service.submit(form(clip=bad))
        assert [problem.code for problem in caught.value.problems] == [code]
        assert service.check_clip(clip).seconds == pytest.approx(4.0, abs=0.01)
        assert isinstance((await follow(await service.submit(form())))[-1], Done)


@pytest.mark.parametrize(("number", "code"), [(errno.ENOSPC, "disk_full"), (errno.EACCES, "outputs_not_writable")])
async def test_unwritable_result_fails_its_take_and_the_service_lives_on(fake_service, form, monkeypatch, number, code):
    async with fake_service() as service:
        replace = os.replace

        def refuse(*args, **kwargs):
            raise OSError(number, os.strerror(number))

        for name in ("replace", "rename", "link"):
            monkeypatch.setattr(os, name, refuse)
        last = (await follow(await service.submit(form())))[-1]
        assert isinstance(last, Problem)
        assert last.error.code == code
        assert str(service.outputs.root) in last.error.message
        assert [path for path in service.outputs.root.rglob("*") if path.is_file()] == []
        monkeypatch.undo()
        assert os.replace is replace
        assert isinstance((await follow(await service.submit(form())))[-1], Done)


async def test_unusable_output_folder_stops_the_start(new_service, tmp_path):
    (tmp_path / "taken").write_text("a file")
    service = new_service(outputs_dir=tmp_path / "taken")
    with pytest.raises(SetupError) as caught:
        await service.start()
    assert caught.value.code == "outputs_not_writable"
    assert "COSYUI_OUTPUTS_DIR" in caught.value.message
    assert service.client.pid is None


async def test_close_stops_takes_and_the_engine(new_service, form):
    service = new_service()
    await service.start()
    await service.client.wait_until()
    process = psutil.Process(service.client.pid)
    tickets = [await service.submit(form("[fake:hold]")) for _ in range(2)]
    await service.close()
    assert [(await follow(ticket))[-1] for ticket in tickets] == [Stopped(), Stopped()]
    assert not process.is_running()
    with pytest.raises(BusyError) as caught:
        await service.submit(form())
    assert caught.value.code == "service_stopping"


async def test_journal_line_has_figures_and_no_text(fake_service, form, caplog):
    caplog.set_level("INFO", logger="cosyui")
    async with fake_service() as service:
        ticket = await service.submit(form("secret words [fake:seconds=1]", client="somebody"))
        await follow(ticket)
        await follow(await service.submit(form("other words [fake:oom]")))
        with pytest.raises(CosyuiError):
            await service.submit(form(""))
    lines = [(record.getMessage(), getattr(record, "fields", {})) for record in caplog.records]
    done, failed = (fields for event, fields in lines if event == "request")
    assert (done["request_id"], done["client"], done["outcome"]) == (ticket.id, "somebody", "done")
    assert (done["speech_seconds"], done["speech_tokens"], done["code"]) == (1.0, 25, None)
    assert done["rtf"] is not None
    assert done["long"] is False
    assert (failed["outcome"], failed["code"]) == ("failed", "out_of_memory")
    assert [fields["code"] for event, fields in lines if event == "request_rejected"] == ["text_empty"]
    assert "words" not in str(lines)
    assert "What the clip says" not in str(lines)
