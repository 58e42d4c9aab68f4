"""GPUs as NVML tells of them. Every question may fail (no driver, WSL, MIG, a GPU that fell off the bus): then that one
figure is None, the others stay.
"""

from __future__ import annotations

import ctypes
import importlib
import re
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Any

FIRST_PAUSE, LONGEST_PAUSE = 5.0, 300.0
"""Seconds before NVML is opened again after a failure; doubled with each further one."""
THROTTLE_REASONS = {
    0x004: "power_cap",
    0x008: "hardware_slowdown",
    0x010: "sync_boost",
    0x020: "thermal_by_software",
    0x040: "thermal_by_hardware",
    0x080: "power_brake",
    0x200: "board_limit",
    0x400: "reliability_limit",
}
"""NVML's bits, and names that the page has words for. Those of an idle GPU and of clocks that somebody chose are left
out: nothing holds the GPU back.
"""
UNSUPPORTED = {3, 4, 6, 12, 13, 21, 25}
"""NVML's error codes that say something of the question, not of the GPU: not supported, no permission, not found..."""


@dataclass(frozen=True)
class GpuSample:
    """One GPU, or one MIG slice; None where the driver does not tell.

    Memory in bytes: ``used`` by all processes, ``reserved`` by the driver for itself (an old driver counts it as used
    and gives None), ``others``: used by processes that are not ours. Utilisation in percent of the last moment,
    temperature in °C, power and its limit in W, clocks in MHz. ``throttle`` is empty when nothing slows the GPU down.
    ``parent`` is the UUID of the GPU that a slice is part of: temperature, power, clocks and throttle are those of the
    whole GPU. ``lost``: it answered before and does not any more.
    """

    uuid: str
    name: str
    used: int | None = None
    total: int | None = None
    utilisation: int | None = None
    temperature: int | None = None
    reserved: int | None = None
    others: int | None = None
    memory_utilisation: int | None = None
    power: float | None = None
    power_limit: float | None = None
    sm_clock: int | None = None
    memory_clock: int | None = None
    throttle: tuple[str, ...] | None = None
    bus_id: str = ""
    parent: str | None = None
    lost: bool = False

    @property
    def free(self) -> int | None:
        """Bytes that a program could still have."""
        if self.total is None or self.used is None:
            return None
        return max(0, self.total - self.used - (self.reserved or 0))


@dataclass(frozen=True)
class _Device:
    """What stays the same of a GPU while NVML is open. ``whole`` is the handle of the GPU that a slice is part of."""

    handle: Any
    whole: Any
    uuid: str
    name: str
    bus_id: str
    parent: str | None


