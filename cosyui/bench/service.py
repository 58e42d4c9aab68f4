"""``python -m cosyui.bench service DIR``: the whole service under a crowd: nothing lost, memory flat, ETAs checked.

Clients send takes through the admission queue to the engine's process and follow them: whole, streamed, long, some
given up in the middle. Soft restarts come while they do. Between rounds the idle service is looked at.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import io
import itertools
import random
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import psutil

from cosyui.bench.report import Report, percentile
from cosyui.bench.rig import MIB, positive
from cosyui.bench.workload import WORDS
from cosyui.engine.precision import choose_device
from cosyui.errors import CosyuiError

if TYPE_CHECKING:
    from cosyui.service.service import SynthesisService
    from cosyui.service.ticket import Ticket
    from cosyui.service.types import TakeForm

CLIPS = Path(__file__).parents[1] / "assets" / "evaluation"
STREAMED, LONG, LEFT = 0.4, 0.02, 0.05
"""Shares of the takes that are streamed, that are long jobs, and whose listener goes away in the middle."""
TRANSCRIPT = "This is what somebody says in the clip that comes with it."
KEPT_HOURS = 0.5 / 3600
"""Takes are purged after each round as if they were old: 10,000 would fill a disk."""
SHORT_WAIT = 0.1
"""Seconds: below them it makes no difference to anybody whether an estimate was right."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", metavar="DIR", help="model folder, embedded, or fake for the service alone")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda:N")
    parser.add_argument("--precision", default="auto", choices=("auto", "float32", "bfloat16", "float16"))
    parser.add_argument("--vram-budget", default="0", metavar="MIB", help="of the GPU (default: 80 %% of it)")
    parser.add_argument("--places", type=int, default=0, metavar="N", help="requests worked on at once")
    parser.add_argument("--clients", type=positive, default=32, help="each sends its next take when one has ended")
    parser.add_argument("--requests", type=positive, default=1000, help="in all, the first round not counted")
    parser.add_argument("--rounds", type=positive, default=5, help="looks at the idle service")
    parser.add_argument("--soft-restarts", type=int, default=1, metavar="N", help="in each round (default 1)")
    parser.add_argument("--words", type=positive, default=10, help="of a text, half to one and a half times that")
    parser.add_argument("--voices", type=positive, default=12, metavar="N", help="different clips (default 12)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there, too")


def run(args: argparse.Namespace) -> int:
    """Print the figures; 1 when a take was lost or failed, or memory on the card has grown."""
    report = Report("service", choose_device("cpu" if args.folder == "fake" else args.device), args)
    with tempfile.TemporaryDirectory(prefix="cosyui-bench-") as folder:
        return asyncio.run(measure(args, report, Path(folder)))


async def measure(args: argparse.Namespace, report: Report, folder: Path) -> int:
    """Rounds of requests on a service of its own, whose files are all in ``folder``."""
    from cosyui.service.service import running

    async with running(_service(args, folder)) as service:
        await service.client.wait_until()
        if service.client.problem is not None:
            raise service.client.problem
        crowd = Crowd(service, args.clients, args.words, args.voices, args.seed)
        share = max(args.clients, args.requests // args.rounds)
        await crowd.round(share, 0)
        crowd.tally = Tally()
        levels = [await level(service, 0)]
        restarts: list[dict[str, Any]] = []
        began = time.perf_counter()
        for _ in range(args.rounds):
            restarts += await crowd.round(share, args.soft_restarts)
            levels.append(await level(service, crowd.tally.sent))
            report.progress("levels", [asdict_mib(one) for one in levels])
        figures = crowd.tally.figures(time.perf_counter() - began)
        report.add("levels", "the idle service between the rounds", report.content["levels"])
        report.add("takes", f"takes, {args.clients} clients", figures)
        if restarts:
            report.add("soft_restarts", "soft restarts under this load", restarts)
        report.add("eta", "estimates against what came", crowd.tally.estimates())
        growth = {name: getattr(levels[-1], name) - getattr(levels[0], name) for name in GROWING}
        report.add("growth", "from the first look to the last", growth)
        for fault in crowd.tally.faults[:5]:
            print(f"fault: {fault}")
        report.save()
        return 1 if crowd.tally.faults or growth["allocated"] else 0


def _service(args: argparse.Namespace, folder: Path) -> SynthesisService:
    from cosyui.host.config import HostConfig
    from cosyui.host.pool import EnginePool
    from cosyui.service.clips import ClipStore
    from cosyui.service.outputs import OutputStore
    from cosyui.service.service import SynthesisService
    from cosyui.settings import Settings

    fake = args.folder == "fake"
    options = {
        "engine": "fake" if fake else "real",
        "model": "embedded" if fake else args.folder,
        "fake_places": max(1, args.places),
        "device": args.device,
        "precision": args.precision,
        "vram_budget": args.vram_budget,
        "places": args.places,
        "queue_size": args.clients,
        "outputs_dir": folder / "outputs",
        "clips_dir": folder / "clips",
        "journal": folder / "journal.sqlite",
        "purge_hours": KEPT_HOURS,
        "log_level": "error",
    }
    settings = Settings.load(options, {})
    pool = EnginePool(HostConfig.from_settings(settings).on_devices(()))
    return SynthesisService(settings, pool, OutputStore(settings.outputs_dir), ClipStore.from_settings(settings))


@dataclass(frozen=True)
class Level:
    """The idle service after so many takes. Bytes; threads and open files of both processes; files of takes left."""

    takes: int
    allocated: int
    reserved: int
    device: int
    engine_rss: int
    page_rss: int
    threads: int
    descriptors: int
    files: int


GROWING = ("allocated", "reserved", "device", "engine_rss", "page_rss", "threads", "descriptors", "files")


def asdict_mib(one: Level) -> dict[str, Any]:
    """For people: allocated to the byte, all other memory in MiB."""
    memory = {f"{name}_mib": getattr(one, name) / MIB for name in ("reserved", "device", "engine_rss", "page_rss")}
    counts = {name: getattr(one, name) for name in ("threads", "descriptors", "files")}
    return {"takes": one.takes, "allocated": one.allocated, **memory, **counts}


async def level(service: SynthesisService, takes: int) -> Level:
    """Of a service without a take, after a purge."""
    await asyncio.to_thread(service.operations.purge.run)
    stats = await service.client.stats()
    assert stats is not None
    own, engine = psutil.Process(), psutil.Process(service.client.pid)
    return Level(
        takes,
        stats.allocated,
        stats.reserved,
        stats.device_used,
        engine.memory_info().rss,
        own.memory_info().rss,
        own.num_threads() + engine.num_threads(),
        own.num_fds() + engine.num_fds(),
        sum(1 for path in service.outputs.root.rglob("*") if path.is_file()),
    )


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
            " ".join(source.choice(WORDS) for _ in range(count)).capitalize() + ".",
            mode,
            self._clip(source.randrange(self.voices)),
            TRANSCRIPT if mode is Mode.ZERO_SHOT else "",
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
