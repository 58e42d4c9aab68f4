"""The service in Prometheus's words: requests counted as they end, and the last sample as it is."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from cosyui.ops.journal_file import Row
from cosyui.ops.monitor import MachineSample
from cosyui.ops.nvml import GpuSample
from cosyui.ops.sampler import Sample, ServiceSample

FIRST_CHUNK = (0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
SECONDS = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)
RTF = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
Cells = list[tuple[list[str], float | None]]


class Metrics:
    """Of one service, with a registry of its own. `count` each row of the journal; `text` is what is scraped."""

    def __init__(self, sample: Callable[[], Sample]) -> None:
        self.registry = CollectorRegistry(auto_describe=False)
        self.registry.register(_Figures(sample))
        self._requests = self._counter("requests", "Requests that have ended.", "outcome", "mode")
        self._errors = self._counter("request_errors", "Requests that failed or were refused.", "code")
        self._tokens = self._counter("speech_tokens", "Speech tokens of finished requests.")
        self._retries = self._counter("segment_retries", "Segments that were made again because they came out bad.")
        self._first = self._histogram("first_chunk_seconds", "From a submit to the first sound.", FIRST_CHUNK)
        self._waited = self._histogram("queue_seconds", "From a submit to the beginning of the work.", SECONDS)
        self._total = self._histogram("request_seconds", "From a submit to the end.", SECONDS)
        self._rtf = self._histogram("request_rtf", "Seconds of work per second of speech.", RTF)

    def count(self, row: Row) -> None:
        """Of a request, however it ended."""
        self._requests.labels(row.outcome, row.mode or "").inc()
        if row.code is not None:
            self._errors.labels(row.code).inc()
        self._tokens.inc(row.speech_tokens or 0)
        self._retries.inc(row.retries or 0)
        for histogram, value in (
            (self._first, row.first_chunk),
            (self._waited, row.waited),
            (self._total, row.total),
            (self._rtf, row.rtf),
        ):
            if value is not None:
                histogram.observe(value)

    def text(self) -> bytes:
        """Prometheus's text format."""
        return bytes(generate_latest(self.registry))

    def _counter(self, name: str, help_: str, *labels: str) -> Counter:
        return Counter(f"cosyui_{name}", help_, labels, registry=self.registry)

    def _histogram(self, name: str, help_: str, buckets: Iterable[float]) -> Histogram:
        return Histogram(f"cosyui_{name}", help_, registry=self.registry, buckets=tuple(buckets))


class _Figures(Collector):
    """What was sampled last; a figure that nobody knows is left out."""

    def __init__(self, sample: Callable[[], Sample]) -> None:
        self._sample = sample

    def collect(self) -> Iterator[Metric]:
        sample = self._sample()
        if sample.service is not None:
            yield from _of_service(sample.service)
        if sample.machine is not None:
            yield from _of_machine(sample.machine)
        parts: Cells = [([gpu, part], size) for gpu, of in sample.vram.items() for part, size in of.items()]
        yield from _gauge("gpu_memory_bytes", "Memory of a GPU by part.", ["gpu", "part"], parts)
        if sample.disk is not None:
            disk: Cells = [(["takes"], sample.disk.used), (["free"], sample.disk.free)]
            yield from _gauge("disk_bytes", "Of the folder of takes.", ["kind"], disk)


def _of_service(service: ServiceSample) -> Iterator[Metric]:
    yield from _gauge("ready", "1 when an engine is loaded.", [], [([], float(service.ready))])
    states: Cells = [(["running"], service.running), (["waiting"], service.waiting)]
    yield from _gauge("requests_now", "Unfinished requests.", ["state"], states)
    speech = CounterMetricFamily("cosyui_speech_seconds", "Speech that was made, also of requests that did not finish.")
    speech.add_metric([], service.speech_seconds)
    yield speech
    restarts = CounterMetricFamily("cosyui_engine_restarts", "Processes of engines that were replaced.")
    restarts.add_metric([], service.restarts)
    yield restarts


def _of_machine(machine: MachineSample) -> Iterator[Metric]:
    engine = machine.engine.rss if machine.engine is not None else None
    resident: Cells = [(["page"], machine.process.rss), (["engine"], engine)]
    yield from _gauge("process_resident_bytes", "Resident memory.", ["process"], resident)

    def of_gpus(name: str, help_: str, figure: Callable[[GpuSample], float | None]) -> Iterator[Metric]:
        yield from _gauge(name, help_, ["gpu"], [([gpu.uuid or gpu.name], figure(gpu)) for gpu in machine.gpus])

    yield from of_gpus("gpu_utilisation_ratio", "Load of a GPU.", lambda gpu: _share(gpu.utilisation))
    yield from of_gpus(
        "gpu_memory_utilisation_ratio", "Load of its memory.", lambda gpu: _share(gpu.memory_utilisation)
    )
    yield from of_gpus("gpu_memory_used_bytes", "Used by all programs.", lambda gpu: gpu.used)
    yield from of_gpus("gpu_memory_total_bytes", "Of the card.", lambda gpu: gpu.total)
    yield from of_gpus("gpu_power_watts", "Power that it takes.", lambda gpu: gpu.power)
    yield from of_gpus("gpu_temperature_celsius", "Temperature.", lambda gpu: gpu.temperature)


def _share(percent: float | None) -> float | None:
    return None if percent is None else percent / 100


def _gauge(name: str, help_: str, labels: list[str], cells: Cells) -> Iterator[Metric]:
    known = [(values, figure) for values, figure in cells if figure is not None]
    if known:
        family = GaugeMetricFamily(f"cosyui_{name}", help_, labels=labels)
        for values, figure in known:
            family.add_metric(values, figure)
        yield family
