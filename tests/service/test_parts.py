"""The service's parts by themselves: estimates, queue, mailbox, checks, output folder."""

import asyncio
import errno
import os
import pickle
import threading
import wave
from pathlib import Path

import numpy as np
import pytest

from cosyui.engine.request import Mode, PromptClip, SynthesisRequest
from cosyui.errors import CosyuiError, InputError, SetupError
from cosyui.service import recorder as recorder_module
from cosyui.service.admission import AdmissionQueue, MovingAverage
from cosyui.service.checks import form_problems
from cosyui.service.job import Job
from cosyui.service.mailbox import Mailbox
from cosyui.service.outputs import OutputStore
from cosyui.service.recorder import Recorder
from cosyui.service.types import Chunk, FormError, QueueFullError, Running, Stopped, Waiting
from cosyui.settings import Settings

CLIP = PromptClip(np.zeros(16_000, np.float32), 16_000)


def job(name, seconds=10.0, *, long=False):
    request = SynthesisRequest(name, "text", Mode.ZERO_SHOT, CLIP, 1, long=long)
    return Job(request, "anonymous", seconds, recorder=Recorder(OutputStore(Path("nowhere")), name))


def test_moving_average_follows_new_values():
    average = MovingAverage(weight=0.5)
    assert average.value is None
    for sample in (4.0, 2.0, 2.0):
        average.add(sample)
    assert average.value == 2.5


def test_queue_positions_eta_and_leaving():
    queue = AdmissionQueue(size=3)
    first, second, third = (job(name) for name in "abc")
    for each in (first, second, third):
        queue.enter(each)
    assert [queue.position(each) for each in (first, second, third)] == [0, 1, 2]
    assert (first.turn.is_set(), second.turn.is_set()) == (True, False)
    assert queue.eta(third) is None
    queue.speed.measured(1, seconds=1.0, speech=2.0)
    first.add_chunk(bytes(2 * 24_000 * 4))
    assert queue.eta(second) == pytest.approx((10 - 4) * 0.5)
    assert queue.eta(third) == pytest.approx((10 - 4 + 10) * 0.5)
    queue.leave(second)
    assert queue.eta(third) == pytest.approx((10 - 4) * 0.5)
    queue.leave(first)
    assert third.turn.is_set()
    assert (queue.waiting, queue.running) == ([], [third])
    queue.leave(first)
    assert queue.running == [third]


def test_short_takes_and_long_jobs_have_a_place_and_a_line_each():
    queue = AdmissionQueue(size=1)
    story, novel = job("story", 600.0, long=True), job("novel", 900.0, long=True)
    for each in (story, novel):
        queue.enter(each)
    with pytest.raises(QueueFullError):
        queue.enter(job("saga", long=True))
    take, other = job("take"), job("other", 20.0)
    for each in (take, other):
        queue.enter(each)
    assert [queue.position(each) for each in (story, novel, take, other)] == [0, 1, 0, 1]
    with pytest.raises(QueueFullError):
        queue.check("somebody")
    queue.speed.measured(1, seconds=1.0, speech=1.0)
    story.segments = 60
    assert queue.eta(other) == pytest.approx(10 + 10), "the running take and a segment of the story"
    assert queue.eta(novel) == pytest.approx(600 + 10 + 20), "the story, and the short takes that go before"
    assert queue.left(story) == pytest.approx(600 + 10 + 20)
    assert queue.left(take) == pytest.approx(10)
    queue.leave(story)
    assert novel.turn.is_set()
    assert not other.turn.is_set()
    queue.leave(take)
    assert other.turn.is_set()


def test_seconds_done_never_go_back():
    one = job("a")
    seen = []
    for seconds, redone in ((1.0, False), (2.0, False), (0.0, True), (1.0, True), (2.5, False)):
        one.add_progress(seconds, redone=redone)
        seen.append((one.done_seconds, one.redone))
    assert seen == [(1.0, False), (2.0, False), (2.0, True), (2.0, True), (2.5, False)]
    one.add_chunk(bytes(2 * 24_000 * 4))
    assert (one.done_seconds, one.sound_seconds) == (4.0, 4.0)


def test_late_job_never_has_negative_work_ahead():
    queue = AdmissionQueue(size=1)
    late, waiting = job("a", seconds=1.0), job("b")
    queue.enter(late)
    queue.enter(waiting)
    queue.speed.measured(1, seconds=1.0, speech=1.0)
    late.add_chunk(bytes(2 * 24_000 * 5))
    assert queue.eta(waiting) == 0.0


