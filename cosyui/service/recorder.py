"""A take's audio on its way to the disk: a little waits in memory, and no write holds up the event loop."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from pathlib import Path

from cosyui.errors import CosyuiError
from cosyui.service.outputs import OutputStore
from cosyui.speech.sound.audio_out import WavWriter

MEMORY_BYTES = 4 << 20
"""About 90 s of speech: a short take is written when it is complete, a long job every so often."""


class Recorder:
    """``add`` chunks and ``spill`` now and then; end with ``finish`` or ``discard``, after which nothing is taken.

    ``path`` is where the take will be, also while nothing of it is there. ``size``: bytes that were added; ``grown`` is
    set with each chunk, for one who waits to `read` on.
    """

    def __init__(self, outputs: OutputStore, take_id: str) -> None:
        self._outputs = outputs
        self.path = outputs.path(take_id)
        self._waiting: list[bytes] = []
        self._bytes = 0
        self._writer: WavWriter | None = None
        self._lock = threading.Lock()
        self._discarded = False
        self.size = 0
        self.grown = asyncio.Event()

    def add(self, pcm: bytes) -> None:
        """Little-endian int16 mono PCM at 24 kHz."""
        self._waiting.append(pcm)
        self._bytes += len(pcm)
        self.size += len(pcm)
        self.grown.set()

    async def read(self, start: int, size: int) -> bytes:
        """What was added, from byte ``start`` on: some of it, ``size`` bytes at most; nothing where there is no more.

        Raises OSError when the finished file is gone.
        """
        if self._lock.acquire(blocking=False):
            try:
                if start >= self._written:  # no disk is asked
                    return self._recent(start - self._written, size)
            finally:
                self._lock.release()
        return await asyncio.to_thread(self._read, start, size)

    async def spill(self) -> None:
        """Write what waits if it is much. Raises as `finish`."""
        if self._bytes > MEMORY_BYTES:
            await self._in_thread(self._write)

    async def finish(self) -> Path:
        """The finished file. Raises CosyuiError ``outputs_not_writable``, ``disk_full`` or ``output_bad``."""
        await self._in_thread(self._finish)
        return self.path

    async def discard(self) -> None:
        """Leave nothing behind, neither in memory nor on the disk. Raises CosyuiError ``outputs_not_writable``."""
        self._waiting.clear()
        if self._writer is not None:
            await self._in_thread(self._discard)

    async def _in_thread(self, act: Callable[[], None]) -> None:
        work = asyncio.ensure_future(asyncio.to_thread(self._locked, act))
        try:
            await asyncio.shield(work)
        except asyncio.CancelledError:
            # A thread cannot be stopped: let it end, however often it is asked, so that its file can be taken away.
            while not work.done():
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.wait([work])
            with contextlib.suppress(CosyuiError):
                work.result()
            raise

    def _locked(self, act: Callable[[], None]) -> None:
        with self._lock:
            act()

    def _write(self) -> None:
        if self._discarded:
            return
        if self._writer is None:
            self._writer = WavWriter(self.path)
            self._writer.open()
        chunks, self._waiting, self._bytes = self._waiting, [], 0
        for chunk in chunks:
            self._writer.write(chunk)
        self._writer.flush()

    def _read(self, start: int, size: int) -> bytes:
        with self._lock:
            if self._writer is None or self._discarded or start >= self._written:
                return self._recent(start - self._written, size)
            return self._writer.read(start, min(size, self._written - start))

    @property
    def _written(self) -> int:
        return self._writer.data_bytes if self._writer is not None else 0

    def _recent(self, start: int, size: int) -> bytes:
        """Of what waits in memory."""
        for chunk in self._waiting:
            if start < len(chunk):
                return chunk[start : start + size]
            start -= len(chunk)
        return b""

    def _finish(self) -> None:
        self._write()
        if self._writer is not None and not self._discarded:
            self._writer.finish()

    def _discard(self) -> None:
        self._discarded = True
        if self._writer is not None:
            self._writer.discard()
            self._outputs.discard(self.path)
