"""Trained states to the released layout: ``python -m cosyui.voice_training.export RUN OUT``.

RUN holds ``tokenizer_full.pt``, ``speaker_full.pt``, ``llm_best.pt`` or ``llm.pt``, ``flow.pt`` and ``hift.pt``.
Weights are halves; both ONNX files hold half weights that ONNX Runtime widens when it loads them.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from cosyui.errors import CheckpointError
from cosyui.model.checkpoint import LM_HEAD, fold_weight_norm, load_into, read_state
from cosyui.model.config import ModelConfig
from cosyui.model.cosyvoice3 import load
from cosyui.model.flow import Flow
from cosyui.model.llm import SpeechLM
from cosyui.model.prompt_encoders import SPEAKER_FILE, TOKENIZER_FILE, SpeakerEncoder, SpeechTokenizer
from cosyui.model.vocoder import CausalHiFT
from cosyui.voice_training.encoders import Speaker, Tokenizer, part_of
from cosyui.voice_training.layout import TEMPLATE, model_config
from cosyui.voice_training.onnx_graph import write_speaker, write_tokenizer

_EMBEDDING = "llm.model.model.embed_tokens.weight"
_PLAIN = ("source_downs", "m_source", "f0_predictor.classifier")
"""Layers of the vocoder that have no weight norm in a released file."""


def to_weight_norm(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """A vocoder's plain weights w under the released names: v = w and g = |w| per output channel, so g v / |v| = w."""
    named: dict[str, Tensor] = {}
    for name, value in state.items():
        if name.endswith(".weight") and value.dim() == 3 and not name.startswith(_PLAIN):
            base = name.removesuffix("weight") + "parametrizations.weight."
            norm = value.float().flatten(1).norm(dim=1)[:, None, None]
            named[f"{base}original0"], named[f"{base}original1"] = norm.to(value.dtype), value
        else:
            named[name] = value
    return named


def _halves(state: dict[str, Tensor]) -> dict[str, Tensor]:
    wide = (torch.float32, torch.float64)
    return {name: (value.half() if value.dtype in wide else value).clone() for name, value in state.items()}


def write_networks(run: Path, out: Path, config: ModelConfig) -> None:
    """The three ``.pt`` files. Raises CheckpointError when a state is missing or of other sizes."""
    source = next((run / name for name in ("llm_best.pt", "llm.pt") if (run / name).exists()), run / "llm.pt")
    lm, flow, vocoder = SpeechLM(config.llm), Flow(config.flow), CausalHiFT(config.vocoder)
    load_into(lm, read_state(source), source, torch.float32)
    state = _halves(lm.state_dict())
    # The text model's own head, which inference does not read, is tied to the embedding in this family.
    torch.save(state | {LM_HEAD: state[_EMBEDDING]}, out / "llm.pt")
    load_into(flow, read_state(run / "flow.pt"), run / "flow.pt", torch.float32)
    # Angles of thousands of frames want a full float: the one tensor that is none of the weights.
    frequencies = {name: buffer for name, buffer in flow.state_dict().items() if name.endswith("inv_freq")}
    torch.save(_halves(flow.state_dict()) | frequencies, out / "flow.pt")
    load_into(vocoder, fold_weight_norm(read_state(run / "hift.pt")), run / "hift.pt", torch.float32)
    torch.save(to_weight_norm(_halves(vocoder.state_dict())), out / "hift.pt")


def write_encoders(run: Path, out: Path) -> None:
    """Both ONNX files, checked against torch. Raises CheckpointError where they differ."""
    tokenizer, speaker = Tokenizer().eval(), Speaker().eval()
    tokenizer.load_state_dict(part_of(read_state(run / "tokenizer_full.pt"), "tok."))
    speaker.load_state_dict(part_of(read_state(run / "speaker_full.pt"), "spk."))
    write_tokenizer(tokenizer, out / TOKENIZER_FILE)
    write_speaker(speaker, out / SPEAKER_FILE)
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(1, 128, 397, generator=generator)
    fbank = torch.randn(1, 300, 80, generator=generator)
    with torch.no_grad():
        wanted_ids, wanted_vector = tokenizer.indices(features)[0].numpy(), speaker(fbank)[0].numpy()
    ids = SpeechTokenizer(out / TOKENIZER_FILE)(features[0].numpy())
    vector = SpeakerEncoder(out / SPEAKER_FILE)(fbank[0].numpy())
    same = float((ids == wanted_ids).mean()) if ids.shape == wanted_ids.shape else 0.0
    apart = float(np.abs(vector - wanted_vector).max())
    print(f"ONNX against torch: {same:.1%} of the ids equal, speaker vector apart by {apart:.1e}")
    if same < 0.98 or apart > 0.02:  # weights were rounded to halves: a latent at an edge may round the other way
        raise CheckpointError("checkpoint_corrupt", "The exported ONNX files do not compute what the networks do.")


def export(run: Path, out: Path) -> None:
    """Write the folder ``out`` and load it once as the engine will. Raises CheckpointError."""
    shutil.copytree(TEMPLATE, out, dirs_exist_ok=True)
    write_networks(run, out, model_config())
    write_encoders(run, out)
    model = load(out)
    for name in ("llm", "flow", "vocoder"):
        print(f"{name}: {sum(p.numel() for p in getattr(model, name).parameters()) / 1e6:.2f} M parameters")
    files = [file for file in out.rglob("*") if file.is_file()]
    print(f"{out}: {len(files)} files, {sum(file.stat().st_size for file in files) / 1e6:.1f} MB")


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Write a checkpoint folder in the released layout.")
    parser.add_argument("run", type=Path, help="folder with the trained states")
    parser.add_argument("out", type=Path, help="folder to write, e.g. cosyui/assets/voice")
    args = parser.parse_args(argv)
    try:
        export(args.run, args.out)
    except CheckpointError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
