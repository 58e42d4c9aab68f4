"""The LLM's feed as processes: ``python -m cosyui.voice_training.feed_process`` writes batches to its standard output.

Such a process is a new interpreter, not a fork of the trainer: a fork would inherit torch's thread pool in an unusable
state and wait for ever on the first larger operation.
"""

from __future__ import annotations

import argparse
import os
import queue
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import IO

import numpy as np

from cosyui.errors import EngineError
from cosyui.voice_training.feed import Batch, Feed, Voices
from cosyui.voice_training.instructions import prompt_ids
from cosyui.voice_training.layout import text_tokenizer

_HEADER = struct.Struct("<3q")
"""Rows, positions, speech tokens known; three int16 arrays follow."""
_RESCAN = 15.0
_SILENCE, _SILENCES = 20.0, 5


def write_batch(stream: IO[bytes], batch: Batch) -> None:
    stream.write(_HEADER.pack(*batch.ids.shape, batch.codes))
    for array in (batch.kind, batch.ids, batch.targets):
        stream.write(np.ascontiguousarray(array, np.int16).tobytes())
    stream.flush()


def read_batch(stream: IO[bytes]) -> Batch | None:
    """The next batch, None at the end of the stream (a last batch that is cut off counts as none)."""
    head = stream.read(_HEADER.size)
    if len(head) < _HEADER.size:
        return None
    rows, length, codes = _HEADER.unpack(head)
    body = stream.read(3 * 2 * rows * length)
    if len(body) < 3 * 2 * rows * length:
        return None
    kind, ids, targets = np.frombuffer(body, np.int16).reshape(3, rows, length)
    return Batch(kind, ids, targets, codes)


class FeedReader:
    """``workers`` feed processes and the batches they have ready; a process that ends is started again."""

    def __init__(self, ids: Path, budget: int, workers: int, seed: int) -> None:
        self._ids, self._budget = ids, budget
        self._ready: queue.Queue[Batch] = queue.Queue(16)
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._closed = threading.Event()
        for worker in range(workers):
            threading.Thread(target=self._read, args=(worker, seed), daemon=True).start()

    def next(self) -> Batch:
        """Waits for a batch. Raises EngineError after 100 s without any."""
        for _ in range(_SILENCES):
            try:
                return self._ready.get(timeout=_SILENCE)
            except queue.Empty:
                print(f"llm: no batch for {_SILENCE:.0f} s", flush=True)
        raise EngineError("training_feed_silent", "The feed gives no batches: look at the id files.")

    def close(self) -> None:
        self._closed.set()
        for process in list(self._processes.values()):
            process.kill()

    def _read(self, worker: int, seed: int) -> None:
        start = 0
        while not self._closed.is_set():
            process = self._start(seed + 1000 * worker + start)
            self._processes[worker] = process
            assert process.stdout is not None
            while (batch := read_batch(process.stdout)) is not None:
                self._put(batch)
            process.wait()
            start += 1
            if not self._closed.wait(1.0):
                print(f"feed {worker} ended with {process.returncode}, starting again", flush=True)

    def _put(self, batch: Batch) -> None:
        while not self._closed.is_set():
            try:
                return self._ready.put(batch, timeout=1.0)
            except queue.Full:
                continue
        return None

    def _start(self, seed: int) -> subprocess.Popen[bytes]:
        one = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
        command = [sys.executable, "-m", "cosyui.voice_training.feed_process", "--ids", str(self._ids)]
        command += ["--budget", str(self._budget), "--seed", str(seed)]
        return subprocess.Popen(command, stdout=subprocess.PIPE, env={**os.environ, **one})  # noqa: S603  # our own module


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Write training rows of the LLM to standard output for ever.")
    parser.add_argument("--ids", type=Path, required=True, help="folder of id files; new ones are taken up")
    parser.add_argument("--budget", type=int, default=49_152, help="positions of a batch")
    parser.add_argument("--seed", type=int, default=1, help="seed of the rows")
    args = parser.parse_args(argv)
    parent = os.getppid()
    voices = Voices(args.ids)
    while not voices.scan():
        time.sleep(1)
    feed = Feed(voices, prompt_ids(text_tokenizer()), args.budget, args.seed)
    scanned = time.monotonic()
    while os.getppid() == parent:  # else the trainer is gone
        if time.monotonic() - scanned > _RESCAN:
            voices.scan()
            scanned = time.monotonic()
        try:
            write_batch(sys.stdout.buffer, feed.batch())
        except BrokenPipeError:
            break
    return 0


if __name__ == "__main__":
    code = main()
    os._exit(code)  # the pipe may be gone: nothing is left to flush
