"""The service's parts by themselves: estimates, queue, mailbox, checks, output folder."""

import asyncio
import errno
import os
import pickle

import numpy as np
import pytest

from cosyui.engine.request import Mode, PromptClip, SynthesisRequest
from cosyui.errors import CosyuiError, InputError, SetupError
from cosyui.service.admission import AdmissionQueue
from cosyui.service.checks import form_problems
from cosyui.service.estimate import MovingAverage, speech_seconds
from cosyui.service.job import Job
from cosyui.service.mailbox import Mailbox
from cosyui.service.outputs import OutputStore
from cosyui.service.types import Chunk, FormError, QueueFullError, Running, Stopped, Waiting
from cosyui.settings import Settings

CLIP = PromptClip(np.zeros(16_000, np.float32), 16_000)


def job(name, seconds=10.0):
    return Job(SynthesisRequest(name, "text", Mode.ZERO_SHOT, CLIP, 1), "anonymous", seconds)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("今天天气很好我们出去走走吧好不好呀", 17 / 4.5),
        ("one two three four five six seven eight nine ten", 10 / 2.6),
        ("[breath]one two[laughter] three <strong>four</strong>", 4 / 2.6),
        ("我喜欢 deep learning", 3 / 4.5 + 1 / 2.6 + 8 / 14),
        ("hi", 0.5),
    ],
)
def test_estimated_seconds_of_speech(text, seconds):
    assert speech_seconds(text) == pytest.approx(seconds, rel=0.01)
    assert speech_seconds(text, speed=2.0) == pytest.approx(seconds / 2, rel=0.01)


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
    queue.rtf.add(0.5)
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


def test_late_job_never_has_negative_work_ahead():
    queue = AdmissionQueue(size=1)
    late, waiting = job("a", seconds=1.0), job("b")
    queue.enter(late)
    queue.enter(waiting)
    queue.rtf.add(1.0)
    late.add_chunk(bytes(2 * 24_000 * 5))
    assert queue.eta(waiting) == 0.0


def test_full_queue_names_the_time_until_the_running_job_ends():
    queue = AdmissionQueue(size=1)
    queue.enter(job("a", 100.0))
    queue.enter(job("b", 1.0))
    queue.rtf.add(0.25)
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
        ({"text": "x" * 201}, [("text", "text_too_long")]),
        ({"text": "  " + "x" * 200 + "\n"}, []),
        ({"transcript": ""}, [("transcript", "transcript_missing")]),
        ({"transcript": "x" * 401}, [("transcript", "transcript_too_long")]),
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


def test_form_error_pickles_with_its_problems():
    error = FormError([InputError("text_empty", "Type.", "text"), InputError("clip_missing", "Upload.", "clip")])
    copy = pickle.loads(pickle.dumps(error))
    assert [(problem.code, problem.field) for problem in copy.problems] == [
        ("text_empty", "text"),
        ("clip_missing", "clip"),
    ]
    assert (copy.code, copy.field, str(copy)) == ("text_empty", "text", "Type.")


def test_outputs_are_found_only_inside_the_folder(tmp_path):
    store = OutputStore(tmp_path / "outputs")
    store.check()
    path = store.write("take", [b"\x01\x00" * 240])
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
    day = store.write("first", [b"\x00\x00"]).parent
    store.discard(day / "first.wav")
    day.rmdir()
    day.write_text("in the way")
    with pytest.raises(CosyuiError) as caught:
        store.write("second", [b"\x00\x00"])
    assert caught.value.code == "outputs_not_writable"
