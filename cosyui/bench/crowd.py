"""Clients of a whole service at once, what becomes of their takes, and how right its estimates were."""

from __future__ import annotations

import asyncio
import contextlib
import io
import itertools
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from statistics import median
from typing import TYPE_CHECKING, Any

from cosyui.bench.rig import MIB
from cosyui.bench.sentences import CLIPS, CLIPS_SAY, percentile, spoken
from cosyui.errors import CosyuiError

if TYPE_CHECKING:
    from cosyui.service.service import SynthesisService
    from cosyui.service.ticket import Ticket
    from cosyui.service.types import TakeForm

STREAMED, LONG, LEFT = 0.4, 0.02, 0.05
"""Shares of the takes that are streamed, that are long jobs, and whose listener goes away in the middle."""
SHORT_WAIT = 0.1
"""Seconds: below them it makes no difference to anybody whether an estimate was right."""


@dataclass
class Tally:
    """What became of the takes. ``waits`` and ``works`` are pairs of estimated and real seconds, from the first time
    that a take was told an estimate: until its work began, and from then on until its end.
    """

    sent: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    speech_seconds: float = 0.0
    first_chunks: list[float] = field(default_factory=list)
    waits: list[tuple[float, float]] = field(default_factory=list)
    works: list[tuple[float, float]] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)

    def figures(self, seconds: float) -> dict[str, Any]:
        firsts = sorted(self.first_chunks) or [0.0]
        return {
            "takes": self.sent,
            "wall_s": seconds,
            "speech_per_s": self.speech_seconds / max(seconds, 1e-9),
            **{name: self.outcomes[name] for name in ("done", "left", "failed")},
            "lost": self.sent - self.outcomes.total(),
            "first_chunk_p50_s": percentile(firsts, 0.5),
            "first_chunk_p95_s": percentile(firsts, 0.95),
            "faults": len(self.faults),
        }

    def estimates(self) -> list[dict[str, Any]]:
        return [_errors("until its work begins", self.waits), _errors("until it is done", self.works)]


def _errors(what: str, pairs: list[tuple[float, float]]) -> dict[str, Any]:
    """How far estimates were off, of those that mattered."""
    pairs = [pair for pair in pairs if max(pair) > SHORT_WAIT] or [(0.0, 0.0)]
    off = sorted(abs(told - came) for told, came in pairs)
    shares = sorted(abs(told - came) / max(told, came, SHORT_WAIT) for told, came in pairs)
    return {
        "estimate": what,
        "takes": len(pairs),
        "median_s": median(came for _, came in pairs),
        "off_p50_s": percentile(off, 0.5),
        "off_p90_s": percentile(off, 0.9),
        "off_p50_share": percentile(shares, 0.5),
        "came_later_share": sum(came > told for told, came in pairs) / len(pairs),
    }


class Crowd:
    """``clients`` at once, with the recorded clips of the repository, and cuts of them for more ``voices``."""

    def __init__(self, service: SynthesisService, clients: int, words: int, voices: int, seed: int) -> None:
        self.service = service
        self.clients = clients
        self.words = words
        self.random = random.Random(seed)
        self.clips = [path.read_bytes() for path in sorted(CLIPS.glob("*.flac"))]
        self.voices = voices
        self.tally = Tally()

    async def round(self, takes: int, restarts: int) -> list[dict[str, Any]]:
        """So many takes from the first to the last end, with soft restarts at equal distances."""
        forms = (self._form() for _ in range(takes))
        ended, moments = itertools.count(1), [takes * (number + 1) // (restarts + 1) for number in range(restarts)]
        running: list[asyncio.Task[dict[str, Any]]] = []

        def on_end() -> None:
            if next(ended) in moments:
                running.append(asyncio.create_task(self._soft_restart()))

        async with asyncio.TaskGroup() as group:
            for number in range(self.clients):
                group.create_task(self._client(f"client {number}", forms, on_end))
        return await asyncio.gather(*running)

    async def _client(self, name: str, forms: Iterator[TakeForm], on_end: Callable[[], None]) -> None:
        for form in forms:
            self.tally.sent += 1
            leaves = self.random.random() < LEFT
            try:
                ticket = await self.service.submit(replace(form, client=name))
                await self._follow(ticket, leaves)
            except CosyuiError as error:
                self._fault(f"refused: {error.code}: {error.message}")
            on_end()

    async def _follow(self, ticket: Ticket, leaves: bool) -> None:
        from cosyui.service.types import Chunk, Done, Problem, Running, Stopped, Waiting

        sent, told, began, work = time.perf_counter(), None, 0.0, None
        async with contextlib.aclosing(ticket.updates()) as updates:
            async for update in updates:
                now = time.perf_counter()
                match update:
                    case Waiting(position=position, eta_seconds=float(eta)) if position and told is None:
                        told = (now, eta)
                    case Running(eta_seconds=eta):
                        if not began:
                            began = now
                            if told is not None:
                                self.tally.waits.append((told[1], now - told[0]))
                        if work is None and eta is not None:
                            work = (now, eta)
                        if leaves:
                            self.tally.outcomes["left"] += 1
                            return
                    case Chunk():
                        pass
                    case Done(result):
                        self.tally.outcomes["done"] += 1
                        self.tally.speech_seconds += result.seconds
                        self.tally.first_chunks.append(result.first_chunk_seconds)
                        if work is not None:
                            self.tally.works.append((work[1], now - work[0]))
                        if not result.path.is_file() or result.seconds <= 0:
                            self.tally.faults.append(f"{ticket.id} has no sound")
                        return
                    case Problem(error):
                        self._fault(f"{ticket.id} after {now - sent:.1f} s: {error.code}: {error.message}")
                    case Stopped():
                        self._fault(f"{ticket.id} was stopped by nobody")

    def _fault(self, sentence: str) -> None:
        self.tally.outcomes["failed"] += 1
        self.tally.faults.append(sentence)

    def _form(self) -> TakeForm:
        from cosyui.engine.request import Mode
        from cosyui.service.types import TakeForm

        source = self.random
        count = max(1, round(self.words * source.uniform(0.5, 1.5)))
        if source.random() < LONG:
            count = max(count, 60)  # more characters than a short take may have
        mode = source.choice((Mode.ZERO_SHOT, Mode.CROSS_LINGUAL))
        return TakeForm(
            spoken(source, count),
            mode,
            self._clip(source.randrange(self.voices)),
            CLIPS_SAY if mode is Mode.ZERO_SHOT else "",
            seed=source.randrange(1 << 30),
            stream=source.random() < STREAMED,
        )

    def _clip(self, voice: int) -> bytes:
        turn, number = divmod(voice, len(self.clips))
        return _without_start(self.clips[number], turn) if turn else self.clips[number]

    async def _soft_restart(self) -> dict[str, Any]:
        done = await self.service.soft_restarter.run()
        freed = {f"{name}_mib": amount / MIB for name, amount in done.freed.items()}
        return {
            **freed,
            "waited_s": done.waited_seconds,
            "cleared_s": done.cleared_seconds,
            "held_back": done.held_back,
            "around": done.around,
        }


def _without_start(clip: bytes, milliseconds: int) -> bytes:
    """Another clip for whoever keeps features of clips."""
    import soundfile

    samples, rate = soundfile.read(io.BytesIO(clip), dtype="int16")
    buffer = io.BytesIO()
    soundfile.write(buffer, samples[milliseconds * rate // 1000 :], rate, format="FLAC")
    return buffer.getvalue()
