"""The engine's process: reads commands from stdin, steps the engine, writes events to stdout. Run by `EngineProcess`.

It ends by itself when the server does: a thread waits for the end of stdin, also while the model loads or computes.
"""

from __future__ import annotations

import os
import pickle
import queue
import signal
import sys
import threading
import time
import traceback
from collections.abc import Container
from typing import BinaryIO

from cosyui.engine.base import EngineProtocol
from cosyui.engine.loading import OnProgress
from cosyui.errors import CosyuiError, EngineError
from cosyui.host.config import HostConfig
from cosyui.host.messages import (
    AskStats,
    Cancel,
    Clear,
    Command,
    Emptied,
    Events,
    LoadFailed,
    Loading,
    Message,
    Ready,
    Shutdown,
    Start,
    Stats,
    Submit,
)
from cosyui.ops.logs import setup_logging

STATS_EVERY = 0.5
"""Seconds between two unasked Stats while the engine works."""


class Worker:
    """``inbox`` is filled by the reading thread; ``out`` is the pipe to the server."""

    def __init__(self, out: BinaryIO) -> None:
        self.inbox: queue.SimpleQueue[Command] = queue.SimpleQueue()
        self._out = out
        self._told = 0.0
        self._retried: set[str] = set()

    def run(self) -> None:
        """Load, then serve until Shutdown."""
        start = self.inbox.get()
        assert isinstance(start, Start)
        setup_logging(start.config.log_level)
        try:
            engine = build(start.config, self._retried, lambda progress: self._send(Loading(progress)))
        except CosyuiError as error:
            self._send(LoadFailed(error))
            return
        except MemoryError:
            message = "There is not enough memory to load the model. Close other programs or choose a smaller model."
            self._send(LoadFailed(EngineError("out_of_memory", message)))
            return
        self._send(Ready(engine.facts))
        self._send(Stats(engine.stats()))
        try:
            self._serve(engine)
        finally:
            engine.close()

    def _serve(self, engine: EngineProtocol) -> None:
        while True:
            block = not engine.has_work
            try:
                command = self.inbox.get(block)
            except queue.Empty:
                self._step(engine)
                continue
            match command:
                case Submit():
                    if command.again:
                        self._retried.add(command.request.id)
                    engine.submit(command.request)
                case Cancel():
                    engine.cancel(command.request_id)
                case AskStats():
                    self._send(Stats(engine.stats(), answer=True))
                case Clear():
                    self._send(Emptied(engine.clear(light=command.light), command.light))
                    self._send(Stats(engine.stats()))
                case Shutdown():
                    return
                case Start():
                    raise AssertionError("a process is started once")

    def _step(self, engine: EngineProtocol) -> None:
        events = engine.step()
        if events:
            self._send(Events(tuple(events)))
        now = time.monotonic()
        if not engine.has_work or now - self._told > STATS_EVERY:
            self._told = now
            self._send(Stats(engine.stats()))

    def _send(self, message: Message) -> None:
        pickle.dump(message, self._out, pickle.HIGHEST_PROTOCOL)
        self._out.flush()


def build(config: HostConfig, retried: Container[str], on_progress: OnProgress) -> EngineProtocol:
    """The engine that the configuration asks for; the real one is imported only here, because it brings PyTorch."""
    if config.kind == "fake":
        from cosyui.host.fake import FakeEngine

        return FakeEngine(config, retried, on_progress)
    from cosyui.engine.engine import Engine
    from cosyui.engine.precision import choose_device
    from cosyui.engine.shortage import is_out_of_memory, memory_message

    try:
        engine: EngineProtocol = Engine(config.engine, on_progress)
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        advice = "The model cannot be loaded. Set a smaller COSYUI_VRAM_BUDGET"
        message = memory_message(choose_device(config.engine.device), error, advice)
        raise EngineError("out_of_memory", f"{message} Then restart the engine.") from error
    return engine


def _read(source: BinaryIO, inbox: queue.SimpleQueue[Command]) -> None:
    """Fill the inbox until the server is gone, then end the process, whatever it is doing."""
    while True:
        try:
            inbox.put(pickle.load(source))  # noqa: S301  (our own server)
        except (EOFError, pickle.UnpicklingError, OSError):
            os._exit(0)


def main() -> None:
    """Take stdin and stdout away from everything else in this process, so that no stray print garbles the pipe."""
    # Ctrl-C in the terminal is the server's to handle: it asks us to stop when it is ready to.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    source = os.fdopen(os.dup(0), "rb")
    out = os.fdopen(os.dup(1), "wb")
    with open(os.devnull, "rb") as nothing:  # noqa: PTH123
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)
    worker = Worker(out)
    threading.Thread(target=_read, args=(source, worker.inbox), name="commands", daemon=True).start()
    code = 0
    try:
        worker.run()
    except BrokenPipeError:
        pass  # the server is gone
    except BaseException:  # noqa: BLE001  (the end of the process: say why and go)
        traceback.print_exc()
        code = 1
    sys.stderr.flush()
    # Without the interpreter's own way out: threads of libraries can hold it up, and the server waits for the news.
    os._exit(code)


if __name__ == "__main__":
    main()
