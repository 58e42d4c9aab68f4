"""Live memory and load of this process, the engine's process and the GPUs.

Every NVML call may fail (no driver, WSL, MIG, a GPU that fell off the bus): then the figure is None, never an error.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import psutil


@dataclass(frozen=True)
class GpuSample:
    """One GPU; memory in bytes, utilisation in percent, temperature in °C; None where the driver does not tell."""

    uuid: str
    name: str
    used: int | None
    total: int | None
    utilisation: int | None
    temperature: int | None


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

    ``gpus`` is empty on a machine without NVIDIA GPU or driver.
    """

    process: ProcessSample
    engine: ProcessSample | None
    ram_total: int
    ram_available: int
    cpu_percent: float
    cpu_count: int
    gpus: tuple[GpuSample, ...]


class Nvml:
    """NVML where each question is answered or None. Holds the library open until `close`."""

    def __init__(self, module: Any = None) -> None:
        self._nvml = module if module is not None else _import_nvml()
        self._open = self._nvml is not None and self.ask(self._nvml.nvmlInit, default=False) is not False

    def ask(self, question: Callable[..., Any], *args: Any, default: Any = None) -> Any:
        """Call one NVML function; ``default`` when it fails."""
        try:
            return question(*args)
        except (self._nvml.NVMLError, OSError, UnicodeDecodeError):
            return default

    def gpus(self) -> tuple[GpuSample, ...]:
        """All GPUs, each known by its UUID (indices differ between NVML and CUDA)."""
        if not self._open:
            return ()
        count = self.ask(self._nvml.nvmlDeviceGetCount, default=0)
        handles = [self.ask(self._nvml.nvmlDeviceGetHandleByIndex, index) for index in range(count)]
        return tuple(self._sample(handle) for handle in handles if handle is not None)

    def _sample(self, handle: Any) -> GpuSample:
        nvml = self._nvml
        memory = self.ask(nvml.nvmlDeviceGetMemoryInfo, handle)
        rates = self.ask(nvml.nvmlDeviceGetUtilizationRates, handle)
        return GpuSample(
            uuid=_text(self.ask(nvml.nvmlDeviceGetUUID, handle, default="")),
            name=_text(self.ask(nvml.nvmlDeviceGetName, handle, default="GPU")),
            used=None if memory is None else int(memory.used),
            total=None if memory is None else int(memory.total),
            utilisation=None if rates is None else int(rates.gpu),
            temperature=self.ask(nvml.nvmlDeviceGetTemperature, handle, nvml.NVML_TEMPERATURE_GPU),
        )

    def close(self) -> None:
        if self._open:
            self.ask(self._nvml.nvmlShutdown)
            self._open = False


class Monitor:
    """Takes samples; keeps the process handles, because CPU load is a difference between two samples."""

    def __init__(self, nvml: Nvml | None = None) -> None:
        self._nvml = nvml if nvml is not None else Nvml()
        self._own = psutil.Process()
        self._engines: dict[int, psutil.Process] = {}

    def sample(self, *engine_pids: int) -> MachineSample:
        """One sample; ``engine_pids`` are the engines' processes. Takes about a millisecond."""
        memory = psutil.virtual_memory()
        own = _process(self._own)
        assert own is not None
        return MachineSample(
            process=own,
            engine=self._engine_sample(engine_pids),
            ram_total=memory.total,
            ram_available=memory.available,
            cpu_percent=psutil.cpu_percent(),
            cpu_count=psutil.cpu_count() or 1,
            gpus=self._nvml.gpus(),
        )

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


def _import_nvml() -> Any:
    try:
        return importlib.import_module("pynvml")
    except ImportError:
        return None


def _text(value: str | bytes) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