class Nvml:
    """Holds the library open until `close`; when it goes wrong, it is opened again after growing pauses.

    Blocks as long as the driver does: call it from a thread that may wait. ``clock`` gives monotonic seconds.
    """

    def __init__(self, module: Any = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._nvml = module if module is not None else _import_nvml()
        self._errors: tuple[type[Exception], ...] = (
            OSError,
            ValueError,
            TypeError,
            ctypes.ArgumentError,
            *_error_types(self._nvml),
        )
        self._clock = clock
        self._open = False
        self._closed = self._nvml is None
        self._pause = FIRST_PAUSE
        self._retry: float | None = clock()
        self._devices: tuple[_Device, ...] = ()
        self._failed = self._answered = 0

    def gpus(self, own: Collection[int] = ()) -> tuple[GpuSample, ...]:
        """All GPUs and slices; ``own`` are the ids of our processes. Empty on a machine without NVIDIA GPU or driver.

        GPUs are known by their UUIDs: the order differs between NVML and CUDA. One that was there before and does not
        answer any more stays in the list, without figures.
        """
        if self._closed:
            return ()
        if self._retry is not None and self._clock() >= self._retry:
            self._reopen()
        samples = tuple(self._sample(device, own) for device in self._devices)
        if self._retry is None and (not samples or any(sample.lost for sample in samples)):
            self._try_later()
        elif self._retry is None:
            self._pause = FIRST_PAUSE
        return samples

    def close(self) -> None:
        """Let the library go; there are no GPUs from now on."""
        if self._open:
            self._ask("Shutdown")
        self._open, self._closed = False, True

    def _reopen(self) -> None:
        if self._open:
            self._ask("Shutdown")
        known = self._devices
        self._failed = self._answered = 0
        self._ask("Init")
        self._open, self._retry = not self._failed, None
        found = tuple(self._find()) if self._open else ()
        if not found:
            self._try_later()
        names = {device.uuid for device in found}
        gone = (_Device(None, None, d.uuid, d.name, d.bus_id, d.parent) for d in known if d.uuid not in names)
        self._devices = (*found, *gone)

    def _try_later(self) -> None:
        self._retry = self._clock() + self._pause
        self._pause = min(LONGEST_PAUSE, 2 * self._pause)

    def _find(self) -> Iterator[_Device]:
        for index in range(self._ask("DeviceGetCount") or 0):
            handle = self._ask("DeviceGetHandleByIndex", index)
            if handle is None:
                continue
            self._failed = self._answered = 0
            whole = self._device(handle, handle, None)
            if self._silent:  # lost: NVML still counts it
                continue
            slices = list(self._slices(whole))
            yield from slices or [whole]

    def _slices(self, whole: _Device) -> Iterator[_Device]:
        mode = self._ask("DeviceGetMigMode", whole.handle)
        if not mode or not mode[0]:
            return
        for index in range(self._ask("DeviceGetMaxMigDeviceCount", whole.handle) or 0):
            handle = self._ask("DeviceGetMigDeviceHandleByIndex", whole.handle, index)
            if handle is not None:
                yield self._device(handle, whole.handle, whole.uuid)

    def _device(self, handle: Any, whole: Any, parent: str | None) -> _Device:
        return _Device(
            handle,
            whole,
            uuid=_text(self._ask("DeviceGetUUID", handle)),
            name=_text(self._ask("DeviceGetName", handle)) or "GPU",
            bus_id=_text(getattr(self._ask("DeviceGetPciInfo", whole), "busId", "")),
            parent=parent,
        )

    def _sample(self, device: _Device, own: Collection[int]) -> GpuSample:
        self._failed = self._answered = 0
        used, total, reserved = self._memory(device.handle)
        rates = self._ask("DeviceGetUtilizationRates", device.handle)
        whole = device.whole
        sample = GpuSample(
            uuid=device.uuid,
            name=device.name,
            used=used,
            total=total,
            utilisation=None if rates is None else int(rates.gpu),
            temperature=self._ask("DeviceGetTemperature", whole, 0),
            reserved=reserved,
            others=self._others(device.handle, used, own),
            memory_utilisation=None if rates is None else int(rates.memory),
            power=_watts(self._ask("DeviceGetPowerUsage", whole)),
            power_limit=_watts(self._ask("DeviceGetEnforcedPowerLimit", whole)),
            sm_clock=self._ask("DeviceGetClockInfo", whole, 1),
            memory_clock=self._ask("DeviceGetClockInfo", whole, 2),
            throttle=self._throttle(whole),
            bus_id=device.bus_id,
            parent=device.parent,
        )
        if device.handle is None or self._silent:
            return GpuSample(device.uuid, device.name, bus_id=device.bus_id, parent=device.parent, lost=True)
        return sample

    def _memory(self, handle: Any) -> tuple[int | None, int | None, int | None]:
        version = getattr(self._nvml, "nvmlMemory_v2", None)
        memory = None if version is None else self._ask("DeviceGetMemoryInfo", handle, version)
        reserved = None if memory is None else int(memory.reserved)
        memory = memory if memory is not None else self._ask("DeviceGetMemoryInfo", handle)
        if memory is None:
            return None, None, None
        return int(memory.used), int(memory.total), reserved

    def _others(self, handle: Any, used: int | None, own: Collection[int]) -> int | None:
        processes = self._ask("DeviceGetComputeRunningProcesses", handle)
        mine: list[int | None] = [process.usedGpuMemory for process in processes or () if process.pid in own]
        told = [size for size in mine if size is not None]
        # In a container the list is empty, or its ids are the host's: then nobody can tell which memory is ours.
        if used is None or not mine or len(told) < len(mine):
            return None
        return max(0, used - sum(told))

    def _throttle(self, handle: Any) -> tuple[str, ...] | None:
        bits = self._ask("DeviceGetCurrentClocksEventReasons", handle)
        if bits is None:  # what the question was called before
            bits = self._ask("DeviceGetCurrentClocksThrottleReasons", handle)
        return None if bits is None else tuple(word for bit, word in THROTTLE_REASONS.items() if bits & bit)

    @property
    def _silent(self) -> bool:
        """Whether nothing was answered since the counters were set back, and not for lack of support."""
        return bool(self._failed and not self._answered)

    def _ask(self, question: str, *args: Any) -> Any:
        """The answer of one NVML function, None when it fails or is not there."""
        function = getattr(self._nvml, f"nvml{question}", None)
        if function is None or (args and args[0] is None):
            return None
        try:
            answer = function(*args)
        except self._errors as error:
            self._failed += getattr(error, "value", None) not in UNSUPPORTED
            return None
        self._answered += 1
        return answer


def find_gpu(gpus: Collection[GpuSample], identifier: str) -> GpuSample | None:
    """The one that CUDA, PyTorch or CUDA_VISIBLE_DEVICES means by ``identifier``; None when that is not clear.

    Taken are whole UUIDs and beginnings of them, with or without ``GPU-`` or ``MIG-``, and PCI addresses as in
    ``0000:01:00.0``.
    """
    wanted = identifier.strip().lower()
    bare = re.sub(r"^(gpu|mig)-", "", wanted)
    if not bare:
        return None
    by_bus = [gpu for gpu in gpus if gpu.bus_id and gpu.bus_id.lower().lstrip("0") == wanted.lstrip("0")]
    by_id = [gpu for gpu in gpus if re.sub(r"^(gpu|mig)-", "", gpu.uuid.lower()).startswith(bare)]
    found = by_id or by_bus
    return found[0] if len(found) == 1 else None


def _import_nvml() -> Any:
    try:
        return importlib.import_module("pynvml")
    except ImportError:
        return None


def _error_types(module: Any) -> tuple[type[Exception], ...]:
    error = getattr(module, "NVMLError", None)
    return (error,) if isinstance(error, type) and issubclass(error, Exception) else ()


def _watts(milliwatts: int | None) -> float | None:
    return None if milliwatts is None else milliwatts / 1000


def _text(value: str | bytes | None) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value or ""
