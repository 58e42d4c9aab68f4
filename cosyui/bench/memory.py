"""``python -m cosyui.bench memory DIR``: mixed requests for long: memory stays, nothing is lost or swapped.

A few dozen different takes are made one at a time first. Then they come in any order, many at once, some cancelled in
the middle, and everything that is heard is compared with what the same request gave alone.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import random
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import psutil
import torch

from cosyui.bench import rig
from cosyui.bench.likeness import Audio, Verdict, compare
from cosyui.bench.load import Client, Load
from cosyui.bench.report import Report
from cosyui.bench.rig import MIB, Started, device_memory, positive, start, wait_for
from cosyui.bench.workload import Workload
from cosyui.engine.request import Mode, SynthesisRequest

CANCELLED_SHARE = 0.1
LATEST_CANCEL = 1.2
"""A cancel comes at any moment of a request's expected life, sometimes after its end."""
ROUND = 250
"""Requests between two looks at the memory of the idle engine."""
SHOWN_FAULTS = 5
VOICES = 6


def add_arguments(parser: argparse.ArgumentParser) -> None:
    rig.add_arguments(parser)
    parser.add_argument("--requests", type=positive, default=2000, help="in all, the warm-up not counted")
    parser.add_argument("--concurrency", type=positive, default=64, help="requests in flight")
    parser.add_argument("--scripts", type=positive, default=48, help="different requests that there are (default 48)")
    parser.add_argument("--round", type=positive, default=ROUND, help="requests between looks at the memory")
    help_ = "go on until so many seconds have passed, whatever --requests says"
    parser.add_argument("--until-seconds", type=float, default=0.0, metavar="S", help=help_)


def run(args: argparse.Namespace) -> int:
    """Print the figures; 1 when a request was lost, failed or got another's sound, or memory has grown."""
    started = start(args)
    report = Report("memory", started.device, args)
    soak = Soak(started, Workload(started.engine, args.seconds, args.prompt_seconds, args.seed), args.concurrency)
    began = time.perf_counter()
    soak.rehearse(args.scripts)
    report.add("alone", "each request alone", soak.alone_figures(time.perf_counter() - began))
    soak.round(max(args.concurrency, min(args.round, args.requests)))
    soak.tally = Tally()
    levels = [soak.level()]
    began = time.perf_counter()
    while soak.tally.sent < args.requests or time.perf_counter() - began < args.until_seconds:
        left = args.requests - soak.tally.sent
        soak.round(min(args.round, left) if left > 0 else args.round)
        levels.append(soak.level())
        report.content["soak"] = soak.tally.figures(time.perf_counter() - began)
        report.progress("levels", [level.figures() for level in levels])
    report.add("levels", "memory of the idle engine between the rounds", [level.figures() for level in levels])
    figures = soak.tally.figures(time.perf_counter() - began) | started.engine.stats().extra
    report.add("soak", f"mixed requests, {args.concurrency} in flight", figures)
    drift = drift_figures(levels)
    report.add("drift", "memory from the first to the last round", drift)
    for fault in soak.tally.faults[:SHOWN_FAULTS]:
        print(f"fault: {fault}")
    report.content["faults"] = soak.tally.faults
    report.save()
    started.engine.close()
    return 1 if soak.tally.faults or drift["device_bytes_grown"] else 0


@dataclass(frozen=True)
class Level:
    """Memory of the idle engine after so many ``requests``; bytes. ``tensors``: of all that Python knows."""

    requests: int
    allocated: int
    reserved: int
    tensors: int
    resident: int

    def figures(self) -> dict[str, Any]:
        return {
            "requests": self.requests,
            "allocated": self.allocated,
            "reserved_mib": self.reserved / MIB,
            "cpu_tensors": self.tensors,
            "rss_mib": self.resident / MIB,
        }


def drift_figures(levels: list[Level]) -> dict[str, Any]:
    """Growth, and bytes per request by a straight line through the levels."""
    first, last = levels[0], levels[-1]
    requests = np.array([level.requests for level in levels], dtype=np.float64)
    slopes = {}
    for name in ("allocated", "tensors", "resident"):
        values = np.array([getattr(level, name) for level in levels], dtype=np.float64)
        slopes[f"{name}_a_request"] = float(np.polyfit(requests, values, 1)[0]) if len(levels) > 1 else 0.0
    return {
        "device_bytes_grown": last.allocated - first.allocated,
        "cpu_tensor_bytes_grown": last.tensors - first.tensors,
        "rss_grown_mib": (last.resident - first.resident) / MIB,
        **slopes,
    }


