"""``python -m cosyui.bench engine DIR``: one request, its first chunk, the decode step, and the throughput of many.

Every figure stands beside what the device could do, measured in the same run.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from itertools import count, islice
from pathlib import Path
from typing import Any

import torch

from cosyui.bench import reference, rig, roofline
from cosyui.bench.load import Client, Load, checked
from cosyui.bench.report import Report
from cosyui.bench.rig import (
    MIB,
    Started,
    counts,
    decoder_of,
    device_memory,
    start,
    timed,
    wait_for,
)
from cosyui.bench.sentences import percentile
from cosyui.bench.workload import Workload
from cosyui.engine.decode import LengthRule
from cosyui.engine.engine import Engine
from cosyui.engine.precision import choose_device
from cosyui.engine.request import RequestStats, SynthesisRequest

CLIENTS = (1, 4, 8, 16, 32, 64, 128)
BATCHES = (1, 16, 64)
VOICES = 4
"""Different clips of the clients that are served at once."""
PREFILLS = 7


def add_arguments(parser: argparse.ArgumentParser) -> None:
    rig.add_arguments(parser, CLIENTS)
    default = ",".join(map(str, BATCHES))
    parser.add_argument("--batches", type=counts, default=list(BATCHES), metavar="N,N", help=f"of decode ({default})")
    help_ = "local checkout of the reference implementation, to be measured in the same run"
    parser.add_argument("--reference", type=Path, metavar="DIR", help=help_)


def run(args: argparse.Namespace) -> int:
    """Print the figures. Raises CheckpointError, SetupError or EngineError."""
    device = choose_device(args.device)
    report = Report("engine", device, args)
    # Before the engine takes its share of the memory.
    ceilings = roofline.measure(device, roofline.usual_dtype(device, args.precision))
    started = start(args)
    engine = started.engine
    report.add("start", "start", start_figures(started))
    if plan := engine.plan.parts:
        report.add("plan", "memory plan, MiB", {name: round(size / MIB) for name, size in plan.items()})
    report.add("roofline", "what the device can do", roofline_figures(ceilings, started))
    work = Workload(engine, args.seconds, args.prompt_seconds, args.seed)
    bench = EngineBench(started, work, ceilings, args.repeats)
    bench.warm_up()
    report.add("one", f"one request at a time, median of {args.repeats}", bench.one())
    report.add("first_chunk", "first chunk of a stream, one client, ms", bench.first_chunks())
    report.add("memory", "memory after that, MiB", memory_figures(started.engine))
    report.add("decode", "language model alone", list(bench.decode(args.batches)))
    rows = []
    for row in bench.throughput(args.clients):
        rows.append(row)
        report.progress("throughput", rows)
    if rows:
        report.add("throughput", "requests in flight", rows)
    texts = [work.text(work.seconds, number) for number in range(args.repeats + 1)]
    engine.close()
    if args.reference is not None:
        outcome = reference.measure(args.reference, Path(args.folder), texts, work.clip().samples, work.ratio)
        report.add("reference", "reference implementation", reference.compared(outcome, report.content["one"]))
    return 0


def start_figures(started: Started) -> dict[str, Any]:
    """Seconds until the engine takes requests, and what it holds then."""
    facts = started.engine.facts
    row: dict[str, Any] = {
        "load_s": started.load,
        "prepare_s": started.total - started.load,
        "total_s": started.total,
        "weights_mib": sum(facts.memory.values()) / MIB,
        "precision": facts.precision,
        "places": facts.places,
    }
    return row | {f"{name}_mib": size / MIB for name, size in device_memory(started.engine).items()}


def memory_figures(engine: Engine) -> dict[str, Any]:
    figures: dict[str, Any] = {name: size / MIB for name, size in device_memory(engine).items()}
    return figures or {"allocated": None}


def roofline_figures(ceilings: roofline.Ceilings, started: Started) -> dict[str, Any]:
    weights = roofline.decode_weight_bytes(started.engine.model)
    return asdict(ceilings) | {
        "matmul_tflops": ceilings.matmul / 1e12,
        "bandwidth_gb_s": ceilings.bandwidth / 1e9,
        "decode_weights_mib": weights / MIB,
        "decode_step_at_least_ms": 1000 * weights / ceilings.bandwidth,
    }


def spent(clients: Sequence[Client]) -> dict[str, float]:
    """Median seconds of the stages."""
    stages = ("text", "prompt", "llm", "flow", "vocoder")
    stats = [client.stats for client in clients if client.stats is not None]
    return {f"{stage}_s": statistics.median(getattr(one, f"{stage}_seconds") for one in stats) for stage in stages}


class EngineBench:
    """The measurements of one engine that nobody else uses."""

    def __init__(self, started: Started, work: Workload, ceilings: roofline.Ceilings, repeats: int) -> None:
        self.engine = started.engine
        self.device = started.device
        self.work = work
        self.ceilings = ceilings
        self.repeats = repeats
        self.load = Load(self.engine)
        self.meter = roofline.RenderMeter(self.engine.rendering.lanes)

    def warm_up(self) -> None:
        """Whatever happens only once: kernels are chosen, pages of memory are touched."""
        for number, stream in enumerate((False, True, False)):
            self.load.alone(self.work.request(f"warm {number}", number=number, stream=stream))

    def one(self) -> dict[str, Any]:
        """One client that waits for the whole, with prompt features that are known."""
        self.engine.gauge.forget_peaks()
        self.meter.reset()
        clients = [self.load.alone(self.work.request(f"one {i}", number=i)) for i in range(self.repeats)]
        wall = statistics.median(client.seconds for client in clients)
        speech = statistics.median(client.speech_seconds for client in clients)
        tokens = statistics.median(_stats(client).speech_tokens for client in clients)
        stages = spent(clients)
        flow = self.meter.flops / self.meter.flow_seconds
        return {
            "speech_s": speech,
            "wall_s": wall,
            "rtf": statistics.median(client.seconds / client.speech_seconds for client in clients),
            "slowest_s": max(client.seconds for client in clients),
            **stages,
            "segments": max(_stats(client).segments for client in clients),
            "tokens": tokens,
            "llm_ms_a_token": 1000 * stages["llm_s"] / tokens,
            "flow_tflops": flow / 1e12,
            "flow_share_of_matmul": flow / self.ceilings.matmul,
            "retries": sum(_stats(client).retries for client in clients),
        }

    def first_chunks(self) -> list[dict[str, Any]]:
        """With prompt features that are known, and with a clip that was never heard before."""
        voices: dict[str, Callable[[int], int]] = {"known": lambda _: 0, "new": lambda number: 1000 + number}
        rows = []
        for name, clip in voices.items():
            make = [self.work.request(f"{name} {i}", number=i, clip=clip(i), stream=True) for i in range(self.repeats)]
            clients = [self.load.alone(request) for request in make]
            firsts = sorted(1000 * client.first_chunk for client in clients)
            rows.append(
                {
                    "clip": name,
                    "median": statistics.median(firsts),
                    "slowest": firsts[-1],
                    "prompt": 1000 * spent(clients)["prompt_s"],
                    "chunk_s": statistics.median(client.arrivals[0][1] / 24_000 for client in clients),
                    "whole_stream": 1000 * statistics.median(client.seconds for client in clients),
                }
            )
        return rows

    @torch.inference_mode()
    def decode(self, batches: Sequence[int]) -> Iterator[dict[str, Any]]:
        """The decoder without anything around it, on the text and prompt of a request."""
        decoder = decoder_of(self.engine)
        request = self.work.request("decode")
        segments, _ = self.engine.frontend.segments(request)
        text = [*segments[0].prompt_text_ids, *segments[0].text_ids]
        speech = self.engine.prompts(request.prompt).speech_tokens.tolist()
        steps = round(self.work.seconds * self.engine.model.config.token_frame_rate)
        rule = LengthRule(steps, steps)
        floor = 1000 * roofline.decode_weight_bytes(self.engine.model) / self.ceilings.bandwidth
        for batch in batches:
            if batch > decoder.free:
                continue
            slots, prefills = [], []
            for number in range(batch):
                wait_for(self.device)
                began = time.perf_counter()
                slots.append(decoder.join(text, speech, rule, number))
                wait_for(self.device)
                prefills.append(time.perf_counter() - began)
            done, began = dict.fromkeys(slots, 0), time.perf_counter()
            ended: set[int] = set()
            while len(ended) < batch:
                while decoder.launch():  # as many as may be in flight, so that the device has no gap
                    pass
                for slot, decoded in decoder.poll(wait=True).items():
                    done[slot] += len(decoded.tokens)
                    if decoded.ended:
                        ended.add(slot)
            wait_for(self.device)
            step = 1000 * (time.perf_counter() - began) / max(done.values())
            for slot in slots:
                decoder.leave(slot)
            yield {
                "batch": batch,
                "steps": max(done.values()),
                "step_ms": step,
                "tokens_per_s": 1000 * sum(done.values()) / (step * max(done.values())),
                "at_least_ms": floor,
                "share": floor / step,
                "prefill_ms": 1000 * statistics.median(prefills[-PREFILLS:]),
                "prefill_rows": len(text) + len(speech) + 2,
            }

    def throughput(self, widths: Sequence[int]) -> Iterator[dict[str, Any]]:
        """So many requests in flight all the time, each waiting for its whole take.

        The first ``width`` are of random length, so that the others are in different stages as they are in life, and
        are not counted. Then the time is taken that twice as many need to end while others follow them.
        """
        for width in widths:
            clients = self.load.keep_busy(width, self._in_flight(width))
            for _ in islice(clients, width):
                pass
            self.meter.reset()
            wait_for(self.device)
            with timed(self.engine, "_wait") as idle:
                began = time.perf_counter()
                ended = [checked(client) for client in islice(clients, 2 * width)]
                seconds = ended[-1].ended - began
            row = self._rate(width, ended, seconds) | {"host_idle": idle[0] / seconds}
            self.load.stop()
            yield row

    def _in_flight(self, width: int) -> Iterator[SynthesisRequest]:
        for number in count():
            seconds = self.work.seconds
            if number < width:
                seconds = round(seconds * (number % 8 + 1) / 8)
            name = f"{width} clients {number}"
            yield self.work.request(name, seconds=max(1.0, seconds), number=number % 64, clip=number % VOICES)

    def _rate(self, width: int, ended: Sequence[Client], seconds: float) -> dict[str, Any]:
        meter = self.meter
        times = sorted(client.seconds for client in ended)
        rate = meter.flops / meter.flow_seconds if meter.flow_seconds else 0.0
        return {
            "clients": width,
            "requests": len(ended),
            "wall_s": seconds,
            "speech_s": sum(client.speech_seconds for client in ended),
            "speech_per_s": sum(client.speech_seconds for client in ended) / seconds,
            "median_s": statistics.median(times),
            "p95_s": percentile(times, 0.95),
            "flow_busy": meter.flow_seconds / seconds,
            "vocoder_busy": meter.vocoder_seconds / seconds,
            "frames_a_batch": meter.frames / max(1, meter.batches),
            "flow_tflops": rate / 1e12,
            "of_matmul": rate / self.ceilings.matmul,
            "retries": sum(_stats(client).retries for client in ended),
        }


def _stats(client: Client) -> RequestStats:
    assert client.stats is not None
    return client.stats
