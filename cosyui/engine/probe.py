"""Which precision each stage can have on this checkpoint and this GPU: tried, not guessed.

Every stage runs in half precision beside float32 on the same made-up input, through the very code that will serve. The
first candidate whose result is finite and near enough is taken; what was found is remembered for the next start.
"""

from __future__ import annotations

import contextlib
import gc
import hashlib
import json
import logging
import math
import os
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch import Tensor

from cosyui.engine.flow_runner import FlowPiece, FlowRunner
from cosyui.engine.render import PromptFeatures
from cosyui.engine.vocoder_runner import VocoderPiece, VocoderRunner
from cosyui.model.config import ModelConfig
from cosyui.model.cosyvoice3 import StagePrecision, load_flow, load_llm, load_vocoder
from cosyui.model.llm_decode import DecodeLLM, SlotState
from cosyui.speech.features import mel_24k

log = logging.getLogger(__name__)

OnPart = Callable[[float], None]

TOKENS = 50
"""Of the made-up prompt and of the made-up speech: 2 s each."""
LLM_LIMIT = 0.05
"""Half the mean absolute difference of next-token probabilities, summed over the vocabulary (total variation)."""
FLOW_LIMIT = 0.02
"""Difference of mels in relation to the mel (root mean squares)."""
VOCODER_LIMIT = 0.01
"""The same of waves: -40 dB."""
VERSION = 1
"""Of this procedure: raise it when a remembered result would no longer hold."""


def candidates(device: torch.device) -> list[torch.dtype]:
    """Half-precision types that this GPU computes with, the more exact one first; both are equally fast."""
    found = [torch.float16]
    if device.type == "cpu" or torch.cuda.is_bf16_supported(including_emulation=False):
        found.append(torch.bfloat16)
    return found


def probed_precision(
    config: ModelConfig, folder: Path, llm_file: str, device: torch.device, on_part: OnPart = lambda part: None
) -> StagePrecision:
    """What `probe` found for these files on this device, now or at an earlier start."""
    memory = _memory(folder, llm_file, device)
    with contextlib.suppress(OSError, ValueError, KeyError, AttributeError):
        found = json.loads(memory.read_text())
        return StagePrecision(*(getattr(torch, found[stage]) for stage in ("llm", "flow", "vocoder")))
    precision = probe(config, folder, llm_file, device, candidates(device), on_part)
    if device.type == "cuda":
        gc.collect()
        torch.cuda.empty_cache()
    names = {stage: str(dtype).removeprefix("torch.") for stage, dtype in vars(precision).items()}
    with contextlib.suppress(OSError):  # it will be found again
        memory.parent.mkdir(parents=True, exist_ok=True)
        # Under its name only when it is whole: another engine may start at this moment.
        draft = memory.with_suffix(f".{os.getpid()}")
        draft.write_text(json.dumps(names))
        draft.replace(memory)
    return precision


@torch.inference_mode()
def probe(
    config: ModelConfig,
    folder: Path,
    llm_file: str,
    device: torch.device,
    dtypes: Sequence[torch.dtype],
    on_part: OnPart = lambda part: None,
) -> StagePrecision:
    """Try ``dtypes`` in order for each stage; float32 where none will do. Raises CheckpointError.

    ``on_part`` hears which part of it (0 to 1) is done.
    """
    prompt = _prompt(config)
    speech = _speech(config, 1)

    def llm(dtype: torch.dtype) -> Tensor:
        return _next_tokens(load_llm(config, folder / llm_file, device, dtype), config)

    def flow(dtype: torch.dtype) -> Tensor:
        # Exactly once and never again: not worth compiling kernels for.
        kernels = None if dtype in dtypes else False
        module = load_flow(config, folder / "flow.pt", device, dtype)
        runner = FlowRunner(module, max_frames=512, graphs=False, kernels=kernels)
        return runner.run([FlowPiece(runner.open(prompt, stream=False), speech, True)])[0]

    exact_mel = flow(torch.float32)
    on_part(0.25)

    def vocoder(dtype: torch.dtype) -> Tensor:
        fused = None if dtype in dtypes else False
        module = load_vocoder(config, folder / "hift.pt", device, dtype)
        runner = VocoderRunner(module, max_frames=512, graphs=False, fused=fused)
        return runner.run([VocoderPiece(runner.open(), exact_mel, True)])[0]

    llm_type = _first_near("llm", llm, llm(torch.float32), _variation, LLM_LIMIT, dtypes)
    on_part(0.5)
    flow_type = _first_near("flow", flow, exact_mel, _relative, FLOW_LIMIT, dtypes)
    on_part(0.75)
    vocoder_type = _first_near("vocoder", vocoder, vocoder(torch.float32), _relative, VOCODER_LIMIT, dtypes)
    return StagePrecision(llm_type, flow_type, vocoder_type)


