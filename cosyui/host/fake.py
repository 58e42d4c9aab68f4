"""An engine without a network, for everything above it: a tone per request, and trouble on demand.

Trouble is asked for by directives in the text, ``[fake:<name>]`` or ``[fake:<name>=<value>]``, or for all requests by
``FakeScript.directives``. The tone's pitch comes from the request's id, so that a test can tell whose audio it hears.
"""

from __future__ import annotations

import hashlib
import os
import re
import signal
import time
from collections import deque
from collections.abc import Container
from pathlib import Path

import numpy as np

from cosyui.engine.request import (
    SAMPLE_RATE,
    AudioChunk,
    Cancelled,
    EngineFacts,
    EngineStats,
    Event,
    Failed,
    Finished,
    RequestStats,
    Started,
    SynthesisRequest,
)
from cosyui.errors import CheckpointError, SetupError
from cosyui.host.config import HostConfig

DIRECTIVES = {
    "slow": "each chunk takes this many seconds (0.2)",
    "seconds": "this much speech, instead of a length that suits the text",
    "chunks": "this many chunks, instead of one per half second",
    "fail": "fail after the first chunk, with this code (output_bad)",
    "oom": "fail with out_of_memory",
    "empty": "finish without any audio",
    "die": "kill the process after the first chunk; the retry goes well",
    "die_always": "kill the process after the first chunk, every time",
    "hold": "after the first chunk, wait until cancelled or until the script's release file exists",
    "noise": "write to stdout and stderr, as libraries do",
    "hang": "never come back from a step",
    "load_error": "fail to load with checkpoint_missing_file (for all requests only)",
    "load_crash": "kill the process while loading (for all requests only)",
    "load_hang": "never finish loading (for all requests only)",
}
_DIRECTIVE = re.compile(r"\[fake:([a-z_]+)(?:=([\w.]+))?\]")
_HOLD_STEP = 0.02
SPEECH_TOKENS_PER_SECOND = 25


def directives(text: str) -> dict[str, str]:
    """The directives in a text with their values; SetupError for one that does not exist."""
    found = dict(_DIRECTIVE.findall(text))
    for name in found:
        if name not in DIRECTIVES:
            raise SetupError("setting_invalid", f"The fake engine knows no {name!r}; it knows {', '.join(DIRECTIVES)}.")
    return found


def tone_hz(request_id: str) -> int:
    """Pitch of a request's tone: 200 to 1999 Hz, from a hash of its id."""
    return 200 + int.from_bytes(hashlib.sha256(request_id.encode()).digest()[:4], "big") % 1800


def speech_seconds(request: SynthesisRequest) -> float:
    """How long the fake speech is: about as long as a person would take."""
    asked = directives(request.text).get("seconds")
    if asked:
        return float(asked)
    plain = _DIRECTIVE.sub("", request.text)
    return max(1.0, sum(0.22 if ord(character) > 0x2E7F else 0.065 for character in plain)) / request.speed


def fake_pcm(request: SynthesisRequest) -> bytes:
    """All audio of a request: int16 PCM at 24 kHz, the same each time."""
    time_axis = np.arange(round(speech_seconds(request) * SAMPLE_RATE)) / SAMPLE_RATE
    wave = 0.3 * np.sin(2 * np.pi * tone_hz(request.id) * time_axis)
    return (wave * 32767).astype("<i2").tobytes()


