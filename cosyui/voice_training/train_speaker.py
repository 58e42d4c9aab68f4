"""Train the speaker encoder: ``python -m cosyui.voice_training.train_speaker --help``.

Two clips of one made-up voice must be nearest among a batch of voices (InfoNCE, van den Oord et al., 2018,
arXiv:1807.03748), and the teacher's voice vector must be readable from the result.
"""

from __future__ import annotations

import argparse
import sys

import torch
import torch.nn.functional as F
from torch import Tensor

from cosyui.speech.features import resample
from cosyui.voice_training.augment import channel, noisy
from cosyui.voice_training.cli import Common, add_common, common, data_files, load_weights
from cosyui.voice_training.encoders import SpeakerTrainer
from cosyui.voice_training.fbank import fbank
from cosyui.voice_training.layout import guarded
from cosyui.voice_training.run import Plan, Run
from cosyui.voice_training.store import PER_VOICE, Store

NAME = "speaker_full"


@torch.no_grad()
def draw(store: Store, voices: int, samples: int, *, shorter: bool) -> tuple[Tensor, Tensor]:
    """Two clips each of ``voices`` voices: filter banks (2V, T, 80), the second clips behind the first, and utterances.

    With ``shorter`` all are cut to one random length, so that short prompts are seen too.
    """
    device = store.device
    rows = store.table[torch.randperm(len(store.table), device=device)[:voices]]
    pair = torch.rand(voices, PER_VOICE, device=device).argsort(1)[:, :2]
    chosen = rows.gather(1, pair).T.reshape(-1)
    start = (torch.rand(2 * voices, device=device) * (store.lengths[chosen] - samples).clamp(min=1)).long()
    wave, valid = store.crop(chosen, start, samples)
    # Short clips repeat instead of ending in silence.
    wave = wave.gather(1, torch.arange(samples, device=device) % valid.clamp(min=4800)[:, None])
    features = fbank(noisy(resample(wave, 24_000, 16_000, "sinc")))
    features = features + channel(2 * voices, 80, device, 0.25)[:, None]
    if shorter:
        frames = int(torch.randint(80, 220, (1,))) // 20 * 20
        features = features[:, :frames] - features[:, :frames].mean(1, keepdim=True)
    return features, chosen


def losses(model: SpeakerTrainer, features: Tensor, styles: Tensor, mixed: torch.autocast) -> dict[str, Tensor]:
    """InfoNCE both ways, squared error of the voice vector, and how often the right voice was nearest."""
    with mixed:
        unit, read = model(features)
    first, second = unit.float().chunk(2)
    similarity = first @ second.T * model.t.exp()
    right = torch.arange(len(first), device=features.device)
    return {
        "nce": (F.cross_entropy(similarity, right) + F.cross_entropy(similarity.T, right)) / 2,
        "style": F.mse_loss(read.float(), styles),
        "accuracy": (similarity.argmax(1) == right).float().mean(),
    }


def train(args: argparse.Namespace, shared: Common) -> None:
    model = SpeakerTrainer().to(shared.device)
    load_weights(model, shared.init)
    shared.wait_for_go()
    store = Store(data_files(shared.data), shared.device)
    styles = store.styles.float()
    styles = (styles - styles.mean(0)) / (styles.std(0) + 1e-3)
    plan = Plan(NAME, shared.out, shared.until, args.lr, max_steps=shared.max_steps, weight_decay=0.02)
    run = Run(model, plan)
    voices = min(args.voices, len(store.table))
    while not run.done():
        features, chosen = draw(store, voices, args.samples, shorter=run.step % 2 == 1)
        terms = losses(model, features, styles[chosen], shared.mixed)
        run.update(terms["nce"] + 0.5 * terms["style"], **terms)
    run.save()


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Train the speaker encoder on the teacher's made-up voices.")
    add_common(parser)
    parser.add_argument("--voices", type=int, default=256, help="voices in a batch, two clips each")
    parser.add_argument("--samples", type=int, default=60_000, help="24 kHz samples of a clip")
    parser.add_argument("--lr", type=float, default=1e-3, help="highest learning rate")
    args = parser.parse_args(argv)
    train(args, common(args))


if __name__ == "__main__":
    sys.exit(guarded(main))
