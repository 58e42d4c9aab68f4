"""Encoders in processes of their own, for many listeners at once.

libav lets go of the interpreter and takes it again some hundred times for a second of sound: with many encoders in
threads, those hand it round instead of working, and the event loop waits among them. A process also keeps a crash of a
codec away from the server.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import logging
import os
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections import deque
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Protocol

import cosyui
from cosyui.engine.request import SAMPLE_RATE
from cosyui.errors import CosyuiError
from cosyui.host.encoding_worker import ADD, ANSWER, CLOSE, COMMAND, FINISH, OPEN
from cosyui.ops.logs import log
from cosyui.speech.sound.encode import Encoder, check_format

logger = logging.getLogger(__name__)

CORES_EACH = 4
"""Processor cores for each process; with fewer there is none, and encoders run in threads."""
MOST_PROCESSES = 8
FEW = 4
"""Encoders that a process may have before another process is started."""
_PLAIN = ("pcm", "wav")


class SoundEncoder(Protocol):
    """`add` int16 mono PCM at 24 kHz as it comes, then `finish`; each gives the bytes that are ready by then."""

    async def add(self, pcm: bytes) -> bytes: ...

    async def finish(self) -> bytes: ...


class EncoderPool:
    """One process from `start` on, and more while many listen. Make, `start`, use, `close`, on one event loop."""

    def __init__(self, processes: int | None = None) -> None:
        self._most = min(MOST_PROCESSES, (os.cpu_count() or 1) // CORES_EACH) if processes is None else processes
        self._processes: list[_EncoderProcess] = []
        self._starting: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Returns before the process is there."""
        self._add_process()

    @contextlib.asynccontextmanager
    async def open(self, name: str, rate: int = SAMPLE_RATE, samples: int | None = None) -> AsyncIterator[SoundEncoder]:
        """An encoder as `cosyui.speech.sound.encode.Encoder`, closed at the end, wherever it is.

        Raises InputError as `check_format`, and CosyuiError ``encoder_died``.
        """
        check_format(name, rate)
        process = None if name in _PLAIN or not self._most else await self._roomiest()
        if process is None:
            encoder = Encoder(name, rate, samples)
            try:
                yield _Here(encoder, aside=name not in _PLAIN or rate != SAMPLE_RATE)
            finally:
                await asyncio.to_thread(encoder.close)  # a thread may still be in it
        else:
            async with process.encoder(name, rate, samples) as remote:
                yield remote

    async def close(self) -> None:
        """End the processes; what still waits for them fails."""
        self._most = 0
        if self._starting is not None:
            await asyncio.wait([self._starting])
        for process in self._processes:
            await process.stop()

    async def _roomiest(self) -> _EncoderProcess | None:
        """None if there is no process to be had."""
        self._processes = [process for process in self._processes if process.alive]
        if all(process.encoders >= FEW for process in self._processes):
            self._add_process()
        if not self._processes and self._starting is not None:
            await asyncio.wait([self._starting])
        return min(self._processes, key=lambda process: process.encoders, default=None)

    def _add_process(self) -> None:
        if len(self._processes) < self._most and (self._starting is None or self._starting.done()):
            self._starting = asyncio.create_task(self._start_process(), name="encoders-start")

    async def _start_process(self) -> None:
        try:
            process = await _EncoderProcess.start()
        except OSError as error:
            log(logger, logging.WARNING, "encoders_not_started", reason=error.strerror)
        else:
            self._processes.append(process)


class _Here:
    """In this process; ``aside``: in a thread."""

    def __init__(self, encoder: Encoder, aside: bool) -> None:
        self._encoder = encoder
        self._aside = aside

    async def add(self, pcm: bytes) -> bytes:
        return await asyncio.to_thread(self._encoder.add, pcm) if self._aside else self._encoder.add(pcm)

    async def finish(self) -> bytes:
        return await asyncio.to_thread(self._encoder.finish) if self._aside else self._encoder.finish()


class _EncoderProcess:
    """Answers come in the order of the commands."""

    def __init__(self, process: Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._process = process
        self._commands, self._answers = process.stdin, process.stdout
        self._numbers = itertools.count()
        self._waiting: deque[asyncio.Future[bytes]] = deque()
        self._reader = asyncio.create_task(self._read(), name=f"encoders-{process.pid}")
        self.encoders = 0
        self.alive = True

    @classmethod
    async def start(cls) -> _EncoderProcess:
        """Raises OSError when there is no process to be had."""
        root = str(Path(cosyui.__file__).parents[1])
        path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", "cosyui.host.encoding_worker"),
            stdin=PIPE,
            stdout=PIPE,
            stderr=DEVNULL,
            env={**os.environ, "PYTHONPATH": path},
            start_new_session=True,  # the terminal's Ctrl-C is for the server
        )
        log(logger, logging.INFO, "encoders_started", pid=process.pid)
        return cls(process)

    @contextlib.asynccontextmanager
    async def encoder(self, name: str, rate: int, samples: int | None) -> AsyncIterator[SoundEncoder]:
        number = next(self._numbers)
        self.encoders += 1
        try:
            self._send(OPEN, number, json.dumps([name, rate, samples]).encode())
            yield _There(self, number)
        finally:
            self.encoders -= 1
            self._send(CLOSE, number)

    async def ask(self, command: int, number: int, data: bytes = b"") -> bytes:
        """Raises CosyuiError ``encoder_died``."""
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        if not self.alive:
            raise _died()
        self._waiting.append(answer)
        self._send(command, number, data)
        return await answer

    async def stop(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        await self._reader

    def _send(self, command: int, number: int, data: bytes = b"") -> None:
        if self.alive:  # its end is noticed by who reads
            self._commands.write(COMMAND.pack(command, number, len(data)) + data)

    async def _read(self) -> None:
        try:
            while True:
                (size,) = ANSWER.unpack(await self._answers.readexactly(ANSWER.size))
                data = await self._answers.readexactly(size)
                answer = self._waiting.popleft()
                if not answer.done():  # who asked may be gone
                    answer.set_result(data)
        except (asyncio.IncompleteReadError, OSError):
            self.alive = False
            self._commands.close()
            code = await self._process.wait()
            log(logger, logging.WARNING if self.encoders else logging.INFO, "encoders_ended", code=code)
            for answer in self._waiting:
                if not answer.done():
                    answer.set_exception(_died())


class _There:
    def __init__(self, process: _EncoderProcess, number: int) -> None:
        self._process = process
        self._number = number

    async def add(self, pcm: bytes) -> bytes:
        return await self._process.ask(ADD, self._number, pcm)

    async def finish(self) -> bytes:
        return await self._process.ask(FINISH, self._number)


def _died() -> CosyuiError:
    return CosyuiError("encoder_died", "The sound could not be encoded: the encoder's process ended. Try again.")