@dataclass
class Tally:
    """What became of the requests. ``faults``: sentences about what must not happen."""

    sent: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    verdicts: Counter[str] = field(default_factory=Counter)
    least_snr: float = float("inf")
    least_alike: float = 1.0
    speech_seconds: float = 0.0
    cancels_sent: int = 0
    faults: list[str] = field(default_factory=list)

    def figures(self, seconds: float) -> dict[str, Any]:
        return {
            "requests": self.sent,
            "wall_s": seconds,
            "requests_a_minute": 60 * self.sent / max(seconds, 1e-9),
            "speech_s": self.speech_seconds,
            "speech_per_s": self.speech_seconds / max(seconds, 1e-9),
            **{name: self.outcomes[name] for name in ("finished", "cancelled", "failed", "lost")},
            "cancels_sent": self.cancels_sent,
            **{f"sound_{verdict.replace(' ', '_')}": self.verdicts[verdict] for verdict in Verdict},
            "least_snr_db": None if np.isinf(self.least_snr) else self.least_snr,
            "least_spectrum": self.least_alike,
            "faults": len(self.faults),
        }


class Soak:
    """``width`` requests in flight, drawn from scripts whose sound is known."""

    def __init__(self, started: Started, work: Workload, width: int) -> None:
        self.started = started
        self.work = work
        self.width = width
        self.load = Load(started.engine, keep_audio=True)
        self.random = random.Random(work.seed)
        self.scripts: list[SynthesisRequest] = []
        self.sound: list[Audio] = []
        self.number = itertools.count()
        self.total = 0
        self.tally = Tally()
        self.typical = 0.1
        self.process = psutil.Process()

    def rehearse(self, scripts: int) -> None:
        """Make every script once, alone. Raises EngineError when one fails."""
        modes = list(Mode)
        for number in range(scripts):
            request = self.work.request(
                f"alone {number}",
                seconds=self.random.uniform(0.1, 1.2) * self.work.seconds,
                number=number,
                clip=number % VOICES,
                mode=modes[number % len(modes)],
                stream=self.random.random() < 0.5,
            )
            self.scripts.append(request)
            self.sound.append(self.load.alone(request).audio)

    def alone_figures(self, seconds: float) -> dict[str, Any]:
        lengths = [len(sound) / 24_000 for sound in self.sound]
        return {
            "scripts": len(self.scripts),
            "wall_s": seconds,
            "speech_s": sum(lengths),
            "shortest_s": min(lengths),
            "longest_s": max(lengths),
            "streams": sum(script.stream for script in self.scripts),
        }

    def round(self, requests: int) -> None:
        """So many requests from the first to the last end; the engine is idle afterwards."""
        self.tally.sent += requests
        self.total += requests
        waits: dict[str, float] = {}
        source = iter([self._draw(waits) for _ in range(requests)])
        while True:
            while len(self.load.running) < self.width and (request := next(source, None)) is not None:
                self.load.send(request)
            if not self.load.engine.has_work:
                break
            for client in self.load.step():
                self._judge(client)
            self._cancel(waits)
        for name in list(self.load.running):
            del self.load.running[name]
            self.tally.outcomes["lost"] += 1
            self.tally.faults.append(f"{name} never ended")
        self.tally.faults += self.load.strays
        self.load.strays.clear()

    def level(self) -> Level:
        """Of the idle engine."""
        wait_for(self.started.device)
        gc.collect()
        memory = device_memory(self.started.engine)
        tensors = sum(thing.nbytes for thing in _tensors() if thing.device.type == "cpu")
        resident = self.process.memory_info().rss
        return Level(self.total, memory.get("allocated", 0), memory.get("reserved", 0), tensors, resident)

    def _draw(self, waits: dict[str, float]) -> SynthesisRequest:
        script = self.random.randrange(len(self.scripts))
        name = f"{next(self.number)}:{script}"
        if self.random.random() < CANCELLED_SHARE:
            waits[name] = self.random.uniform(0.0, LATEST_CANCEL)
        return replace(self.scripts[script], id=name)

    def _cancel(self, waits: dict[str, float]) -> None:
        """Cancel those in flight whose time has come."""
        now = time.perf_counter()
        due = [
            name
            for name, client in self.load.running.items()
            if name in waits and now - client.sent > waits[name] * self.typical
        ]
        for name in due:
            del waits[name]
            self.tally.cancels_sent += 1
            self.load.engine.cancel(name)

    def _judge(self, client: Client) -> None:
        tally, name = self.tally, client.request.id
        tally.outcomes[client.outcome] += 1
        if client.outcome == "failed":
            tally.faults.append(f"{name} failed: {client.error}")
        if client.outcome != "finished":
            return
        self.typical = client.seconds
        tally.speech_seconds += client.speech_seconds
        heard, expected = client.audio, self.sound[int(name.partition(":")[2])]
        verdict, ratio, alike = compare(heard, expected)
        tally.verdicts[verdict] += 1
        tally.least_snr = min(tally.least_snr, ratio)
        tally.least_alike = min(tally.least_alike, alike)
        if verdict is Verdict.OTHER:
            tally.faults.append(
                f"{name} has another sound: {len(heard)} samples instead of {len(expected)}, "
                f"{ratio:.1f} dB, spectra alike by {alike:.3f}"
            )


def _tensors() -> Iterator[torch.Tensor]:
    for thing in gc.get_objects():
        # Not isinstance: it asks the object for its class, which some answer with a warning.
        if issubclass(type(thing), torch.Tensor) and thing.layout == torch.strided:
            yield thing
