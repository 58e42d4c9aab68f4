"""Data files to speech ids and speaker vectors: ``python -m cosyui.voice_training.codec --help``.

For every ``data/X.pt`` it writes ``ids/X.npz`` with numpy arrays, so that the LLM's feed needs no torch: ``codes``
(all utterances, flat), ``emb`` (utterances, 192), ``o``/``n`` (first token and count), ``spk``, ``lang``, ``line``,
``text`` (flat) with its bounds ``to``.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import numpy as np
import torch

from cosyui.model.checkpoint import read_state
from cosyui.speech.features import resample, whisper_log_mel
from cosyui.voice_training.cli import add_common, common, data_files
from cosyui.voice_training.encoders import SPEAKER, Speaker, Tokenizer, part_of
from cosyui.voice_training.fbank import fbank
from cosyui.voice_training.layout import SPEECH_CODES, TOKEN_SAMPLES, TOKENS_PER_HOUR, guarded
from cosyui.voice_training.store import Store


class Codec:
    """The two trained encoders on one device."""

    def __init__(self, folder: Path, device: torch.device) -> None:
        """Reads ``tokenizer_full.pt`` and ``speaker_full.pt``. Raises CheckpointError when one is missing."""
        self.device = device
        self.tokenizer, self.speaker = Tokenizer(), Speaker()
        self.tokenizer.load_state_dict(part_of(read_state(folder / "tokenizer_full.pt"), "tok."))
        self.speaker.load_state_dict(part_of(read_state(folder / "speaker_full.pt"), "spk."))
        self.tokenizer.to(device).eval()
        self.speaker.to(device).eval()

    @torch.no_grad()
    def encode(self, file: Path, out: Path, batch: int = 128) -> None:
        """Write the ids of one data file; the file appears whole or not at all."""
        store = Store([file], self.device)
        codes = torch.zeros(int(store.lengths.sum()) // TOKEN_SAMPLES, dtype=torch.int16, device=self.device)
        vectors = torch.zeros(len(store), SPEAKER, device=self.device)
        for utterances, waves in store.equal_lengths(batch):
            wave = resample(waves, 24_000, 16_000, "sinc")
            found = self.tokenizer.indices(whisper_log_mel(wave)).to(torch.int16)
            first = store.offsets[utterances] // TOKEN_SAMPLES
            codes[first[:, None] + torch.arange(found.shape[1], device=self.device)] = found
            vectors[utterances] = self.speaker(fbank(wave))
        lengths = [len(ids) for ids in store.text_ids]
        temporary = out.with_suffix(".tmp")
        with temporary.open("wb") as target:
            np.savez(
                target,
                codes=codes.cpu().numpy(),
                emb=vectors.cpu().numpy(),
                o=(store.offsets // TOKEN_SAMPLES).cpu().numpy(),
                n=(store.lengths // TOKEN_SAMPLES).cpu().numpy(),
                spk=store.voices.cpu().numpy(),
                lang=store.languages.cpu().numpy(),
                line=store.lines.cpu().numpy(),
                text=np.array([number for ids in store.text_ids for number in ids], np.int16),
                to=np.cumsum([0, *lengths]),
            )
        temporary.replace(out)
        print(f"{file.name}: {describe(codes)}", flush=True)


def describe(codes: torch.Tensor) -> str:
    """Hours, ids in use and their perplexity, share of immediate repeats."""
    share = torch.bincount(codes.long().cpu(), minlength=SPEECH_CODES).float() / len(codes)
    perplexity = float(torch.exp(-(share * (share + 1e-12).log()).sum()))
    repeats = float((codes[1:] == codes[:-1]).float().mean())
    hours = len(codes) / TOKENS_PER_HOUR
    return f"{hours:.2f} h, {int((share > 0).sum())} ids, perplexity {perplexity:.0f}, repeats {repeats:.3f}"


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Turn data files into speech ids and speaker vectors.")
    add_common(parser)
    parser.add_argument("--once", action="store_true", help="stop when every data file has its ids")
    args = parser.parse_args(argv)
    shared = common(args)
    shared.ids.mkdir(parents=True, exist_ok=True)
    codec = Codec(shared.out, shared.device)
    while time.time() < shared.until:
        waiting = [
            file
            for file in (*data_files(shared.data), *data_files(shared.data, validation=True))
            if not (shared.ids / f"{file.stem}.npz").exists()
        ]
        for file in waiting:
            codec.encode(file, shared.ids / f"{file.stem}.npz")
        if args.once and not waiting:
            break
        if shared.device.type == "cuda" and waiting:
            torch.cuda.empty_cache()
        time.sleep(1)


if __name__ == "__main__":
    sys.exit(guarded(main))
