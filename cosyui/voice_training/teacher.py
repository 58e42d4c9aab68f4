"""The teacher in PyTorch: Kokoro-82M's own modules (package ``kokoro``, Apache-2.0), spoken in batches.

Two stages, since batches of the sound side should be of equal length: instance norms would see padding.
"""

from __future__ import annotations

import importlib.util
import json
import re
import sys
import types
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from cosyui.errors import SetupError
from cosyui.voice_training.teacher_weights import read

FRAME_SAMPLES = 600
"""24 kHz samples of a teacher frame (40/s); its pitch comes at twice that rate."""
TIMBRE = 128
"""The first half of a voice vector drives the decoder (timbre), the second the prosody."""
_UNUSED = re.compile(r"\.norm\.(weight|bias)$|position_ids|pooler")
"""Tensors that the export leaves out: constants of the modules, and a layer that is not used."""


@dataclass(frozen=True)
class Encoded:
    """Text side of one utterance: ``hidden`` (T, C), ``text`` (C, T), ``durations`` (T,) frames, ``style`` (256,)."""

    hidden: Tensor
    text: Tensor
    durations: Tensor
    style: Tensor

    @property
    def symbols(self) -> int:
        return len(self.durations)


def _import_modules() -> tuple[Any, Any]:
    """``kokoro.istftnet`` and ``kokoro.modules`` without the package's start-up, which wants spaCy and espeak."""
    spec = importlib.util.find_spec("kokoro")
    if spec is None or spec.submodule_search_locations is None:
        raise SetupError("package_missing", "Install the teacher's modules: pip install --no-deps kokoro==0.9.4")
    package = types.ModuleType("kokoro")
    package.__path__ = list(spec.submodule_search_locations)
    sys.modules["kokoro"] = package
    if (
        "loguru" not in sys.modules and importlib.util.find_spec("loguru") is None
    ):  # only used to say something while debugging
        stand_in: Any = types.ModuleType("loguru")
        stand_in.logger = types.SimpleNamespace(debug=lambda *_: None)
        sys.modules["loguru"] = stand_in
    return importlib.import_module("kokoro.istftnet"), importlib.import_module("kokoro.modules")


class Teacher(nn.Module):
    """Phoneme ids and a voice vector in, 24 kHz sound, durations and pitch out."""

    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__()
        from transformers import AlbertConfig  # type: ignore[import-not-found, unused-ignore]

        istftnet, modules = _import_modules()
        self.vocabulary: dict[str, int] = config["vocab"]
        width, style, depth, symbols = (config[key] for key in ("hidden_dim", "style_dim", "n_layer", "n_token"))
        albert = AlbertConfig(vocab_size=symbols, **config["plbert"])
        self.bert = modules.CustomAlbert(albert)
        self.bert_encoder = nn.Linear(albert.hidden_size, width)
        self.predictor = modules.ProsodyPredictor(
            style_dim=style, d_hid=width, nlayers=depth, max_dur=config["max_dur"], dropout=config["dropout"]
        )
        self.text_encoder = modules.TextEncoder(
            channels=width, kernel_size=config["text_encoder_kernel_size"], depth=depth, n_symbols=symbols
        )
        self.decoder = istftnet.Decoder(dim_in=width, style_dim=style, dim_out=config["n_mels"], **config["istftnet"])
        for module in self.modules():
            if hasattr(module, "weight_g"):
                nn.utils.remove_weight_norm(module)

    @torch.no_grad()
    def encode(self, ids: Sequence[list[int]], styles: np.ndarray[Any, Any], speeds: Sequence[float]) -> list[Encoded]:
        """Text side of a batch: phoneme ids without the zeros at both ends, styles (B, 256), speed factors."""
        device = self.bert_encoder.weight.device
        counts = torch.tensor([len(one) + 2 for one in ids])
        symbols = torch.zeros(len(ids), int(counts.max()), dtype=torch.int64)
        for row, one in enumerate(ids):
            symbols[row, 1 : 1 + len(one)] = torch.tensor(one)
        symbols = symbols.to(device)
        style = torch.as_tensor(styles, dtype=torch.float32, device=device)
        padding = torch.arange(symbols.shape[1], device=device) >= counts.to(device)[:, None]
        bert = self.bert(symbols, attention_mask=(~padding).int())
        prosody = style[:, TIMBRE:]
        encoder = self.predictor.text_encoder
        hidden = encoder(self.bert_encoder(bert).transpose(-1, -2), prosody, counts, padding)
        packed = pack_padded_sequence(hidden, counts, batch_first=True, enforce_sorted=False)
        states, _ = pad_packed_sequence(self.predictor.lstm(packed)[0], batch_first=True, total_length=symbols.shape[1])
        speed = torch.tensor(speeds, device=device)[:, None]
        frames = torch.sigmoid(self.predictor.duration_proj(states)).sum(-1) / speed
        frames = torch.round(frames).clamp(min=1).long()
        text = self.text_encoder(symbols, counts, padding)
        return [
            Encoded(hidden[row, :n], text[row, :, :n], frames[row, :n], style[row])
            for row, n in enumerate(counts.tolist())
        ]

    @torch.no_grad()
    def speak(self, batch: Sequence[Encoded], frames: int) -> tuple[Tensor, Tensor, Tensor]:
        """Sound side, every row stretched to ``frames`` by its closing pause.

        Returns waves (B, 600 * frames), pitch (B, 2 * frames) in Hz, and the symbol spoken in each frame (B, frames).
        """
        longest = max(one.symbols for one in batch)
        hidden = torch.stack([_padded(one.hidden.T, longest) for one in batch])
        text = torch.stack([_padded(one.text, longest) for one in batch])
        style = torch.stack([one.style for one in batch])
        ends = []
        for one in batch:
            durations = one.durations.clone()
            durations[-1] += frames - durations.sum()
            ends.append(nn.functional.pad(durations.cumsum(0), (0, longest - one.symbols), value=frames))
        clock = torch.arange(frames, device=style.device).expand(len(batch), -1).contiguous()
        symbol = torch.searchsorted(torch.stack(ends), clock, right=True).clamp(max=longest - 1)
        spread = symbol[:, None]
        pitch, energy = self.predictor.F0Ntrain(
            hidden.gather(2, spread.expand(-1, hidden.shape[1], -1)), style[:, TIMBRE:]
        )
        aligned = text.gather(2, spread.expand(-1, text.shape[1], -1))
        wave = self.decoder(aligned, pitch, energy, style[:, :TIMBRE]).reshape(len(batch), -1)
        return wave, pitch, symbol


def _padded(x: Tensor, length: int) -> Tensor:
    return nn.functional.pad(x, (0, length - x.shape[-1]))


def load_teacher(folder: Path, device: torch.device) -> Teacher:
    """The teacher of ``config.json`` and ``kokoro-w8.npz``. Raises SetupError when a tensor is missing."""
    teacher = Teacher(json.loads((folder / "config.json").read_text(encoding="utf-8")))
    wanted = teacher.state_dict()
    arrays = read(folder / "kokoro-w8.npz")
    missing = [name for name in wanted if name not in arrays and not _UNUSED.search(name)]
    if missing:
        raise SetupError("training_teacher", f"kokoro-w8.npz lacks {len(missing)} tensors, e.g. {missing[0]}.")
    state = {name: torch.from_numpy(a).reshape(wanted[name].shape) for name, a in arrays.items() if name in wanted}
    teacher.load_state_dict(state, strict=False)
    return teacher.to(device).eval()
