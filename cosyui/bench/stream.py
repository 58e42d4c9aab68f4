"""``python -m cosyui.bench stream DIR``: listeners at once: how soon each hears something, and whether one runs dry.

Every listener plays from the first chunk on, without stopping. And what a long stream costs beside a short one.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Sequence
from typing import Any

from cosyui.bench import rig
from cosyui.bench.load import Client, Load
from cosyui.bench.report import Report
from cosyui.bench.sentences import percentile
from cosyui.bench.workload import Workload

CLIENTS = (1, 4, 16, 32)
LONG_SECONDS = 60.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    rig.add_arguments(parser, CLIENTS)
    help_ = f"of the long stream that is set against a short one (default {LONG_SECONDS:g}; 0: leave out)"
    parser.add_argument("--long-seconds", type=float, default=LONG_SECONDS, help=help_)


def run(args: argparse.Namespace) -> int:
    """Print the figures. Raises CheckpointError, SetupError or EngineError."""
    started = rig.start(args)
    engine = started.engine
    report = Report("stream", started.device, args)
    work, load = Workload(engine, args.seconds, args.prompt_seconds, args.seed), Load(engine)
    voices = max(args.clients, default=1)
    for voice in range(voices):  # features of all clips, and whatever happens only once
        load.alone(work.request(f"warm {voice}", seconds=min(2.0, args.seconds), clip=voice, stream=True))
    rows: list[dict[str, Any]] = []
    for width in args.clients:
        rounds = [listen(load, work, width, number) for number in range(args.repeats)]
        rows.append(listened(width, rounds))
        report.progress("listeners", rows)
    note = "margin: the least sound that a listener had left when a chunk came; below 0 for so long it was silent"
    report.add("listeners", f"listeners at once, {args.repeats} times", rows, note)
    if args.long_seconds:
        lengths = [long_stream(load, work, seconds, args.repeats) for seconds in (args.seconds, args.long_seconds)]
        report.add("length", "one stream, by its length; seconds per second of speech", lengths)
        short, long = lengths
        costs = ("wall_s_per_s", "llm_s_per_s", "flow_s_per_s", "vocoder_s_per_s")
        ratios = {name: long[name] / short[name] for name in costs if short[name]}
        note = "" if long["segments"] == 1 else f"The text of the long stream was cut into {long['segments']} segments."
        report.add("length_ratio", "long against short, per second of speech", ratios, note)
    engine.close()
    return 0


def listen(load: Load, work: Workload, width: int, number: int) -> list[Client]:
    """``width`` clients that ask for a stream at the same moment, each with a text and a voice of its own."""
    requests = [
        work.request(f"{width} listeners {number} {voice}", number=100 * number + voice, clip=voice, stream=True)
        for voice in range(width)
    ]
    return load.together(requests)


def listened(width: int, rounds: Sequence[Sequence[Client]]) -> dict[str, Any]:
    """What the listeners of some rounds met with; times in ms."""
    clients = [client for one in rounds for client in one]
    firsts = sorted(1000 * client.first_chunk for client in clients)
    margins = [margin for client in clients for margin in client.margins()]
    walls = [max(client.ended for client in one) - min(client.sent for client in one) for one in rounds]
    speech = [sum(client.speech_seconds for client in one) for one in rounds]
    return {
        "clients": width,
        "first_p50": percentile(firsts, 0.5),
        "first_p95": percentile(firsts, 0.95),
        "first_worst": firsts[-1],
        "underruns": sum(margin < 0 for margin in margins),
        "dry_streams": sum(any(margin < 0 for margin in client.margins()) for client in clients),
        "least_margin": 1000 * min(margins, default=0.0),
        "chunks": sum(len(client.arrivals) for client in clients),
        "first_chunk_s": statistics.median(client.arrivals[0][1] / 24_000 for client in clients),
        "speech_per_s": statistics.median(made / wall for made, wall in zip(speech, walls, strict=True)),
    }


def long_stream(load: Load, work: Workload, seconds: float, repeats: int) -> dict[str, Any]:
    """One stream of so many seconds, alone."""
    clients = [
        load.alone(work.request(f"{seconds:g} s, {number}", seconds=seconds, number=number, stream=True))
        for number in range(repeats + 1)
    ][1:]
    stats = [client.stats for client in clients if client.stats is not None]
    speech = [client.speech_seconds for client in clients]
    row: dict[str, Any] = {
        "speech_s": statistics.median(speech),
        "segments": max(one.segments for one in stats),
        "wall_s_per_s": statistics.median(client.seconds / made for client, made in zip(clients, speech, strict=True)),
    }
    for stage in ("llm", "flow", "vocoder"):
        costs = [getattr(one, f"{stage}_seconds") / made for one, made in zip(stats, speech, strict=True)]
        row[f"{stage}_s_per_s"] = statistics.median(costs)
    row["least_margin_ms"] = 1000 * min(margin for client in clients for margin in client.margins())
    return row