def _first_near(
    stage: str,
    run: Callable[[torch.dtype], Tensor],
    exact: Tensor,
    distance: Callable[[Tensor, Tensor], float],
    limit: float,
    dtypes: Sequence[torch.dtype],
) -> torch.dtype:
    for dtype in dtypes:
        error = distance(run(dtype), exact)
        fits = error <= limit  # never for NaN
        log.info("precision", extra={"fields": {"stage": stage, "dtype": str(dtype), "error": error, "taken": fits}})
        if fits:
            return dtype
    return torch.float32


def _next_tokens(llm: torch.nn.Module, config: ModelConfig) -> Tensor:
    """Probabilities (T, vocabulary) after each row of a made-up request."""
    model = DecodeLLM(llm, 4 * TOKENS)  # type: ignore[arg-type]
    text = [index * 7919 % config.llm.text_vocab for index in range(1, TOKENS + 1)]
    rows = model.input_rows(text, _speech(config, 0)).to(model.device)
    state = SlotState(config.llm, 1, 4 * TOKENS, model.device, model.dtype)
    hidden = model.prefill(state, torch.zeros(1, dtype=torch.int64, device=model.device), rows)
    return model.logits(hidden).softmax(-1)


def _prompt(config: ModelConfig) -> PromptFeatures:
    """Speech tokens by chance, with the mel of a buzz and a speaker by chance."""
    generator = torch.Generator().manual_seed(0)
    seconds = torch.arange(TOKENS * config.sample_rate // config.token_frame_rate) / config.sample_rate
    phase = 2 * torch.pi * (130 * seconds - 6 * torch.cos(2.1 * seconds))
    buzz = 0.2 * torch.stack([torch.sin(k * phase) / k for k in range(1, 20)]).sum(0)
    mel = mel_24k(buzz[None])[0].T[: config.flow.token_mel_ratio * TOKENS].contiguous()
    tokens = torch.tensor(_speech(config, 0))
    return PromptFeatures(tokens, mel, torch.randn(config.flow.spk_dim, generator=generator))


def _speech(config: ModelConfig, seed: int) -> list[int]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(config.llm.speech_token_size, (TOKENS,), generator=generator).tolist()


def _variation(found: Tensor, exact: Tensor) -> float:
    return float((found - exact).abs().sum(-1).mean() / 2)


def _relative(found: Tensor, exact: Tensor) -> float:
    if not bool(found.isfinite().all()):
        return math.nan
    return float((found - exact).norm() / exact.norm())


def _memory(folder: Path, llm_file: str, device: torch.device) -> Path:
    """The file in which the result for these weights on this kind of GPU lies."""
    files = [(folder / name).stat() for name in (llm_file, "flow.pt", "hift.pt")]
    gpu = torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"
    known = [VERSION, torch.__version__, gpu, [(stat.st_size, stat.st_mtime_ns) for stat in files]]
    digest = hashlib.sha256(json.dumps(known).encode()).hexdigest()[:32]
    home = Path(os.environ.get("XDG_CACHE_HOME", "") or Path.home() / ".cache")
    return home / "cosyui" / "precision" / f"{digest}.json"
