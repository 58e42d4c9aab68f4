"""Encoders in processes of their own: the same bytes, each listener's own sound, and an end that is told."""

import asyncio
import contextlib
import os
import signal

import numpy as np
import pytest

from cosyui.errors import CosyuiError, InputError
from cosyui.host.encoding import FEW, EncoderPool
from cosyui.speech.sound.encode import MEDIA_TYPES, Encoder

pytestmark = pytest.mark.anyio


@pytest.fixture
async def pool():
    pool = EncoderPool(2)
    pool.start()
    yield pool
    await pool.close()


def tone(hertz, seconds=1.0):
    return (8000 * np.sin(2 * np.pi * hertz * np.arange(round(24_000 * seconds)) / 24_000)).astype("<i2").tobytes()


async def encoded(pool, name, chunks, rate=24_000):
    async with pool.open(name, rate) as encoder:
        return b"".join([*[await encoder.add(chunk) for chunk in chunks], await encoder.finish()])


def encoded_here(name, chunks, rate=24_000):
    encoder = Encoder(name, rate)
    return b"".join([*[encoder.add(chunk) for chunk in chunks], encoder.finish()])


def processes(pool):
    return [process._process.pid for process in pool._processes]


@pytest.mark.parametrize("name", [name for name in MEDIA_TYPES if name != "opus"])
async def test_a_process_makes_the_same_bytes(pool, name):
    chunks = [tone(200), tone(300, 0.3), tone(400, 2)]
    for rate in (24_000, 16_000):
        assert await encoded(pool, name, chunks, rate) == encoded_here(name, chunks, rate)


async def test_many_at_once_have_each_their_own_sound(pool):
    async with contextlib.AsyncExitStack() as stack:
        for _ in range(FEW + 1):
            await stack.enter_async_context(pool.open("mp3"))
        await pool._starting
        assert [process.encoders for process in pool._processes] == [FEW + 1, 0]
    numbers = range(3 * FEW)
    chunks = [[tone(200 + 20 * number), tone(300)] for number in numbers]
    made = await asyncio.gather(*(encoded(pool, "mp3", chunks[number]) for number in numbers))
    assert made == [encoded_here("mp3", chunks[number]) for number in numbers]
    assert [process.encoders for process in pool._processes] == [0, 0]


async def test_who_leaves_does_not_shift_the_answers_of_others(pool):
    async with pool.open("flac") as one, pool.open("flac") as other:
        leaving = asyncio.ensure_future(one.add(tone(200, 5)))
        staying = asyncio.ensure_future(other.add(tone(300)))
        await asyncio.sleep(0)
        leaving.cancel()
        rest = await staying + await other.finish()
    assert rest == encoded_here("flac", [tone(300)])


async def test_an_ended_process_is_told_and_replaced(pool):
    async with pool.open("mp3") as encoder:
        await encoder.add(tone(200))
        os.kill(processes(pool)[0], signal.SIGKILL)
        with pytest.raises(CosyuiError) as caught:
            await asyncio.gather(*(encoder.add(tone(200)) for _ in range(1_000)))
        assert caught.value.code == "encoder_died"
    assert await encoded(pool, "mp3", [tone(200)]) == encoded_here("mp3", [tone(200)])


async def test_without_processes_it_works_in_threads():
    pool = EncoderPool(0)
    pool.start()
    assert await encoded(pool, "aac", [tone(200)]) == encoded_here("aac", [tone(200)])
    assert processes(pool) == []
    with pytest.raises(InputError):
        async with pool.open("mp4"):
            pass
    await pool.close()


async def test_closing_ends_the_processes():
    pool = EncoderPool(1)
    pool.start()
    assert await encoded(pool, "mp3", [tone(200)])
    (pid,) = processes(pool)
    await pool.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
