"""An engine without a network, for everything above it: a tone per request, and trouble on demand.

Trouble is asked for by directives in the text, ``[fake:<name>]`` or ``[fake:<name>=<value>]``, or for all requests by
``FakeScript.directives``. The tone's pitch comes from the request's id and the number of the segment, so that a test
can tell whose audio it hears, and which part of it.
"""

from __future__ import annotations

import hashlib
import math
import os
import re
import signal
import time
from collections.abc import Container
from pathlib import Path

import numpy as np

from cosyui.engine.lanes import Lanes
from cosyui.engine.request import (
    SAMPLE_RATE,
    AudioChunk,
    Cancelled,
    EngineFacts,
    EngineStats,
    Event,
    Failed,
    Finished,
    Progress,
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
    "segments": "this many segments of equal length, with pauses between; a long request has one per 80 characters",
    "bad": "the segment of this number comes out bad at first and is made again",
    "bad_always": "the segment of this number comes out bad again and again",
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
SEGMENT_CHARS = 80
PAUSE_SECONDS = 0.25


def directives(text: str) -> dict[str, str]:
    """The directives in a text with their values; SetupError for one that does not exist."""
    found = dict(_DIRECTIVE.findall(text))
    for name in found:
        if name not in DIRECTIVES:
            raise SetupError("setting_invalid", f"The fake engine knows no {name!r}; it knows {', '.join(DIRECTIVES)}.")
    return found


def tone_hz(request_id: str, segment: int = 0) -> int:
    """Pitch of a segment's tone: 200 to 1999 Hz by a hash of the request's id, and 20 Hz more for each segment."""
    base = 200 + int.from_bytes(hashlib.sha256(request_id.encode()).digest()[:4], "big") % 1800
    return base + 20 * (segment % 100)


def speech_seconds(request: SynthesisRequest) -> float:
    """How long the fake speech is without pauses: about as long as a person would take."""
    asked = directives(request.text).get("seconds")
    if asked:
        return float(asked)
    plain = _DIRECTIVE.sub("", request.text)
    return max(1.0, sum(0.22 if ord(character) > 0x2E7F else 0.065 for character in plain)) / request.speed


def segment_count(request: SynthesisRequest) -> int:
    asked = directives(request.text).get("segments")
    if asked:
        return int(asked)
    return math.ceil(len(_DIRECTIVE.sub("", request.text)) / SEGMENT_CHARS) if request.long else 1


def segment_pcm(request: SynthesisRequest, segment: int) -> bytes:
    """One segment and the pause before it: int16 PCM at 24 kHz, the same each time."""
    samples = round(speech_seconds(request) / segment_count(request) * SAMPLE_RATE)
    wave = 0.3 * np.sin(2 * np.pi * tone_hz(request.id, segment) * np.arange(samples) / SAMPLE_RATE)
    pause = bytes(2 * round(PAUSE_SECONDS * SAMPLE_RATE)) if segment else b""
    return pause + (wave * 32767).astype("<i2").tobytes()


def fake_pcm(request: SynthesisRequest) -> bytes:
    """All audio of a request."""
    return b"".join(segment_pcm(request, segment) for segment in range(segment_count(request)))


class _Take:
    """A request in work; the audio of one segment at a time is in memory."""

    def __init__(self, request: SynthesisRequest, orders: dict[str, str], chunk_seconds: float) -> None:
        self.request = request
        self.orders = orders
        self.segments = 0 if "empty" in orders else segment_count(request)
        self.size = max(1, round(chunk_seconds * SAMPLE_RATE))
        if "chunks" in orders:
            self.size = max(1, math.ceil(speech_seconds(request) * SAMPLE_RATE / int(orders["chunks"])))
        self.segment = 0
        self.left = b""
        self.sent = 0
        self.index = 0
        self.retries = 0
        self.begun = False
        self.seconds = 0.0
        self.first_chunk = 0.0

    @property
    def at_border(self) -> bool:
        """Between two segments."""
        return not self.left

    @property
    def next_is_bad(self) -> bool:
        """The next segment is one that was asked to come out bad, and was not made yet."""
        number = str(self.segment + 1)
        first = self.orders.get("bad") == number and not self.retries
        return self.at_border and (first or self.orders.get("bad_always") == number)

    def next_chunk(self) -> AudioChunk | None:
        if not self.left and self.segment < self.segments:
            self.left = segment_pcm(self.request, self.segment)
            self.segment += 1
        if not self.left:
            return None
        pcm, self.left = self.left[: 2 * self.size], self.left[2 * self.size :]
        chunk = AudioChunk(self.request.id, self.index, pcm)
        self.sent += chunk.samples
        self.index += 1
        return chunk


class FakeEngine:
    """See `cosyui.engine.base.EngineProtocol`. ``retried``: requests that were in a process when it ended.

    Its speed is that of one request after the other: those in work take turns, one chunk each.
    """

    def __init__(self, config: HostConfig, retried: Container[str] = ()) -> None:
        self._script = config.fake
        self._orders = directives(config.fake.directives)
        self._retried = retried
        self._lanes: Lanes[_Take] = Lanes(config.fake.places)
        self._turn = 0
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
            places=config.fake.places,
        )

    def submit(self, request: SynthesisRequest) -> None:
        orders = self._orders | directives(request.text)
        self._lanes.add(_Take(request, orders, self._script.chunk_seconds))

    def cancel(self, request_id: str) -> None:
        take = self._lanes.find(request_id)
        if take is not None:
            self._lanes.remove(take)
            self._dropped.append(Cancelled(request_id))

    @property
    def has_work(self) -> bool:
        return bool(len(self._lanes) or self._dropped)

    def step(self) -> list[Event]:
        if self._dropped:
            events, self._dropped = self._dropped, []
            return events
        running = self._lanes.running()
        if not running:
            return []
        take = running[self._turn % len(running)]
        began = time.monotonic()
        if take.begun:
            trouble = self._trouble(take)
            events = self._speak(take, began) if trouble is None else trouble
        else:
            take.begun = True
            events = [Started(take.request.id, max(1, take.segments))]
        spent = time.monotonic() - began
        for other in running:
            other.seconds += spent
        if self._lanes.find(take.request.id) is take:
            self._turn += 1
            if take.at_border:
                self._lanes.border(take)
        return events

    def stats(self) -> EngineStats:
        running = sum(take.begun for take in self._lanes)
        return EngineStats(running, len(self._lanes) - running, self._finished, self._failed, rss=0)

    def close(self) -> None:
        self._lanes.clear()

    def _trouble(self, take: _Take) -> list[Event] | None:
        orders, request_id = take.orders, take.request.id
        if "oom" in orders:
            return self._fail(take, "out_of_memory", "The GPU has too little free memory for this text. Shorten it.")
        if "noise" in orders:
            os.write(1, b"noise on stdout\n")
            os.write(2, b"noise on stderr\n")
        if take.next_is_bad:
            return self._redo(take)
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

    def _redo(self, take: _Take) -> list[Event]:
        """What the output gate would do: one more try, then the end."""
        if take.retries:
            place = f"Part {take.segment + 1} of {take.segments}"
            return self._fail(take, "output_bad", f"{place} could not be made: the sound was silent. Try another seed.")
        take.retries += 1
        return [Progress(take.request.id, take.sent / SAMPLE_RATE, redone=True)]

    def _speak(self, take: _Take, began: float) -> list[Event]:
        slow = take.orders.get("slow")
        time.sleep(self._script.step_seconds if slow is None else float(slow or 0.2))
        chunk = take.next_chunk()
        now = take.seconds + time.monotonic() - began
        if chunk is not None:
            if chunk.index == 0:
                take.first_chunk = now
            return [Progress(chunk.request_id, take.sent / SAMPLE_RATE), chunk]
        self._lanes.remove(take)
        self._finished += 1
        seconds = take.sent / SAMPLE_RATE
        stats = RequestStats(
            speech_seconds=seconds,
            total_seconds=now,
            first_chunk_seconds=take.first_chunk,
            speech_tokens=round(seconds * SPEECH_TOKENS_PER_SECOND),
            segments=max(1, take.segments),
            retries=take.retries,
        )
        return [Finished(take.request.id, stats)]

    def _fail(self, take: _Take, code: str, message: str) -> list[Event]:
        self._lanes.remove(take)
        self._failed += 1
        return [Failed(take.request.id, code, message)]


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
