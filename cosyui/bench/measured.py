"""What replicas were measured to do: figures of docs/performance.md, of files that the bench wrote, or typed in."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from cosyui.bench.queueing import Curve
from cosyui.errors import SetupError

H200 = {
    "h200-16": Curve({1: 1 / 0.0134, 16: 302.0}, {1: 0.033, 16: 0.140}, extra=1.1),
    "h200-64": Curve({1: 1 / 0.0205, 64: 449.0}, {1: 0.043, 16: 0.158, 32: 0.272}, extra=2.1),
}
"""One NVIDIA H200, by how many places its engine has; takes of 10 s, a clip that is known (docs/capacity.md)."""


def typed(text: str) -> dict[int, float]:
    """Of ``1:49,64:450``. Raises SetupError ``setting_invalid``."""
    try:
        points = {int(count): float(value) for count, _, value in (pair.partition(":") for pair in text.split(","))}
    except ValueError:
        points = {}
    if not points or min(points) < 1 or min(points.values()) <= 0:
        message = f"{text!r} are no points; write takes at work and figure, as in 1:49,64:450."
        raise SetupError("setting_invalid", message)
    return points


def read(files: Iterable[Path]) -> Curve:
    """Of what ``engine``, ``stream`` and ``service`` wrote with ``--json``, all on one machine.

    Raises:
        SetupError: ``setting_invalid``.
    """
    speeds: dict[int, float] = {}
    firsts: dict[int, float] = {}
    for file in files:
        try:
            content = json.loads(file.read_text("utf-8"))
            _collect(content, speeds, firsts)
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            message = f"{file} is not what engine, stream or service write with --json: {type(error).__name__}."
            raise SetupError("setting_invalid", message) from error
    if not speeds:
        raise SetupError("setting_invalid", "No speed is told in these files; give one that engine or service wrote.")
    return Curve(speeds, firsts)


def _collect(content: dict[str, Any], speeds: dict[int, float], firsts: dict[int, float]) -> None:
    places = int(content["settings"].get("places") or 0)
    for row in content.get("throughput", ()):
        # With more clients than places the others wait, and the speed is that of full places.
        count = min(row["clients"], places or row["clients"])
        speeds[count] = max(speeds.get(count, 0.0), row["speech_per_s"])
    for row in content.get("listeners", ()):
        firsts[row["clients"]] = row["first_p95"] / 1000
    if content["bench"] == "service" and places:
        speeds[min(content["settings"]["clients"], places)] = content["takes"]["speech_per_s"]
