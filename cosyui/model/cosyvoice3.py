"""A whole checkpoint in memory: configuration, text tokenizer, the three networks and the prompt encoders."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import torch
from torch import nn

from cosyui.model.checkpoint import fold_weight_norm, load_into, read_state
from cosyui.model.config import ModelConfig, load_config
from cosyui.model.flow import Flow, fixed_noise
from cosyui.model.llm import SpeechLM
from cosyui.model.prompt_encoders import SPEAKER_FILE, TOKENIZER_FILE, SpeakerEncoder, SpeechTokenizer
from cosyui.model.tokenizer import TextTokenizer
from cosyui.model.vocoder import CausalHiFT, source_noise

TEXT_MODEL_FOLDER = "CosyVoice-BlankEN"


@dataclass(frozen=True)
class StagePrecision:
    """Dtype of each network's weights. The pitch predictor is float64 whatever the vocoder has."""

    llm: torch.dtype = torch.float32
    flow: torch.dtype = torch.float32
    vocoder: torch.dtype = torch.float32


@dataclass
class CosyVoice3:
    """Loaded parts of one checkpoint, ready for inference on ``device``."""

    config: ModelConfig
    tokenizer: TextTokenizer
    llm: SpeechLM
    flow: Flow
    vocoder: CausalHiFT
    speaker_encoder: SpeakerEncoder
    speech_tokenizer: SpeechTokenizer
    device: torch.device


def load_llm(config: ModelConfig, file: Path, device: torch.device, dtype: torch.dtype) -> SpeechLM:
    """The speech-token LLM of ``llm.pt`` or ``llm.rl.pt``. Raises CheckpointError."""
    with torch.device("meta"):
        module = SpeechLM(config.llm)
    load_into(module, read_state(file), file, dtype, device)
    return _ready(module)


def load_flow(config: ModelConfig, file: Path, device: torch.device, dtype: torch.dtype) -> Flow:
    """The flow of ``flow.pt``, with the fixed noise. Raises CheckpointError."""
    with torch.device("meta"):
        module = Flow(config.flow)
    load_into(module, read_state(file), file, dtype, device)
    module.noise = fixed_noise(config.flow.mel_dim).to(device)
    return _ready(module)


def load_vocoder(config: ModelConfig, file: Path, device: torch.device, dtype: torch.dtype) -> CausalHiFT:
    """The vocoder of ``hift.pt``: weight norm folded, the pitch predictor in float64. Raises CheckpointError."""
    with torch.device("meta"):
        module = CausalHiFT(config.vocoder)
    load_into(module, fold_weight_norm(read_state(file)), file, dtype, device)
    module.noise = source_noise(module.harmonics).to(device)
    module.window = torch.hann_window(module.n_fft, device=device)
    return _ready(module)


def load(
    folder: Path,
    *,
    llm_file: str = "llm.pt",
    device: torch.device | str = "cpu",
    precision: StagePrecision | None = None,
    threads: int = 1,
    on_step: Callable[[str, float], None] = lambda stage, part: None,
) -> CosyVoice3:
    """Everything in ``folder`` (released layout) onto ``device``; the ONNX encoders run on the CPU with ``threads``.

    ``on_step`` hears which part of ``weights`` and of ``encoders`` is there. Raises CheckpointError naming the file,
    and the tensor where there is one.
    """
    device, precision = torch.device(device), precision or StagePrecision()
    config = load_config(folder)
    on_step("weights", 0.0)
    tokenizer = TextTokenizer(folder / TEXT_MODEL_FOLDER)
    llm = load_llm(config, folder / llm_file, device, precision.llm)
    on_step("weights", 0.5)
    flow = load_flow(config, folder / "flow.pt", device, precision.flow)
    on_step("weights", 0.9)
    vocoder = load_vocoder(config, folder / "hift.pt", device, precision.vocoder)
    on_step("encoders", 0.0)
    speaker_encoder = SpeakerEncoder(folder / SPEAKER_FILE, threads)
    on_step("encoders", 0.2)
    speech_tokenizer = SpeechTokenizer(folder / TOKENIZER_FILE, threads)
    return CosyVoice3(config, tokenizer, llm, flow, vocoder, speaker_encoder, speech_tokenizer, device)


Network = TypeVar("Network", bound=nn.Module)


def _ready(module: Network) -> Network:
    return module.requires_grad_(False).eval()
