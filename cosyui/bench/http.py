"""``python -m cosyui.bench http URL``: clients of a running server over HTTP: first sound, throughput, gaps.

First all clients ask at the same moment, then each sends its next request when one has ended. A listener plays from the
first byte on; a stream has run dry where its next bytes came later than the sound before them lasted.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import random
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from cosyui.bench.report import Report
from cosyui.bench.rig import positive
from cosyui.bench.sentences import percentile, sentence
from cosyui.engine.request import SAMPLE_RATE
from cosyui.errors import CosyuiError

if TYPE_CHECKING:
    import httpx

PATIENCE = 600.0
"""Seconds without a byte after which a request counts as failed."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("url", metavar="URL", help="of the server, as http://127.0.0.1:7860")
    parser.add_argument("--key", default="", help="its API key")
    parser.add_argument("--clients", type=positive, default=64, help="at once, each on a connection of its own")
    parser.add_argument("--requests", type=positive, default=512, help="after the first of each client")
    parser.add_argument("--words", type=positive, default=10, help="of a text, half to one and a half times that")
    parser.add_argument("--voice", default="en", help="a voice's name")
    parser.add_argument("--format", default="pcm", choices=("pcm", "wav", "mp3", "opus", "flac", "aac"))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there, too")


@dataclass
class Answer:
    """One request. ``arrivals``: seconds since it was sent, and bytes, of each piece of sound."""

    status: int = 0
    problem: str = ""
    arrivals: list[tuple[float, int]] = field(default_factory=list)
    sound: bytes = b""
    ended: float = 0.0
    server_first: float | None = None
    seconds: float = 0.0

    @property
    def first_byte(self) -> float:
        return self.arrivals[0][0]

    @property
    def longest_gap(self) -> float:
        """Seconds that the worst piece came too late, for a listener who plays from the first on; 0: none did."""
        a_byte, left, worst = self.seconds / max(len(self.sound), 1), 0.0, 0.0
        for (moment, size), (later, _) in zip(self.arrivals, self.arrivals[1:], strict=False):
            left = max(left, 0.0) + size * a_byte - (later - moment)
            worst = max(worst, -left)
        return worst


def run(args: argparse.Namespace) -> int:
    """Print the figures; 1 when a request failed.

    Raises:
        CosyuiError: ``http_unreachable``.
    """
    return asyncio.run(measure(args, Report("http", torch.device("cpu"), args)))


async def measure(args: argparse.Namespace, report: Report) -> int:
    import httpx

    headers = {"Authorization": f"Bearer {args.key}"} if args.key else {}
    limits = httpx.Limits(max_connections=args.clients, max_keepalive_connections=args.clients)
    bodies = _bodies(args)
    async with httpx.AsyncClient(
        base_url=args.url, headers=headers, limits=limits, timeout=PATIENCE, trust_env=False
    ) as http:
        try:
            await _ask(http, next(bodies))  # what is made for a voice when it is first used
        except httpx.HTTPError as error:
            raise CosyuiError("http_unreachable", f"There is no answer from {args.url}: {error}.") from error
        parts = (
            ("burst", f"{args.clients} clients at the same moment", args.clients),
            ("steady", f"{args.clients} clients, each one request after another", args.requests),
        )
        failed = 0
        for name, title, requests in parts:
            began = time.perf_counter()
            answers = await _crowd(http, args.clients, [next(bodies) for _ in range(requests)])
            wall = time.perf_counter() - began
            report.add(name, title, await asyncio.to_thread(figures, answers, args.format, wall))
            problems = [one.problem for one in answers if one.problem]
            failed += len(problems)
            for problem in problems[:3]:
                print(f"fault: {problem}")
    return 1 if failed else 0


def figures(answers: list[Answer], sound_format: str, wall: float) -> dict[str, Any]:
    """Of the requests that went well; sounds are decoded for it."""
    good = [one for one in answers if not one.problem]
    for one in good:
        one.seconds = _seconds(one.sound, sound_format)
    firsts = sorted(one.first_byte for one in good) or [0.0]
    inside = sorted(one.server_first for one in good if one.server_first is not None) or [0.0]
    wholes = sorted(one.ended for one in good) or [0.0]
    gaps = sorted(one.longest_gap for one in good) or [0.0]
    return {
        "requests": len(answers),
        "failed": len(answers) - len(good),
        "wall_s": wall,
        "speech_s": sum(one.seconds for one in good),
        "speech_per_s": sum(one.seconds for one in good) / wall,
        "first_byte_p50_s": percentile(firsts, 0.5),
        "first_byte_p95_s": percentile(firsts, 0.95),
        "first_chunk_inside_p50_s": percentile(inside, 0.5),
        "whole_p50_s": percentile(wholes, 0.5),
        "whole_p95_s": percentile(wholes, 0.95),
        "dry_streams": sum(gap > 0 for gap in gaps),
        "longest_gap_s": gaps[-1],
    }


async def _crowd(http: httpx.AsyncClient, clients: int, bodies: list[dict[str, Any]]) -> list[Answer]:
    import httpx

    waiting, answers = iter(bodies), []

    async def client() -> None:
        for body in waiting:
            answer = Answer()
            answers.append(answer)
            try:
                await _ask(http, body, answer)
            except httpx.HTTPError as error:
                answer.problem = f"{type(error).__name__}: {error}"

    async with asyncio.TaskGroup() as group:
        for _ in range(min(clients, len(bodies))):
            group.create_task(client())
    return answers


async def _ask(http: httpx.AsyncClient, body: dict[str, Any], answer: Answer | None = None) -> None:
    answer = answer or Answer()
    parts, sent = [], time.perf_counter()
    async with http.stream("POST", "/v1/audio/speech", json=body) as response:
        answer.status = response.status_code
        async for part in response.aiter_raw():
            answer.arrivals.append((time.perf_counter() - sent, len(part)))
            parts.append(part)
    answer.ended = time.perf_counter() - sent
    answer.sound = b"".join(parts)
    timing = re.search(r"first_chunk;dur=([\d.]+)", response.headers.get("server-timing", ""))
    answer.server_first = float(timing[1]) / 1000 if timing else None
    if answer.status != 200 or not answer.sound:
        answer.problem = f"HTTP {answer.status}: {answer.sound[:200].decode(errors='replace')}"


def _bodies(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    source = random.Random(args.seed)
    while True:
        yield {
            "model": "cosyui",
            "voice": args.voice,
            "input": sentence(source, args.words),
            "response_format": args.format,
            "seed": source.randrange(1 << 30),
        }


def _seconds(sound: bytes, sound_format: str) -> float:
    if sound_format in ("pcm", "wav"):
        return (len(sound) - 44 * (sound_format == "wav")) / 2 / SAMPLE_RATE
    import av

    with av.open(io.BytesIO(sound), "r") as container:
        return sum(frame.samples / frame.sample_rate for frame in container.decode(audio=0))
