"""The service as it is at this moment: a few figures for the sampler every second, all of it for the panel."""

from __future__ import annotations

from cosyui.engine.request import EngineStats
from cosyui.host.engines import Engines
from cosyui.ops.sampler import ServiceSample
from cosyui.ops.vram import EngineMemory
from cosyui.service import remarks
from cosyui.service.admission import AdmissionQueue
from cosyui.service.drive import Drive
from cosyui.service.job import Job
from cosyui.service.operations import Health
from cosyui.service.types import Overview, QueueEntry


def sample_of(client: Engines, queue: AdmissionQueue, drive: Drive) -> ServiceSample:
    """Costs some microseconds."""
    told = [engine.latest_stats for engine in client.engines if engine.latest_stats is not None]
    return ServiceSample(
        running=len(drive.jobs) - len(queue.waiting),
        waiting=len(queue.waiting),
        speech_seconds=drive.speech_seconds,
        errors=drive.outcomes["failed"],
        engines=tuple(engine_memory(stats) for stats in told if stats.device_total),
        ready=client.state == "ready",
        restarts=client.restarts,
    )


def engine_memory(stats: EngineStats) -> EngineMemory:
    """What an engine holds of its card. The features of prompts are in its process's memory, not there."""
    return EngineMemory(
        allocated=stats.allocated,
        reserved=stats.reserved,
        weights=stats.weights,
        kv_slots=stats.kv_slots,
        graphs=stats.graphs,
        features=stats.kept,
        graph_pools=stats.graph_pools,
        context=stats.context,
        device_used=stats.device_used,
        device_total=stats.device_total,
        gpu=stats.gpu,
    )


def overview_of(
    client: Engines, queue: AdmissionQueue, drive: Drive, health: Health, *, rejected: int, uptime: float
) -> Overview:
    """Takes less than a millisecond."""
    running = [job for job in drive.jobs.values() if job.state != "waiting"]
    count, outlook, views = drive.outcomes, queue.outlook(), client.views()
    return Overview(
        engine=client.state,
        problem=client.problem,
        facts=client.facts,
        stats=client.latest_stats,
        engines=views,
        machine=health.sample.machine,
        running=tuple(_entry(job, 0, queue.left(job)) for job in running),
        waiting=tuple(_entry(job, *place) for job, place in outlook.items()),
        queue_size=queue.size,
        places=queue.places,
        rtf=queue.rtf.value,
        speed=queue.speed.at(len(queue.running)),
        engine_restarts=client.restarts,
        finished=count["done"],
        failed=count["failed"],
        stopped=count["stopped"],
        rejected=rejected,
        uptime_seconds=uptime,
        sample=health.sample,
        problems=(*remarks.of_engines(views), *health.problems),
        leaks=health.leaks,
        purge=health.purge,
        waiting_rows=health.waiting_rows,
    )


def _entry(job: Job, position: int, eta: float | None) -> QueueEntry:
    return QueueEntry(
        id=job.id,
        client=job.client,
        state=job.state,
        age_seconds=job.age,
        position=position,
        eta_seconds=eta,
        expected_seconds=job.expected_seconds,
        done_seconds=job.done_seconds,
        mode=job.request.mode,
        long=job.request.long,
    )
