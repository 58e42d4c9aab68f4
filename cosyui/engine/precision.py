"""Which dtype each stage runs in."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch

from cosyui.engine.config import Precision
from cosyui.engine.probe import probed_precision
from cosyui.errors import SetupError
from cosyui.model.config import ModelConfig
from cosyui.model.cosyvoice3 import StagePrecision

_BY_NAME = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def choose_device(name: str) -> torch.device:
    """``auto`` is CUDA when there is one. Raises SetupError for a device that is unknown or not there.

    On CUDA float32 is made to mean float32: by default convolutions would round their inputs to TF32, which moves the
    vocoder's waveform by up to 6e-3.
    """
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        # With its number: some of PyTorch's functions ask for one.
        device = torch.empty(0, device=name).device
    except (RuntimeError, AssertionError) as error:
        message = f"--device {name} cannot be used here: choose auto, cpu, or cuda on a machine with an NVIDIA GPU."
        raise SetupError("setting_invalid", message) from error
    if device.type == "cuda":
        torch.backends.cudnn.allow_tf32 = False
    return device


def choose_precision(
    precision: Precision,
    device: torch.device,
    config: ModelConfig,
    folder: Path,
    llm_file: str,
    on_part: Callable[[float], None] = lambda part: None,
) -> StagePrecision:
    """Dtypes per stage. Raises CheckpointError.

    ``auto``: float32 on a CPU; on CUDA what the probe found for this checkpoint. A precision chosen by hand holds for
    all stages, but the vocoder has float32 where bfloat16 is asked for: it is small, and the short mantissa is audible.
    """
    if precision == "auto":
        if device.type == "cpu":
            return StagePrecision()
        return probed_precision(config, folder, llm_file, device, on_part)
    return by_hand(precision)


def by_hand(precision: Precision) -> StagePrecision:
    """The stages' types for one chosen by name, not ``auto``."""
    dtype = _BY_NAME[precision]
    return StagePrecision(dtype, dtype, torch.float32 if dtype == torch.bfloat16 else dtype)


def describe(precision: StagePrecision) -> dict[str, str]:
    """Stage -> dtype name, for people."""
    stages = {"llm": precision.llm, "flow": precision.flow, "vocoder": precision.vocoder, "f0": torch.float64}
    return {stage: str(dtype).removeprefix("torch.") for stage, dtype in stages.items()}
