"""A speech LLM of random weights whose activations are of the sizes that a trained one has."""

from __future__ import annotations

import torch

from cosyui.model.config import LLMConfig
from cosyui.model.llm import SpeechLM


def random_llm(config: LLMConfig, device: torch.device, dtype: torch.dtype, seed: int = 0) -> SpeechLM:
    torch.manual_seed(seed)
    llm = SpeechLM(config).requires_grad_(False).eval()
    for name, parameter in llm.named_parameters():
        if name.endswith("norm.weight"):
            parameter.normal_(1.0, 0.2)
        elif parameter.dim() == 2 and "embed" not in name:
            parameter.normal_(0.0, 1.4 * parameter.shape[1] ** -0.5)
    llm.llm_decoder.weight *= 2.0
    return llm.to(device, dtype)


def tolerance(dtype: torch.dtype) -> float:
    """Of a step's logits, as a share of the largest; a tenth of that of keys and values."""
    return {torch.float32: 2e-5, torch.float16: 1e-2, torch.bfloat16: 8e-2}[dtype]
