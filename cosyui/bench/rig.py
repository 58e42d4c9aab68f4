"""What `engine`, `stream` and `memory` share: their options, and an engine started under a watch."""

from __future__ import annotations

import argparse
import importlib.util
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast

import torch

from cosyui.engine import engine as engine_module
from cosyui.engine import prompts
from cosyui.engine.config import ENVIRONMENT, EngineConfig
from cosyui.engine.engine import Engine
from cosyui.engine.precision import choose_device
from cosyui.engine.slots import SlotDecoder
from cosyui.speech.features import resample

MIB = 1 << 20


def add_arguments(parser: argparse.ArgumentParser, clients: Sequence[int] = ()) -> None:
    """The options of all three; ``clients``: the default of --clients."""
    parser.add_argument("folder", metavar="DIR", help="model folder (or embedded)")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda:N")
    parser.add_argument("--precision", default="auto", choices=("auto", "float32", "bfloat16", "float16"))
    parser.add_argument("--llm-file", default="llm.pt")
    parser.add_argument("--threads", type=int, default=0, help="of the CPU (default: PyTorch's choice)")
    parser.add_argument("--vram-budget", type=int, default=0, metavar="MIB", help="of the GPU (default: 80 %% of it)")
    parser.add_argument(
        "--places", type=int, default=0, metavar="N", help="requests worked on at once (default: all that fit)"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there, too")
    parser.add_argument("--seconds", type=float, default=10.0, help="of speech in a request (default 10)")
    parser.add_argument("--prompt-seconds", type=float, default=5.0, help="of prompt clip (default 5)")
    parser.add_argument("--seed", type=int, default=0)
    if clients:
        default = ",".join(map(str, clients))
        parser.add_argument("--repeats", type=positive, default=5, help="of which the median is told (default 5)")
        help_ = f"how many at once, one figure or several (default {default})"
        parser.add_argument("--clients", type=counts, default=list(clients), metavar="N,N", help=help_)


def positive(text: str) -> int:
    """A whole number of at least 1."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return number


def counts(text: str) -> list[int]:
    """``1,4,16``; nothing for an empty text."""
    return [positive(part) for part in text.replace(" ", ",").split(",") if part]


@dataclass(frozen=True)
class Started:
    """An engine, and the seconds that its start took: ``load`` for the weights, ``total`` until it takes requests."""

    engine: Engine
    load: float
    total: float

    @property
    def device(self) -> torch.device:
        return self.engine.model.device


def start(args: argparse.Namespace) -> Started:
    """Start an engine as the arguments say. Raises CheckpointError or SetupError."""
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    device = choose_device(args.device)
    if device.type == "cuda":
        torch.cuda.init()  # type: ignore[no-untyped-call]
        torch.empty(1, device=device)  # the start of the driver is nobody's loading time
    resample_without_soxr()
    config = EngineConfig(
        model=args.folder,
        llm_file=args.llm_file,
        device=args.device,
        precision=args.precision,
        threads=args.threads,
        vram_budget=args.vram_budget * MIB,
        places=args.places,
        self_test=False,  # nobody's memory and loading time
    )
    began = time.perf_counter()
    with timed(engine_module, "load") as load:
        engine = Engine(config)
    return Started(engine, load[0], time.perf_counter() - began)


@contextmanager
def timed(module: Any, name: str) -> Iterator[list[float]]:
    """Adds up the seconds that the function ``name`` of a module or an object takes."""
    spent, function = [0.0], getattr(module, name)

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        began = time.perf_counter()
        try:
            return function(*args, **kwargs)
        finally:
            spent[0] += time.perf_counter() - began

    setattr(module, name, wrapped)
    try:
        yield spent
    finally:
        setattr(module, name, function)


def resample_without_soxr() -> None:
    """Let prompt clips be resampled by torch on a machine without the soxr package."""
    if importlib.util.find_spec("soxr") is None:
        cast("Any", prompts).resample = partial(resample, method="sinc")


def decoder_of(engine: Engine) -> SlotDecoder:
    """What decodes for an engine; only to be used while it has no work."""
    return cast("SlotDecoder", engine.stages.decoding.decoder)


def wait_for(device: torch.device) -> None:
    """Until the device has done all that it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def device_memory(engine: Engine) -> dict[str, int]:
    """Allocated and reserved bytes of a GPU, with their highest values since the start, or since they were forgotten.

    The engine sets PyTorch's own high-water marks back with each request.
    """
    device, highest = engine.gauge.device, engine.gauge.highest
    if device.type != "cuda":
        return {}
    return {
        "allocated": torch.cuda.memory_allocated(device),
        "allocated_peak": max(torch.cuda.max_memory_allocated(device), highest.allocated_peak),
        "reserved": torch.cuda.memory_reserved(device),
        "reserved_peak": max(torch.cuda.max_memory_reserved(device), highest.reserved_peak),
    }