def test_full_queue_names_the_time_until_the_running_job_ends():
    queue = AdmissionQueue(size=1)
    queue.enter(job("a", 100.0))
    queue.enter(job("b", 1.0))
    queue.speed.measured(1, seconds=1.0, speech=4.0)
    with pytest.raises(QueueFullError) as caught:
        queue.enter(job("c"))
    assert caught.value.retry_after == 25
    copy = pickle.loads(pickle.dumps(caught.value))
    assert (copy.retry_after, copy.code, copy.message) == (25, "queue_full", caught.value.message)


@pytest.mark.anyio
async def test_mailbox_keeps_audio_and_replaces_unread_progress():
    mailbox = Mailbox()
    for update in (Waiting(2, 9.0), Waiting(1, 5.0), Running(0, 1), Chunk(b"aa"), Running(1, 1), Running(2, 1)):
        mailbox.put(update)
    mailbox.put(Stopped())
    mailbox.put(Waiting(1, 1.0))
    got = [update async for update in mailbox.read()]
    assert got == [Waiting(1, 5.0), Running(0, 1), Chunk(b"aa"), Running(2, 1), Stopped()]
    assert [update async for update in mailbox.read()] == [Stopped()]


@pytest.mark.anyio
async def test_mailbox_keeps_equal_pieces_of_audio():
    mailbox = Mailbox()
    for update in (Chunk(b"aa"), Chunk(b"aa"), Stopped()):
        mailbox.put(update)
    assert [update async for update in mailbox.read()] == [Chunk(b"aa"), Chunk(b"aa"), Stopped()]


@pytest.mark.anyio
async def test_mailbox_wakes_a_waiting_reader():
    mailbox = Mailbox()
    reader = asyncio.create_task(anext(mailbox.read()))
    await asyncio.sleep(0)
    assert not reader.done()
    mailbox.put(Waiting(1, None))
    assert await asyncio.wait_for(reader, 10) == Waiting(1, None)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, []),
        ({"text": " \n"}, [("text", "text_empty")]),
        ({"text": "。！?…"}, [("text", "text_nothing_to_speak")]),
        ({"text": "x" * 201}, []),
        ({"text": "x" * 20_001}, [("text", "text_too_long")]),
        ({"text": "  " + "x" * 20_000 + "\n"}, []),
        ({"transcript": ""}, [("transcript", "transcript_missing")]),
        ({"transcript": "x" * 601}, [("transcript", "transcript_too_long")]),
        ({"transcript": "", "mode": Mode.CROSS_LINGUAL}, []),
        ({"transcript": "", "mode": Mode.INSTRUCT, "instruction": "happily"}, []),
        ({"mode": Mode.INSTRUCT}, [("instruction", "instruction_missing")]),
        ({"mode": Mode.INSTRUCT, "instruction": "x" * 201}, [("instruction", "instruction_too_long")]),
        ({"speed": 0.49}, [("speed", "speed_out_of_range")]),
        ({"speed": 2.01}, [("speed", "speed_out_of_range")]),
        ({"speed": float("nan")}, [("speed", "speed_out_of_range")]),
        ({"speed": 0.5, "seed": 0}, []),
        ({"speed": 2.0, "seed": 2**31 - 1}, []),
        ({"seed": 2**31}, [("seed", "seed_out_of_range")]),
    ],
)
def test_problems_of_a_form(form, changes, expected):
    problems = form_problems(form(**changes), Settings.load({}, {}))
    assert [(problem.field, problem.code) for problem in problems] == expected


@pytest.mark.parametrize(("longest", "length"), [(0, 200), (50, 200), (500, 500)])
def test_too_long_text_is_told_with_both_numbers(form, longest, length):
    settings = Settings.load({"long_max_chars": longest}, {})
    assert form_problems(form("x" * length), settings) == []
    (problem,) = form_problems(form("x" * (length + 1)), settings)
    assert problem.code == "text_too_long"
    assert str(length) in problem.message
    assert str(length + 1) in problem.message


def test_form_error_pickles_with_its_problems():
    error = FormError([InputError("text_empty", "Type.", "text"), InputError("clip_missing", "Upload.", "clip")])
    copy = pickle.loads(pickle.dumps(error))
    assert [(problem.code, problem.field) for problem in copy.problems] == [
        ("text_empty", "text"),
        ("clip_missing", "clip"),
    ]
    assert (copy.code, copy.field, str(copy)) == ("text_empty", "text", "Type.")


