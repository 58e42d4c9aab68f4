"""An engine without a network, for everything above it: a tone per request, and trouble on demand.

Trouble is asked for by directives in the text, ``[fake:<name>]`` or ``[fake:<name>=<value>]``, or for all requests by
``FakeScript.directives``; `fake_sound` lists them.
"""

from __future__ import annotations

import math
import os
import signal
import time
from collections.abc import Container
from pathlib import Path

from cosyui.engine.lanes import Lanes
from cosyui.engine.loading import BEGINS, OnProgress, Steps
from cosyui.engine.request import (
    SAMPLE_RATE,
    AudioChunk,
    Cancelled,
    Cleared,
    EngineFacts,
    EngineStats,
    Event,
    Failed,
    Finished,
    Progress,
    RequestMemory,
    RequestStats,
    SelfTest,
    Started,
    SynthesisRequest,
)
from cosyui.errors import CheckpointError
from cosyui.host.config import HostConfig
from cosyui.host.fake_card import FakeCard
from cosyui.host.fake_sound import directives, segment_count, segment_pcm, speech_seconds
from cosyui.notice import Notice

_HOLD_STEP = 0.02
SPEECH_TOKENS_PER_SECOND = 25
_FAILED_TEST = SelfTest(
    1.0, Notice.of("self_test_take", "Self-test: {reason}", device="cpu", reason="so it was asked.")
)


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
        self.parts: list[tuple[int, int]] = []
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
        if not self.left:
            self.parts.append((self.sent, len(self.request.text) // self.segments))
        return chunk


class FakeEngine:
    """See `cosyui.engine.base.EngineProtocol`. ``retried``: requests that were in a process when it ended.

    Its speed is that of one request after the other: those in work take turns, one chunk each.
    """

    def __init__(
        self,
        config: HostConfig,
        retried: Container[str] = (),
        on_progress: OnProgress = lambda progress: None,
    ) -> None:
        self._script = config.fake
        self._orders = directives(config.fake.directives)
        self._retried = retried
        self._lanes: Lanes[_Take] = Lanes(config.fake.places)
        self._turn = 0
        self._dropped: list[Event] = []
        self._finished = self._failed = 0
        self._card = FakeCard("gpu" in self._orders)
        if "load_error" in self._orders:
            raise CheckpointError("checkpoint_missing_file", "The model folder has no llm.pt. Download it again.")
        if "load_crash" in self._orders:
            _die()
        if "load_hang" in self._orders:
            signal.pause()
        self._load(Steps(on_progress))
        self.facts = EngineFacts(
            model="fake",
            source="built in",
            device="cpu",
            precision={"all": "float32"},
            parameters={},
            memory={},
            load_seconds=0.0,
            places=config.fake.places,
            self_test=_FAILED_TEST if "degraded" in self._orders else None,
        )

    def submit(self, request: SynthesisRequest) -> None:
        orders = self._orders | directives(request.text)
        self._lanes.add(_Take(request, orders, self._script.chunk_seconds))

    def cancel(self, request_id: str) -> None:
        take = self._lanes.find(request_id)
        if take is not None:
            self._memory_after(take)
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
            self._card.begin(take.request.id, take.request.prompt.key)
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
        stats = EngineStats(running, len(self._lanes) - running, self._finished, self._failed, rss=0)
        return self._card.fill(stats)

    def clear(self, *, light: bool = False) -> Cleared:
        return Cleared({"features": self._card.clear(light=light), "unused": 0, "host": 0}, 0.0)

    def close(self) -> None:
        self._lanes.clear()

    def _load(self, step: Steps) -> None:
        for stage in BEGINS:
            step(stage)
            while self._orders.get("load_hold") == stage and not self._released():
                time.sleep(_HOLD_STEP)

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
        memory = self._memory_after(take)
        self._finished += 1
        seconds = take.sent / SAMPLE_RATE
        stats = RequestStats(
            speech_seconds=seconds,
            total_seconds=now,
            first_chunk_seconds=take.first_chunk,
            speech_tokens=round(seconds * SPEECH_TOKENS_PER_SECOND),
            segments=max(1, take.segments),
            retries=take.retries,
            memory=memory,
            parts=tuple(take.parts),
        )
        return [Finished(take.request.id, stats)]

    def _fail(self, take: _Take, code: str, message: str) -> list[Event]:
        memory = self._memory_after(take)
        self._failed += 1
        return [Failed(take.request.id, code, message, memory=memory)]

    def _memory_after(self, take: _Take) -> RequestMemory:
        self._lanes.remove(take)
        leak = take.orders.get("leak")
        return self._card.end(take.request.id, 0 if leak is None else int(leak or 1 << 20))


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
