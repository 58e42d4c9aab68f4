"""What Prometheus is told: each request once, and no figure that nobody knows."""

from prometheus_client.parser import text_string_to_metric_families

from cosyui.ops.disk import DiskUse
from cosyui.ops.journal_file import Row
from cosyui.ops.metrics import Metrics
from cosyui.ops.monitor import MachineSample, ProcessSample
from cosyui.ops.nvml import GpuSample
from cosyui.ops.sampler import Sample, ServiceSample

DONE = Row(
    "a",
    "me",
    0.0,
    "done",
    mode="zero_shot",
    speech_tokens=75,
    retries=1,
    rtf=0.03,
    waited=0.3,
    first_chunk=0.6,
    total=2.5,
)
FAILED = Row("b", "me", 0.0, "failed", code="out_of_memory", mode="instruct", total=0.2)


def scraped(metrics):
    """Figures by name and labels."""
    families = text_string_to_metric_families(metrics.text().decode())
    return {(one.name, *sorted(one.labels.items())): one.value for family in families for one in family.samples}


def machine(*gpus):
    return MachineSample(ProcessSample(1, 100, 0.0, 1), None, 1000, 500, 5.0, 2, gpus)


def test_requests_are_counted_as_they_end():
    metrics = Metrics(lambda: Sample(0.0))
    for row in (DONE, DONE, FAILED):
        metrics.count(row)
    found = scraped(metrics)
    assert found["cosyui_requests_total", ("mode", "zero_shot"), ("outcome", "done")] == 2
    assert found["cosyui_requests_total", ("mode", "instruct"), ("outcome", "failed")] == 1
    assert found["cosyui_request_errors_total", ("code", "out_of_memory")] == 1
    assert found["cosyui_speech_tokens_total",] == 150
    assert found["cosyui_first_chunk_seconds_bucket", ("le", "0.5")] == 0
    assert found["cosyui_first_chunk_seconds_bucket", ("le", "1.0")] == 2
    assert found["cosyui_request_seconds_count",] == 3
    assert found["cosyui_request_rtf_count",] == 2


def test_a_sample_is_told_as_it_is():
    gpu = GpuSample("GPU-1", "a card", used=300, total=1000, utilisation=40, power=123.5)
    service = ServiceSample(1, 3, 42.5, 0, ready=True, restarts=2)
    sample = Sample(0.0, service, machine(gpu), vram={"GPU-1": {"weights": 200, "free": 700}}, disk=DiskUse(7, 8, 20))
    found = scraped(Metrics(lambda: sample))
    assert found["cosyui_ready",] == 1
    assert found["cosyui_requests_now", ("state", "waiting")] == 3
    assert found["cosyui_speech_seconds_total",] == 42.5
    assert found["cosyui_engine_restarts_total",] == 2
    assert found["cosyui_gpu_memory_bytes", ("gpu", "GPU-1"), ("part", "weights")] == 200
    assert found["cosyui_gpu_utilisation_ratio", ("gpu", "GPU-1")] == 0.4
    assert found["cosyui_gpu_power_watts", ("gpu", "GPU-1")] == 123.5
    assert found["cosyui_disk_bytes", ("kind", "free")] == 8


def test_what_nobody_knows_is_left_out():
    names = {key[0] for key in scraped(Metrics(lambda: Sample(0.0)))}
    assert not any("gpu" in name or "process" in name or name == "cosyui_ready" for name in names)
    lost = GpuSample("GPU-1", "a card", lost=True)
    found = scraped(Metrics(lambda: Sample(0.0, machine=machine(lost))))
    assert found["cosyui_process_resident_bytes", ("process", "page")] == 100
    assert not any(key[0].startswith("cosyui_gpu") for key in found)
