"""Command-line arguments that the trainers share, and what follows from them."""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from cosyui.errors import SetupError
from cosyui.model.checkpoint import fold_weight_norm, read_state
from cosyui.voice_training.layout import VALIDATION


@dataclass(frozen=True)
class Common:
    """Parsed common arguments; ``until`` is a unix time."""

    data: Path
    ids: Path
    out: Path
    until: float
    max_steps: int
    init: Path | None
    compiled: bool
    go: Path | None
    device: torch.device

    @property
    def mixed(self) -> torch.autocast:
        """bfloat16 autocast on a GPU; on a CPU it does nothing."""
        return torch.autocast(self.device.type, torch.bfloat16, enabled=self.device.type == "cuda")

    def wait_for_go(self) -> None:
        """Until the go file exists (data and ids are ready) or time is up."""
        while self.go and not self.go.exists() and time.time() < self.until:
            time.sleep(0.5)


def add_common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--data", type=Path, default=Path("data"), help="folder of make_data's files (default data)")
    parser.add_argument("--ids", type=Path, default=Path("ids"), help="folder of codec's id files (default ids)")
    parser.add_argument("--out", type=Path, default=Path("run"), help="folder for checkpoints (default run)")
    parser.add_argument("--until", type=float, default=0.0, help="unix time to stop at")
    parser.add_argument("--seconds", type=float, default=600.0, help="seconds to run, where --until is not given")
    parser.add_argument("--max-steps", type=int, default=0, help="stop after so many steps (0: by time alone)")
    parser.add_argument("--init", type=Path, help="start from these weights (a .pt of an earlier run or release)")
    parser.add_argument("--no-compile", action="store_true", help="do not use torch.compile")
    parser.add_argument("--go", type=Path, help="build and compile, then wait until this file exists")
    parser.add_argument("--device", help="cuda or cpu (default: cuda if there is one)")
    parser.add_argument("--seed", type=int, default=1, help="seed of weights and batches")


def common(args: argparse.Namespace) -> Common:
    """Checks and settings every trainer starts with; TF32 on, the generator seeded."""
    device = torch.device(args.device or ("cuda" if torch.cuda.is_available() else "cpu"))
    torch.backends.cuda.matmul.allow_tf32 = True
    torch.backends.cudnn.allow_tf32 = True
    torch._dynamo.config.recompile_limit = 64  # every layer times every batch shape
    torch.manual_seed(args.seed)
    args.out.mkdir(parents=True, exist_ok=True)
    return Common(
        data=args.data,
        ids=args.ids,
        out=args.out,
        until=args.until or time.time() + args.seconds,
        max_steps=args.max_steps,
        init=args.init,
        compiled=not args.no_compile,
        go=args.go,
        device=device,
    )


def data_files(folder: Path, *, validation: bool = False) -> list[Path]:
    """The training files of a folder in order of their names, or its validation file alone."""
    return [file for file in sorted(folder.glob("*.pt")) if (file.stem == VALIDATION) == validation]


def with_ids(common: Common, *, validation: bool = False) -> tuple[list[Path], list[dict[str, NDArray[np.generic]]]]:
    """Data files whose ids exist, and those ids. Raises SetupError where there is no training file."""
    files = [f for f in data_files(common.data, validation=validation) if (common.ids / f"{f.stem}.npz").exists()]
    if not files and not validation:
        raise SetupError("training_data_missing", f"No data file in {common.data} has ids in {common.ids}: run codec.")
    return files, [dict(np.load(common.ids / f"{file.stem}.npz")) for file in files]


def load_weights(model: nn.Module, file: Path | None) -> None:
    """Start from a saved state; a vocoder's weight norm is folded. Raises CheckpointError, RuntimeError (shapes)."""
    if file is not None:
        model.load_state_dict(fold_weight_norm(read_state(file)))


def drop_gradients(*models: nn.Module) -> None:
    for model in models:
        for parameter in model.parameters():
            parameter.grad = None
