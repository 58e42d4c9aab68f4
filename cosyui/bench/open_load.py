"""A service on this machine under takes that come whether or not it keeps up, against what the model says of it."""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cosyui.bench.own_service import own_service
from cosyui.bench.queueing import Curve, Load, Outlook, computed
from cosyui.bench.sentences import CLIPS, CLIPS_SAY, percentile, sentence
from cosyui.bench.simulate import Arrival, Run
from cosyui.bench.simulate import run as simulate

if TYPE_CHECKING:
    from cosyui.service.service import SynthesisService
    from cosyui.service.types import Result


def check(args: argparse.Namespace) -> list[dict[str, Any]]:
    """Measure the curve of the service, then let takes come at random; rows of measured and predicted figures."""
    with tempfile.TemporaryDirectory(prefix="cosyui-bench-") as folder:
        return asyncio.run(_check(args, Path(folder)))


async def _check(args: argparse.Namespace, folder: Path) -> list[dict[str, Any]]:
    from cosyui.bench.capacity import markdown
    from cosyui.service.service import running

    async with running(_service(args, folder)) as service:
        await service.client.wait_until()
        if service.client.problem is not None:
            raise service.client.problem
        crowd = _Crowd(service, args.words, args.seed)
        await crowd.closed(1, 3)  # the first takes are slower
        speeds: dict[int, float] = {}
        firsts: dict[int, float] = {}
        for width in sorted({1, max(1, args.places // 2), args.places}):
            speeds[width], results = await crowd.speed(width, args.count)
            firsts[width] = percentile(sorted(one.first_chunk_seconds - one.waited_seconds for one in results), 0.95)
        mean = statistics.fmean(one.seconds for one in results)
        coming, came, wall = await crowd.open(args.busy * speeds[args.places] / mean, args.count)
        after, _ = await crowd.speed(args.places, args.count)
    drift = after / speeds[args.places]
    # Another machine than before, if others use it, too: the load met one in between.
    curve = Curve({width: speed * (1 + drift) / 2 for width, speed in speeds.items()}, firsts)
    lengths = [one.seconds for one in came]
    load = Load(
        len(came) / coming[-1], statistics.fmean(lengths), statistics.pstdev(lengths) / statistics.fmean(lengths)
    )
    busy = load.speech / curve.speed(args.places)
    real = Run([one.waited_seconds for one in came], [one.first_chunk_seconds for one in came], [1] * len(came))
    takes = [Arrival(moment, one.seconds) for moment, one in zip(coming, came, strict=True)]
    same = simulate(curve, takes)
    rows = [
        _row("measured", real.outlook(busy, 0.0), sum(lengths) / wall),
        _row("simulated, the same takes", same.outlook(busy, 0.0), same.speech / same.ended),
        _row("computed, for ever", computed(curve, load), load.speech),
    ]
    told = f"{len(came)} takes, mean {mean:.2f} s of speech, spread {load.spread:.2f}; {busy:.0%} of the speed is used"
    print(f"--speeds {_points(curve.speeds)} --firsts {_points(firsts)}\n{told}")
    print(f"after the load {drift:.2f} times as fast as before it\n")
    print(markdown(rows))
    return rows


class _Crowd:
    def __init__(self, service: SynthesisService, words: int, seed: int) -> None:
        self._service = service
        self._words = words
        self._random = random.Random(seed)
        self._clips = [path.read_bytes() for path in sorted(CLIPS.glob("*.flac"))]

    async def closed(self, clients: int, takes: int) -> list[Result]:
        """Each client sends its next take when one has ended."""
        left, results = iter(range(takes)), list[Any]()

        async def client() -> None:
            for _ in left:
                results.append(await self._take())

        await asyncio.gather(*(client() for _ in range(clients)))
        return results

    async def speed(self, clients: int, takes: int) -> tuple[float, list[Result]]:
        """Seconds of speech a second of `closed`, and what came."""
        began = time.perf_counter()
        results = await self.closed(clients, takes)
        return sum(one.seconds for one in results) / (time.perf_counter() - began), results

    async def open(self, rate: float, takes: int) -> tuple[list[float], list[Result], float]:
        """Moments of the takes, what came of each, and the seconds until the last had ended."""
        began, moment = time.perf_counter(), 0.0
        moments: list[float] = []
        tasks: list[asyncio.Task[Result]] = []
        for _ in range(takes):
            moment += self._random.expovariate(rate)
            await asyncio.sleep(max(0.0, moment - (time.perf_counter() - began)))
            moments.append(time.perf_counter() - began)
            tasks.append(asyncio.create_task(self._take()))
        results = await asyncio.gather(*tasks)
        return moments, results, time.perf_counter() - began

    async def _take(self) -> Result:
        from cosyui.service.types import Done, Problem, TakeForm

        text, clip = sentence(self._random, self._words), self._random.choice(self._clips)
        ticket = await self._service.submit(TakeForm(text, clip=clip, transcript=CLIPS_SAY, stream=True, seed=1))
        async for update in ticket.updates():
            match update:
                case Done(result):
                    return result
                case Problem(error):
                    raise error
        raise AssertionError("a take ends with a result or a problem")


def _service(args: argparse.Namespace, folder: Path) -> SynthesisService:
    return own_service(
        args.check,
        folder,
        fake_places=args.places,
        fake_directives="[fake:slow=0.02]",
        places=args.places,
        threads=args.threads,
        queue_size=10_000,
        client_queue=10_000,
    )


def _row(name: str, found: Outlook, speed: float) -> dict[str, Any]:
    figures = {
        "speech s/s": speed,
        "wait mean": found.wait_mean,
        "wait p50": found.wait_p50,
        "wait p95": found.wait_p95,
        "first p95": found.first_p95,
    }
    return {"": name} | {title: round(value, 3) for title, value in figures.items()}


def _points(points: Mapping[int, float]) -> str:
    return ",".join(f"{count}:{value:.3g}" for count, value in points.items())
