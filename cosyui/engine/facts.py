"""What is told of a loaded checkpoint."""

from __future__ import annotations

from pathlib import Path

import onnxruntime
import tokenizers
import torch
from torch import nn

from cosyui.engine.request import EngineFacts
from cosyui.model.cosyvoice3 import CosyVoice3


def parameter_count(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


def weight_bytes(module: nn.Module) -> int:
    tensors = [*module.parameters(), *module.buffers()]
    return sum(t.numel() * t.element_size() for t in tensors)


def facts_of(model: CosyVoice3, source: str, folder: Path, precision: dict[str, str], places: int) -> EngineFacts:
    """Facts of ``model`` in ``folder``, which is not quite loaded; ``places``: requests that are worked on at once."""
    parts = {"llm": model.llm, "flow": model.flow, "vocoder": model.vocoder}
    return EngineFacts(
        model=folder.name,
        source=source,
        device=torch.cuda.get_device_name(model.device) if model.device.type == "cuda" else "cpu",
        precision=precision,
        parameters={name: parameter_count(part) for name, part in parts.items()},
        memory={name: weight_bytes(part) for name, part in parts.items()},
        load_seconds=0.0,
        places=places,
        demo_voice=model.config.demo_voice,
        instruct_supported=model.config.instruct_supported,
        languages=model.config.languages,
        providers={
            "speaker encoder": model.speaker_encoder.provider,
            "speech tokenizer": model.speech_tokenizer.provider,
        },
        versions={
            "torch": torch.__version__,
            "onnxruntime": onnxruntime.__version__,
            "tokenizers": tokenizers.__version__,
        },
    )
