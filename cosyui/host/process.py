"""One life of the engine's process: start, two pipes, its last words, and an end that is always noticed.

The pipes are read and written by threads that block; the event loop hears of everything through callbacks. A plain
`subprocess` is used rather than `multiprocessing`: the child imports the engine and not the server's main module.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import pickle
import queue
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import cosyui
from cosyui.engine.config import ENVIRONMENT
from cosyui.host.messages import Command, Message, Shutdown
from cosyui.ops.logs import log, relay

logger = logging.getLogger(__name__)

TAIL_LINES, TAIL_CHARS = 40, 400
"""How much of the child's stderr is kept."""
LINE_CHARS = 8000
"""How much of one line of it is logged (a traceback in JSON is one line)."""

GRACE = 3.0
"""Seconds that each way of stopping it is given: asked, SIGTERM, SIGKILL."""


class EngineProcess:
    """Made inside a running event loop; ``on_message`` is called on that loop, in the order of sending.

    ``ended`` is set after the last message, as soon as the process is gone. OSError when there is no process or thread
    to be had.
    """

    def __init__(self, on_message: Callable[[Message], None]) -> None:
        self._on_message = on_message
        self._loop = asyncio.get_running_loop()
        self._commands: queue.SimpleQueue[Command | None] = queue.SimpleQueue()
        self.tail: deque[str] = deque(maxlen=TAIL_LINES)
        self.ended = asyncio.Event()
        root = str(Path(cosyui.__file__).parents[1])
        path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "cosyui.host.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**ENVIRONMENT, **os.environ, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1"},
            # Its own session: the terminal's Ctrl-C must not reach it before the server has seen it.
            start_new_session=True,
        )
        try:
            self._begin_threads()
        except RuntimeError as error:
            with self._process:
                self._process.kill()
            raise OSError(errno.EAGAIN, str(error)) from error

    def _begin_threads(self) -> None:
        stdin, stdout, stderr = self._process.stdin, self._process.stdout, self._process.stderr
        assert stdin is not None
        assert stdout is not None
        assert stderr is not None
        words = threading.Thread(target=self._listen, args=(stderr,), name="engine-stderr", daemon=True)
        words.start()
        for target, args in ((self._read, (stdout, words)), (self._write, (stdin,))):
            threading.Thread(target=target, args=args, name=f"engine-{target.__name__}", daemon=True).start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def send(self, command: Command) -> None:
        """Never blocks; a command for a dead process is dropped, its end is reported by ``ended``."""
        self._commands.put(command)

    def kill(self) -> None:
        self._process.kill()

    async def stop(self, ask: bool = True) -> None:
        """Ask (one that still loads cannot listen), then SIGTERM, then SIGKILL, each with a bounded wait."""
        acts = [self._process.terminate, self._process.kill]
        if ask:
            acts.insert(0, lambda: self.send(Shutdown()))
        for act in acts:
            act()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.ended.wait(), GRACE)
                break
        self._commands.put(None)

    def describe_end(self) -> str:
        """How it ended, for a sentence: "was killed by SIGKILL"."""
        code = self._process.returncode
        if code is not None and code < 0:
            with contextlib.suppress(ValueError):
                name = signal.Signals(-code).name
                hint = " (perhaps the machine ran out of memory)" if name == "SIGKILL" else ""
                return f"was killed by {name}{hint}"
        return f"ended with exit code {code}"

    def _read(self, stdout: IO[bytes], words: threading.Thread) -> None:
        try:
            while True:
                self._post(self._on_message, pickle.load(stdout))  # noqa: S301  (our own child)
        except (EOFError, pickle.UnpicklingError, OSError) as error:
            if not isinstance(error, EOFError):
                log(logger, logging.ERROR, "engine_pipe_broken", pid=self.pid, reason=type(error).__name__)
                self._process.kill()
        finally:
            stdout.close()
            self._process.wait()
            words.join(timeout=1.0)  # bounded: something the engine started may still hold its stderr
            self._commands.put(None)
            self._post(self.ended.set)

    def _write(self, stdin: IO[bytes]) -> None:
        with contextlib.suppress(OSError), stdin:
            while (command := self._commands.get()) is not None:
                pickle.dump(command, stdin, pickle.HIGHEST_PROTOCOL)
                stdin.flush()

    def _listen(self, stderr: IO[bytes]) -> None:
        with stderr:
            self._relay_lines(stderr)

    def _relay_lines(self, stderr: IO[bytes]) -> None:
        for raw in stderr:
            # A progress bar is one long line with carriage returns: its last state is enough.
            line = raw.decode("utf-8", "replace").rstrip().rpartition("\r")[2][:LINE_CHARS]
            if line:
                self.tail.append(line[:TAIL_CHARS])
                relay(logger, line, pid=self.pid)

    def _post(self, callback: Callable[..., None], *args: Any) -> None:
        # The loop may be closed already when a server goes down in a hurry; then nobody is left to tell.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(callback, *args)
