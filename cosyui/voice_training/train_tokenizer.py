"""Train the speech tokenizer: ``python -m cosyui.voice_training.train_tokenizer --help``."""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from cosyui.speech.features import mel_24k, resample, whisper_log_mel
from cosyui.voice_training.augment import channel, noisy
from cosyui.voice_training.cli import Common, add_common, common, data_files, load_weights
from cosyui.voice_training.encoders import TokenizerTrainer
from cosyui.voice_training.layout import FRAME_SAMPLES, TOKEN_SAMPLES, guarded
from cosyui.voice_training.run import Plan, Run
from cosyui.voice_training.store import Store

NAME = "tokenizer_full"


@dataclass(frozen=True)
class Batch:
    """``features`` (B, 128, 4N); ``valid`` (B, N), ``voiced``, ``pitch``, ``frames`` (B, 2N): masks and targets."""

    features: Tensor
    lengths: Tensor
    style: Tensor
    mel: Tensor
    phonemes: Tensor
    tones: Tensor
    pitch: Tensor
    valid: Tensor
    frames: Tensor
    voiced: Tensor


class Batches:
    def __init__(self, store: Store, size: int, tokens: int) -> None:
        self.store, self.size, self.tokens = store, size, tokens
        styles = store.styles.float()
        self.styles = (styles - styles.mean(0)) / (styles.std(0) + 1e-3)

    @torch.no_grad()
    def draw(self) -> Batch:
        """Random cuts of random utterances; pitch is log F0 / 0.3 about its mean over the cut."""
        store, tokens, device = self.store, self.tokens, self.store.device
        chosen = torch.randint(len(store), (self.size,), device=device)
        room = (store.lengths[chosen] // TOKEN_SAMPLES - tokens + 1).clamp(min=1)
        start = (torch.rand(self.size, device=device) * room).long()
        wave, samples = store.crop(chosen, start * TOKEN_SAMPLES, tokens * TOKEN_SAMPLES)
        valid = torch.arange(tokens, device=device) < (samples // TOKEN_SAMPLES)[:, None]
        frames = valid.repeat_interleave(2, 1)
        first = store.offsets[chosen] // TOKEN_SAMPLES + start
        at_tokens = (first[:, None] + torch.arange(tokens, device=device)).clamp(max=len(store.phonemes) - 1)
        at_frames = (2 * first[:, None] + torch.arange(2 * tokens, device=device)).clamp(max=len(store.f0) - 1)
        f0 = store.f0[at_frames].float()
        voiced = (f0 > 0) & frames
        log_f0 = torch.log(f0.clamp(min=30))
        mean = (log_f0 * voiced).sum(1, keepdim=True) / voiced.sum(1, keepdim=True).clamp(min=1)
        features = whisper_log_mel(resample(noisy(wave), 24_000, 16_000, "sinc"))
        return Batch(
            features=features + channel(self.size, 128, device, 0.12)[:, :, None],
            lengths=samples // (FRAME_SAMPLES // 2),
            style=self.styles[chosen],
            mel=mel_24k(wave),
            phonemes=store.phonemes[at_tokens].long(),
            tones=store.tones[at_tokens].long(),
            pitch=(log_f0 - mean) / 0.3,
            valid=valid,
            frames=frames,
            voiced=voiced,
        )


def _mean(values: Tensor, where: Tensor) -> Tensor:
    return (values * where).sum() / where.sum().clamp(min=1)


def losses(model: TokenizerTrainer, batch: Batch, mixed: torch.autocast) -> dict[str, Tensor]:
    """The five terms and the frame accuracy of the phonemes; the total is `total`."""
    with mixed:
        phonemes, tones, pitch, mel = model(batch.features, batch.lengths, batch.style)
    phonemes, tones, pitch, mel = phonemes.float(), tones.float(), pitch.float(), mel.float()
    size, tokens = batch.valid.shape
    by_frame = pitch.transpose(1, 2).reshape(size, 2 * tokens, 2)
    rebuilt = mel.transpose(1, 2).reshape(size, 2 * tokens, 80).transpose(1, 2)
    voicing = F.binary_cross_entropy_with_logits(by_frame[..., 1], batch.voiced.float(), reduction="none")
    return {
        "phoneme": _mean(F.cross_entropy(phonemes, batch.phonemes, reduction="none"), batch.valid),
        "tone": _mean(F.cross_entropy(tones, batch.tones, reduction="none"), batch.valid),
        "pitch": _mean((by_frame[..., 0] - batch.pitch).abs(), batch.voiced),
        "voicing": _mean(voicing, batch.frames),
        "mel": _mean((rebuilt - batch.mel).abs().mean(1), batch.frames),
        "accuracy": _mean((phonemes.argmax(1) == batch.phonemes).float(), batch.valid).detach(),
    }


def total(terms: dict[str, Tensor]) -> Tensor:
    return (
        terms["phoneme"]
        + 0.5 * terms["tone"]
        + 0.5 * terms["pitch"]
        + 0.2 * terms["voicing"]
        + 0.5 * terms["mel"]
    )  # fmt: skip


def train(args: argparse.Namespace, shared: Common) -> None:
    model = TokenizerTrainer().to(shared.device)
    load_weights(model, shared.init)
    shared.wait_for_go()
    batches = Batches(Store(data_files(shared.data), shared.device), args.batch, args.tokens)
    plan = Plan(NAME, shared.out, shared.until, args.lr, max_steps=shared.max_steps, weight_decay=0.02)
    run = Run(model, plan)
    while not run.done():
        terms = losses(model, batches.draw(), shared.mixed)
        run.update(total(terms), **terms)
    run.save()


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Train the speech tokenizer on the teacher's frame labels.")
    add_common(parser)
    parser.add_argument("--batch", type=int, default=128, help="cuts in a batch")
    parser.add_argument("--tokens", type=int, default=96, help="speech tokens of a cut (25 a second)")
    parser.add_argument("--lr", type=float, default=1.5e-3, help="highest learning rate")
    args = parser.parse_args(argv)
    train(args, common(args))


if __name__ == "__main__":
    sys.exit(guarded(main))
