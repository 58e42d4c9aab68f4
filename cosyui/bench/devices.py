"""``python -m cosyui.bench devices DIR``: what several GPUs give over one, through the pool of engine processes.

Each set of devices is started, filled with as many requests as keep it busy, and timed while others follow.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from pathlib import Path
from typing import Any

import torch

from cosyui.bench.report import Report
from cosyui.bench.rig import MIB, positive
from cosyui.bench.sentences import WORDS
from cosyui.bench.workload import TRANSCRIPT, made_up_clip
from cosyui.engine.config import EngineConfig
from cosyui.engine.request import SAMPLE_RATE, Failed, Finished, Mode, PromptClip, SynthesisRequest
from cosyui.errors import EngineError
from cosyui.host.config import HostConfig
from cosyui.host.pool import EnginePool

VOICES = 4


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", metavar="DIR", help="model folder (or embedded)")
    help_ = "numbers of GPUs, or cpu (default 0)"
    parser.add_argument("--devices", type=names, default=["cuda:0"], metavar="N,N", help=help_)
    parser.add_argument("--clients", type=positive, default=96, help="requests in flight for each device (default 96)")
    parser.add_argument("--rounds", type=positive, default=3, help="so many times that many are timed (default 3)")
    parser.add_argument("--words", type=positive, default=10, help="of a text (default 10)")
    parser.add_argument("--precision", default="auto", choices=("auto", "float32", "bfloat16", "float16"))
    parser.add_argument("--vram-budget", type=int, default=0, metavar="MIB", help="of each GPU (default: 80 %% of it)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there, too")


def names(text: str) -> list[str]:
    """``0,1`` is cuda:0 and cuda:1; ``cpu`` is itself."""
    parts = [part.strip() for part in text.split(",")]
    if not all(part == "cpu" or part.isdecimal() for part in parts):
        raise argparse.ArgumentTypeError("numbers of GPUs, or cpu")
    return [part if part == "cpu" else f"cuda:{part}" for part in parts]


def run(args: argparse.Namespace) -> int:
    """Print the figures for the first device alone and for all. Raises EngineError."""
    report = Report("devices", torch.device(args.devices[0]), args)
    rows = [asyncio.run(throughput(args, args.devices[:count])) for count in sorted({1, len(args.devices)})]
    first = rows[0]["speech_per_s"]
    for row in rows:
        row["over_one"] = row["speech_per_s"] / first
    report.add("devices", "engines side by side", rows)
    return 0


async def throughput(args: argparse.Namespace, devices: list[str]) -> dict[str, Any]:
    """Speech seconds per second of a pool with one engine on each of ``devices``."""
    engine = EngineConfig(args.folder, precision=args.precision, vram_budget=args.vram_budget * MIB, self_test=False)
    pool = EnginePool(HostConfig(engine).on_devices(devices))
    began = time.perf_counter()
    await pool.start()
    try:
        for one in pool.engines:
            if await one.wait_until("ready", "broken") == "broken":
                assert one.problem is not None
                raise one.problem
        started = time.perf_counter() - began
        return {"devices": len(devices), "start_s": started, **await load(pool, args, len(devices))}
    finally:
        await pool.close()


async def load(pool: EnginePool, args: argparse.Namespace, devices: int) -> dict[str, Any]:
    """Keep the pool full; the first round is not timed, and neither are those who still run at the end."""
    clips = [PromptClip(made_up_clip(5.0, SAMPLE_RATE, number), SAMPLE_RATE, TRANSCRIPT) for number in range(VOICES)]
    clients, numbers = args.clients * devices, iter(range(1 << 30))
    ends: list[tuple[float, float]] = []
    enough = clients * (args.rounds + 1)

    async def client() -> None:
        while len(ends) < enough:
            number = next(numbers)
            text = " ".join(WORDS[(number + index) % len(WORDS)] for index in range(args.words))
            request = SynthesisRequest(f"r{number}", text, Mode.ZERO_SHOT, clips[number % VOICES], seed=number)
            async for event in pool.events(request):
                if isinstance(event, Failed):
                    raise EngineError(event.code, event.message)
                if isinstance(event, Finished):
                    ends.append((time.perf_counter(), event.stats.speech_seconds))

    async with asyncio.TaskGroup() as group:
        for _ in range(clients):
            group.create_task(client())
    timed = ends[clients - 1 : enough]
    wall = timed[-1][0] - timed[0][0]
    speech = sum(seconds for _, seconds in timed[1:])
    figures = {"clients": clients, "requests": len(timed) - 1, "wall_s": wall, "speech_s": speech}
    return {**figures, "speech_per_s": speech / wall}
