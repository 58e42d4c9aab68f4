"""``python -m cosyui.bench service DIR``: the whole service under a crowd: nothing lost, memory flat, ETAs checked.

Clients send takes through the admission queue to the engine's process and follow them: whole, streamed, long, some
given up in the middle. Soft restarts come while they do. Between rounds the idle service is looked at.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from cosyui.bench.crowd import Crowd, Tally
from cosyui.bench.own_service import own_service
from cosyui.bench.report import Report
from cosyui.bench.rig import MIB, positive
from cosyui.engine.precision import choose_device

if TYPE_CHECKING:
    from cosyui.service.service import SynthesisService

KEPT_HOURS = 0.5 / 3600
"""Takes are purged after each round as if they were old: 10,000 would fill a disk."""


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
    return own_service(
        args.folder,
        folder,
        fake_places=max(1, args.places),
        device=args.device,
        precision=args.precision,
        vram_budget=args.vram_budget,
        places=args.places,
        queue_size=args.clients,
        purge_hours=KEPT_HOURS,
    )


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