def write_take(store, name, pcm):
    recorder = Recorder(store, name)
    recorder.add(pcm)
    return asyncio.run(recorder.finish())


@pytest.mark.anyio
async def test_recorder_keeps_little_in_memory_and_the_file_appears_whole(tmp_path, monkeypatch):
    monkeypatch.setattr(recorder_module, "MEMORY_BYTES", 1000)
    recorder = Recorder(OutputStore(tmp_path), "take")
    chunks = [np.full(200, number, "<i2").tobytes() for number in range(50)]
    for chunk in chunks:
        recorder.add(chunk)
        await recorder.spill()
        assert sum(map(len, recorder._waiting)) <= 1000 + len(chunk)
        assert not list(tmp_path.rglob("*.wav"))
    path = await recorder.finish()
    with wave.open(str(path)) as file:
        assert file.readframes(file.getnframes()) == b"".join(chunks)
    assert [entry.name for entry in path.parent.iterdir()] == ["take.wav"]


@pytest.mark.anyio
@pytest.mark.parametrize("when", ["nothing yet", "in memory", "spilled", "finished"])
async def test_discarded_recording_leaves_nothing(tmp_path, monkeypatch, when):
    monkeypatch.setattr(recorder_module, "MEMORY_BYTES", 1000 if when == "spilled" else 1 << 20)
    recorder = Recorder(OutputStore(tmp_path), "take")
    if when != "nothing yet":
        recorder.add(bytes(4000))
    await (recorder.finish() if when == "finished" else recorder.spill())
    for _ in range(2):
        await recorder.discard()
    assert [entry for entry in tmp_path.rglob("*") if entry.is_file()] == []


@pytest.mark.anyio
@pytest.mark.parametrize("times", [1, 5])
@pytest.mark.parametrize("step", ["open", "finish"])
async def test_recording_cancelled_in_the_middle_of_a_write_can_be_discarded(tmp_path, monkeypatch, step, times):
    entered, go = threading.Event(), threading.Event()
    act = getattr(recorder_module.WavWriter, step)

    def slow(self):
        entered.set()
        assert go.wait(20)
        return act(self)

    monkeypatch.setattr(recorder_module.WavWriter, step, slow)
    recorder = Recorder(OutputStore(tmp_path), "take")

    async def record():
        recorder.add(bytes(400))
        try:
            await recorder.finish()
        finally:
            await recorder.discard()

    task = asyncio.create_task(record())
    await asyncio.to_thread(entered.wait)
    for _ in range(times):
        task.cancel()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    asyncio.get_running_loop().call_later(0.01, go.set)
    with pytest.raises(asyncio.CancelledError):
        await task
    assert [entry for entry in tmp_path.rglob("*") if entry.is_file()] == []


def test_outputs_are_found_only_inside_the_folder(tmp_path):
    store = OutputStore(tmp_path / "outputs")
    store.check()
    path = write_take(store, "take", b"\x01\x00" * 240)
    inside = f"{path.parent.name}/take.wav"
    (tmp_path / "secret.wav").write_bytes(b"x")
    (store.root / "link.wav").symlink_to(tmp_path / "secret.wav")
    assert store.find(inside) == path
    for name in ("../secret.wav", str(tmp_path / "secret.wav"), "link.wav", "", ".", "missing.wav"):
        assert store.find(name) is None
    store.discard(path)
    store.discard(path)
    assert store.find(inside) is None


@pytest.mark.parametrize(("number", "code"), [(errno.ENOSPC, "disk_full"), (errno.EROFS, "outputs_not_writable")])
def test_check_of_the_folder_names_the_reason(tmp_path, monkeypatch, number, code):
    store = OutputStore(tmp_path / "outputs")

    def refuse(*args, **kwargs):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(SetupError) as caught:
        store.check()
    assert caught.value.code == code


def test_day_folder_that_is_a_file_is_a_clear_error(tmp_path):
    store = OutputStore(tmp_path)
    day = write_take(store, "first", b"\x00\x00").parent
    store.discard(day / "first.wav")
    day.rmdir()
    day.write_text("in the way")
    with pytest.raises(CosyuiError) as caught:
        write_take(store, "second", b"\x00\x00")
    assert caught.value.code == "outputs_not_writable"
