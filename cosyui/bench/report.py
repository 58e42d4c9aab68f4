"""What a measuring command leaves behind: plain tables on stdout, and the same as JSON, written after every part."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import shlex
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import psutil
import torch

Row = Mapping[str, Any]


def machine(device: torch.device) -> dict[str, Any]:
    """What the figures depend on besides the program."""
    facts: dict[str, Any] = {
        "device": "cpu",
        "cpu": platform.machine(),
        "cores": os.process_cpu_count() if hasattr(os, "process_cpu_count") else os.cpu_count(),
        "threads": torch.get_num_threads(),
        "memory_mib": psutil.virtual_memory().total >> 20,
        "python": platform.python_version(),
        "torch": torch.__version__,
    }
    with contextlib.suppress(OSError, StopIteration):
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        facts["cpu"] = next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    if device.type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        facts |= {
            "device": properties.name,
            "device_memory_mib": properties.total_memory >> 20,
            "multiprocessors": properties.multi_processor_count,
            "cuda": torch.version.cuda,
        }
        with contextlib.suppress(PackageNotFoundError):
            facts["triton"] = version("triton")
    return facts


class Report:
    """Collects parts by name, prints each as it comes, and keeps ``file`` up to date if there is one."""

    def __init__(self, name: str, device: torch.device, args: argparse.Namespace) -> None:
        self.file: Path | None = args.json
        settings = {key: value for key, value in vars(args).items() if key not in ("json", "command")}
        self.content: dict[str, Any] = {
            "bench": name,
            "command": shlex.join(["python", "-m", "cosyui.bench", *sys.argv[1:]]),
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            "machine": machine(device),
            "settings": settings,
        }
        facts = self.content["machine"]
        print(f"{facts['device']}, {facts['cpu']} ({facts['threads']} threads), PyTorch {facts['torch']}", flush=True)

    def add(self, name: str, title: str, rows: Row | Sequence[Row], note: str = "") -> None:
        """A part: one row as a list of figures, several as a table."""
        self.content[name] = rows
        print(f"\n{title}")
        print(table(rows) if isinstance(rows, Sequence) else figures(rows))
        if note:
            print(note)
        sys.stdout.flush()
        self.save()

    def progress(self, name: str, rows: Sequence[Row]) -> None:
        """The rows of a part that goes on; the last of them goes to stderr."""
        self.content[name] = rows
        print(f"{name}: {shown(dict(rows[-1]))}", file=sys.stderr, flush=True)
        self.save()

    def save(self) -> None:
        if self.file is not None:
            self.file.parent.mkdir(parents=True, exist_ok=True)
            self.file.write_text(json.dumps(self.content, indent=1, default=str) + "\n", encoding="utf-8")


def shown(value: Any) -> str:
    """For people: four digits are enough."""
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    if isinstance(value, dict):
        return ", ".join(f"{key} {shown(item)}" for key, item in value.items())
    return "-" if value is None else str(value)


def figures(row: Row) -> str:
    """One figure a line."""
    width = max(len(name) for name in row)
    return "\n".join(f"  {name.ljust(width)}  {shown(value)}" for name, value in row.items())


def table(rows: Sequence[Row]) -> str:
    """A line for each row under the names of the first."""
    if not rows:
        return "  nothing"
    names = list(rows[0])
    lines = [names, *([shown(row.get(name)) for name in names] for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(names))]
    return "\n".join(
        "  " + "  ".join(cell.rjust(size) for cell, size in zip(line, widths, strict=True)) for line in lines
    )
