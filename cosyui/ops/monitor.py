"""Live memory and load of this process, the engines' processes and the GPUs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import psutil

from cosyui.ops.nvml import GpuSample, Nvml


@dataclass(frozen=True)
class ProcessSample:
    """One process: resident memory in bytes, CPU in percent of one core since the sample before (0.0 at first)."""

    pid: int
    rss: int
    cpu_percent: float
    threads: int


@dataclass(frozen=True)
class MachineSample:
    """Memory in bytes; ``engine`` is the sum over the engines' processes, with the id of the first.

    ``gpus`` is empty on a machine without NVIDIA GPU or driver. ``cpu_percent`` of all cores together, since the
    sample before.
    """

    process: ProcessSample
    engine: ProcessSample | None
    ram_total: int
    ram_available: int
    cpu_percent: float
    cpu_count: int
    gpus: tuple[GpuSample, ...]


class Monitor:
    """Takes samples; keeps the process handles, because CPU load is a difference between two samples."""

    def __init__(self, nvml: Nvml | None = None) -> None:
        self._nvml = nvml if nvml is not None else Nvml()
        self._own = psutil.Process()
        self._engines: dict[int, psutil.Process] = {}
        self._cpu = _cpu_seconds()

    def sample(self, *engine_pids: int) -> MachineSample:
        """One sample; ``engine_pids`` are the engines' processes. Takes about a millisecond, and what NVML takes."""
        memory = psutil.virtual_memory()
        own = _process(self._own)
        assert own is not None
        return MachineSample(
            process=own,
            engine=self._engine_sample(engine_pids),
            ram_total=memory.total,
            ram_available=memory.available,
            cpu_percent=self._cpu_percent(),
            cpu_count=psutil.cpu_count() or 1,
            gpus=self._nvml.gpus((own.pid, *engine_pids)),
        )

    def _cpu_percent(self) -> float:
        # psutil's own remembers the last sample for each thread apart; samples come from changing threads.
        before, self._cpu = self._cpu, _cpu_seconds()
        busy, total = self._cpu[0] - before[0], self._cpu[1] - before[1]
        return min(100.0, max(0.0, 100 * busy / total)) if total > 0 else 0.0

    def _engine_sample(self, pids: Sequence[int]) -> ProcessSample | None:
        self._engines = {pid: process for pid in pids if (process := self._engines.get(pid) or _find(pid)) is not None}
        samples = [sample for process in self._engines.values() if (sample := _process(process)) is not None]
        if not samples:
            return None
        return ProcessSample(
            samples[0].pid,
            sum(sample.rss for sample in samples),
            sum(sample.cpu_percent for sample in samples),
            sum(sample.threads for sample in samples),
        )

    def close(self) -> None:
        self._nvml.close()


def _cpu_seconds() -> tuple[float, float]:
    """Seconds that all cores were busy since the start of the machine, and all there were."""
    times = psutil.cpu_times()
    waiting = times.idle + getattr(times, "iowait", 0.0)
    # A guest's time is in that of its user.
    total = sum(times) - getattr(times, "guest", 0.0) - getattr(times, "guest_nice", 0.0)
    return total - waiting, total


def _find(pid: int) -> psutil.Process | None:
    try:
        return psutil.Process(pid)
    except psutil.Error:
        return None


def _process(process: psutil.Process) -> ProcessSample | None:
    try:
        with process.oneshot():
            return ProcessSample(
                process.pid, process.memory_info().rss, process.cpu_percent(), int(process.num_threads())
            )
    except psutil.Error:
        return None
