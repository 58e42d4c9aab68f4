"""One sample a second for all who watch: pages, alarms and histories read what was measured, nobody measures again."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace

from cosyui.ops.aside import Aside, Start, in_thread
from cosyui.ops.disk import DiskUse
from cosyui.ops.history import Curve, History, Recent, Span
from cosyui.ops.monitor import MachineSample
from cosyui.ops.vram import PARTS, EngineMemory, by_card, vram_parts

logger = logging.getLogger(__name__)

STALE = 3.0
"""Intervals after which what the driver said is not a figure of now any more."""
FIRST_CHUNK_SECONDS = 300.0
"""How long the first chunks count whose quantiles are shown."""
DISK_EVERY = 60.0
NAMELESS = "gpu"
"""A card that nobody tells the UUID of."""
GPU_FIGURES = ("utilisation", "memory_utilisation", "power", "temperature", "sm_clock", "memory_clock")
Figures = dict[str, float | None]


@dataclass(frozen=True)
class ServiceSample:
    """The service at one moment. ``speech_seconds``, ``errors`` and ``restarts`` of engines count up since the start;
    ``engines`` is empty on a machine without GPU; ``ready``: an engine is loaded.
    """

    running: int
    waiting: int
    speech_seconds: float
    errors: int
    engines: tuple[EngineMemory, ...] = ()
    ready: bool = False
    restarts: int = 0


@dataclass(frozen=True)
class Sources:
    """Where figures come from. ``service`` is called by `Sampler.tick` and must be quick; ``machine`` (memory, load,
    GPUs) and ``disk`` (of the outputs) may block, they are called in threads.
    """

    service: Callable[[], ServiceSample]
    machine: Callable[[], MachineSample]
    disk: Callable[[], DiskUse] | None = None


@dataclass(frozen=True)
class Sample:
    """The last figures; None where there are none. ``time`` is monotonic, ``machine_age`` in seconds: ``stale`` when
    the driver has not answered for long, and ``machine`` is then the last that was heard of it.

    ``vram``: bytes by card and part. ``speed``: seconds of speech a second since the last sample. First chunks are in
    seconds, of the last minutes. ``disk``: of the outputs, a minute old at most.
    """

    time: float
    service: ServiceSample | None = None
    machine: MachineSample | None = None
    machine_age: float | None = None
    stale: bool = False
    vram: dict[str, dict[str, int]] = field(default_factory=dict)
    speed: float | None = None
    errors_per_second: float | None = None
    first_chunk_p50: float | None = None
    first_chunk_p95: float | None = None
    disk: DiskUse | None = None


class Sampler:
    """Run `run` as a task, or call `tick` every ``interval`` seconds; all calls on one thread.

    ``clock`` gives monotonic seconds, ``wall`` seconds since the epoch, for labels only.
    """

    def __init__(
        self,
        sources: Sources,
        interval: float = 1.0,
        *,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
        start: Start = in_thread,
    ) -> None:
        self.interval = interval
        self.history = History(interval)
        self.latest = Sample(clock())
        self._service = sources.service
        self._machine = Aside(sources.machine, 0.0, clock, start)
        self._disk = None if sources.disk is None else Aside(sources.disk, DISK_EVERY, clock, start)
        self._clock = clock
        self._wall = wall
        self._first_chunks = Recent(FIRST_CHUNK_SECONDS)
        self._failing = False

    @property
    def machine_problem(self) -> str | None:
        """Why memory and load of the machine could not be read the last time."""
        return self._machine.problem

    @property
    def disk_problem(self) -> str | None:
        """Why the disk of the outputs could not be read the last time."""
        return None if self._disk is None else self._disk.problem

    @property
    def service_fails(self) -> bool:
        """Whether the service did not tell its figures the last time; the log has the reason."""
        return self._failing

    def first_chunk(self, seconds: float) -> None:
        """A listener had his first sound ``seconds`` after he asked."""
        self._first_chunks.add(self._clock(), seconds)

    def curve(self, span: Span, names: list[str] | None = None) -> Curve:
        """What was measured in the last quarter of an hour, hour or day; see `figures` for the names."""
        return self.history.read(span, self._clock(), self._wall(), names)

    def tick(self) -> Sample:
        """Take a sample; a source that fails leaves a gap."""
        self._machine.poke()
        if self._disk is not None:
            self._disk.poke()
        now, before = self._clock(), self.latest
        service = self._ask_service()
        age = self._machine.age
        machine = self._machine.get()
        stale = age is not None and age > STALE * self.interval
        rates = _rates(before, service, now)
        p50, p95 = self._first_chunks.quantiles(now, 0.5, 0.95)
        self.latest = Sample(
            time=now,
            service=service,
            machine=machine,
            machine_age=age,
            stale=stale,
            vram=_cards(service, machine, stale),
            speed=rates[0],
            errors_per_second=rates[1],
            first_chunk_p50=p50,
            first_chunk_p95=p95,
            disk=self._disk.get() if self._disk is not None else None,
        )
        self.history.record(now, figures(self.latest))
        return self.latest

    async def run(self, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        """Tick for ever, in the middle of each bucket; what was missed while the process stood still is a gap."""
        while True:
            await sleep(until_next(self._clock(), self.interval))
            self.tick()

    def _ask_service(self) -> ServiceSample | None:
        try:
            sample = self._service()
        except Exception:
            if not self._failing:
                logger.exception("sample_failed")
            self._failing = True
            return None
        self._failing = False
        return sample


def figures(sample: Sample) -> Figures:
    """What the histories keep of a sample, by name.

    ``running``, ``waiting``; ``speed``, ``errors`` (a second); ``first_chunk_p50``, ``_p95`` (s); ``outputs``,
    ``disk_free``, ``ram_used``, ``ram_page``, ``ram_engine`` (bytes); ``cpu`` (%); for each card by its UUID
    ``<uuid>/utilisation``, ``memory_utilisation`` (%), ``power`` (W), ``temperature`` (°C), ``sm_clock``,
    ``memory_clock`` (MHz), ``throttled`` (0 or 1), and ``<uuid>/<part>`` in bytes for each of `vram.PARTS`.
    """
    service = sample.service
    values: Figures = {
        "running": service.running if service else None,
        "waiting": service.waiting if service else None,
        "speed": sample.speed,
        "errors": sample.errors_per_second,
        "first_chunk_p50": sample.first_chunk_p50,
        "first_chunk_p95": sample.first_chunk_p95,
        "outputs": sample.disk.used if sample.disk else None,
        "disk_free": sample.disk.free if sample.disk else None,
    }
    for card, parts in sample.vram.items():
        values |= {f"{card}/{part}": parts[part] for part in PARTS}
    if sample.machine is None or sample.stale:
        return values
    machine = sample.machine
    values |= {
        "cpu": machine.cpu_percent,
        "ram_used": machine.ram_total - machine.ram_available,
        "ram_page": machine.process.rss,
        "ram_engine": machine.engine.rss if machine.engine else None,
    }
    for gpu in machine.gpus:
        name = gpu.uuid or NAMELESS
        values |= {f"{name}/{figure}": getattr(gpu, figure) for figure in GPU_FIGURES}
        values[f"{name}/throttled"] = None if gpu.throttle is None else float(bool(gpu.throttle))
    return values


def until_next(now: float, interval: float) -> float:
    """Seconds to the middle of the next bucket: a tick that comes a little early or late is still in its own."""
    wait = interval - (now - interval / 2) % interval
    return wait if wait > interval / 4 else wait + interval


def _cards(service: ServiceSample | None, machine: MachineSample | None, stale: bool) -> dict[str, dict[str, int]]:
    gpus = machine.gpus if machine is not None else ()
    if stale:  # what the engines say of their cards is newer
        gpus = tuple(replace(gpu, used=None, others=None) for gpu in gpus)
    cards: dict[str, dict[str, int]] = {}
    for engine, gpu in by_card(service.engines if service is not None else (), gpus):
        parts = vram_parts(engine, gpu)
        if parts is not None:
            name = (gpu.uuid if gpu is not None else engine.gpu if engine is not None else "") or NAMELESS
            cards[name if name not in cards else f"{name}-{len(cards)}"] = parts
    return cards


def _rates(before: Sample, service: ServiceSample | None, now: float) -> tuple[float | None, float | None]:
    """Seconds of speech, and errors, a second since the sample before; None where there is none to compare with."""
    if service is None or before.service is None or now <= before.time:
        return None, None
    seconds = now - before.time
    speech = service.speech_seconds - before.service.speech_seconds
    return max(0.0, speech / seconds), max(0.0, (service.errors - before.service.errors) / seconds)