class _Take:
    """A request in work."""

    def __init__(self, request: SynthesisRequest, orders: dict[str, str], chunk_seconds: float) -> None:
        self.request = request
        self.orders = orders
        self.pcm = b"" if "empty" in orders else fake_pcm(request)
        samples = len(self.pcm) // 2
        size = round(chunk_seconds * SAMPLE_RATE)
        if "chunks" in orders:
            size = -(-samples // int(orders["chunks"]))
        self.size = max(1, size)
        self.sent = 0
        self.index = 0
        self.begun: float | None = None
        self.first_chunk = 0.0

    def next_chunk(self) -> AudioChunk | None:
        pcm = self.pcm[2 * self.sent : 2 * (self.sent + self.size)]
        if not pcm:
            return None
        chunk = AudioChunk(self.request.id, self.index, pcm)
        self.sent += chunk.samples
        self.index += 1
        return chunk


class FakeEngine:
    """See `cosyui.engine.base.EngineProtocol`. ``retried``: requests that already killed a process once."""

    def __init__(self, config: HostConfig, retried: Container[str] = ()) -> None:
        self._script = config.fake
        self._orders = directives(config.fake.directives)
        self._retried = retried
        self._takes: deque[_Take] = deque()
        self._dropped: list[Event] = []
        self._finished = self._failed = 0
        if "load_error" in self._orders:
            raise CheckpointError("checkpoint_missing_file", "The model folder has no llm.pt. Download it again.")
        if "load_crash" in self._orders:
            _die()
        if "load_hang" in self._orders:
            signal.pause()
        self.facts = EngineFacts(
            model="fake",
            source="built in",
            device="cpu",
            precision={"all": "float32"},
            parameters={},
            memory={},
            load_seconds=0.0,
        )

    def submit(self, request: SynthesisRequest) -> None:
        orders = self._orders | directives(request.text)
        self._takes.append(_Take(request, orders, self._script.chunk_seconds))

    def cancel(self, request_id: str) -> None:
        for take in [take for take in self._takes if take.request.id == request_id]:
            self._takes.remove(take)
            self._dropped.append(Cancelled(request_id))

    @property
    def has_work(self) -> bool:
        return bool(self._takes or self._dropped)

    def step(self) -> list[Event]:
        if self._dropped:
            events, self._dropped = self._dropped, []
            return events
        if not self._takes:
            return []
        take = self._takes[0]
        if take.begun is None:
            take.begun = time.monotonic()
            return [Started(take.request.id, segments=1)]
        trouble = self._trouble(take)
        return trouble if trouble is not None else self._speak(take)

    def stats(self) -> EngineStats:
        running = min(1, len(self._takes))
        return EngineStats(running, len(self._takes) - running, self._finished, self._failed, rss=0)

    def close(self) -> None:
        self._takes.clear()

    def _trouble(self, take: _Take) -> list[Event] | None:
        orders, request_id = take.orders, take.request.id
        if "oom" in orders:
            return self._fail(take, "out_of_memory", "The GPU has too little free memory for this text. Shorten it.")
        if "noise" in orders:
            os.write(1, b"noise on stdout\n")
            os.write(2, b"noise on stderr\n")
        if take.index == 0:
            return None
        if "fail" in orders:
            return self._fail(take, orders["fail"] or "output_bad", "The engine failed, as it was asked to.")
        if "die_always" in orders or ("die" in orders and request_id not in self._retried):
            _die()
        if "hang" in orders:
            signal.pause()
        if "hold" in orders and not self._released():
            time.sleep(_HOLD_STEP)
            return []
        return None

    def _released(self) -> bool:
        return self._script.release_file is not None and Path(self._script.release_file).exists()

    def _speak(self, take: _Take) -> list[Event]:
        slow = take.orders.get("slow")
        time.sleep(self._script.step_seconds if slow is None else float(slow or 0.2))
        chunk = take.next_chunk()
        now = time.monotonic()
        assert take.begun is not None
        if chunk is not None:
            if chunk.index == 0:
                take.first_chunk = now - take.begun
            return [chunk]
        self._takes.popleft()
        self._finished += 1
        seconds = take.sent / SAMPLE_RATE
        stats = RequestStats(
            speech_seconds=seconds,
            total_seconds=now - take.begun,
            first_chunk_seconds=take.first_chunk,
            speech_tokens=round(seconds * SPEECH_TOKENS_PER_SECOND),
            segments=1,
        )
        return [Finished(take.request.id, stats)]

    def _fail(self, take: _Take, code: str, message: str) -> list[Event]:
        self._takes.remove(take)
        self._failed += 1
        return [Failed(take.request.id, code, message)]


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
