"""Train the vocoder: ``python -m cosyui.voice_training.train_vocoder --help``.

Spectral losses and the teacher's pitch first, discriminators from ``--gan`` seconds on. Weights are plain here; export
writes them as weight norm pairs with g = |v|.
"""

from __future__ import annotations

import argparse
import copy
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from cosyui.model.vocoder import CausalHiFT
from cosyui.voice_training.cli import Common, add_common, common, data_files, drop_gradients, load_weights, with_ids
from cosyui.voice_training.discriminators import Discriminators, fool_loss, judge_loss
from cosyui.voice_training.layout import FRAME_SAMPLES, guarded, model_config
from cosyui.voice_training.run import Plan, Run
from cosyui.voice_training.spectral import distance
from cosyui.voice_training.starting_weights import init_vocoder
from cosyui.voice_training.store import Store

NAME = "hift"
FIRST, BEHIND = 10, 4
"""Frames at the edges of a cut whose sound is not judged: they lack what lies to the left, and the look-ahead."""
PITCH_FIRST = 8
OWN_PITCH_AFTER = 1500
"""Steps with the teacher's pitch as source; then the network's own, as in use."""
DISCRIMINATOR_RATE = 4e-4


@dataclass(frozen=True)
class Batch:
    """``mel`` (B, 80, T), ``f0`` (B, T) Hz, ``wave`` (B, (T - 14) * 480): the part that is judged."""

    mel: Tensor
    f0: Tensor
    wave: Tensor


class Material:
    def __init__(self, files: Sequence[Path], device: torch.device, frames: int) -> None:
        self.store, self.frames = Store(files, device), frames
        self.mel = self.store.mels()
        self.long_enough = (self.store.lengths >= (frames + 4) * FRAME_SAMPLES).nonzero()[:, 0]

    def draw(self, batch: int) -> Batch:
        store, device = self.store, self.store.device
        chosen = self.long_enough[torch.randint(len(self.long_enough), (batch,), device=device)]
        room = store.lengths[chosen] // FRAME_SAMPLES - self.frames
        start = (torch.rand(batch, device=device) * room).long()
        index = (store.offsets[chosen] // FRAME_SAMPLES + start)[:, None] + torch.arange(self.frames, device=device)
        wave = store.crop(chosen, start * FRAME_SAMPLES, self.frames * FRAME_SAMPLES)[0]
        return Batch(self.mel[index].float().transpose(1, 2), store.f0[index].float(), judged_part(wave))


def judged_part(wave: Tensor) -> Tensor:
    """(B, T * 480) without the edges."""
    return wave[:, FIRST * FRAME_SAMPLES : wave.shape[1] - BEHIND * FRAME_SAMPLES]


def make(model: CausalHiFT, batch: Batch, mixed: torch.autocast, *, own_pitch: bool) -> tuple[Tensor, Tensor]:
    """The judged part of the wave, and the pitch loss: mean error in units of 50 Hz, at most 8."""
    frames = batch.mel.shape[2]
    f0 = model.f0_predictor(batch.mel)
    error = ((f0 - batch.f0).abs() / 50)[:, PITCH_FIRST : frames - BEHIND].clamp(max=8).mean()
    source = model.source(f0.detach() if own_pitch else batch.f0)
    lengths = torch.full((len(batch.mel),), frames, device=batch.mel.device)
    with mixed:
        wave = model.decode(batch.mel, source, lengths)
    return judged_part(wave.float()), error


@torch.no_grad()
def validate(model: CausalHiFT, batches: Sequence[Batch], mixed: torch.autocast) -> tuple[float, float]:
    """Mean log-mel distance and pitch loss, with the network's own pitch."""
    mel = f0 = 0.0
    for batch in batches:
        wave, error = make(model, batch, mixed, own_pitch=True)
        mel += float(distance(wave, batch.wave)[0])
        f0 += float(error)
    return mel / len(batches), f0 / len(batches)


class Game:
    """Vocoder against discriminators: one step of both."""

    def __init__(self, model: CausalHiFT, device: torch.device, mixed: torch.autocast) -> None:
        self.model, self.mixed = model, mixed
        self.judges = Discriminators().to(device)
        self.optimizer = torch.optim.AdamW(
            self.judges.parameters(), lr=DISCRIMINATOR_RATE, betas=(0.8, 0.99), fused=device.type == "cuda"
        )

    def losses(self, batch: Batch, *, own_pitch: bool, share: float | None) -> tuple[Tensor, dict[str, Tensor]]:
        """The vocoder's loss and its terms. With ``share`` (of the run) the discriminators play, and learn, too."""
        # The source noise is drawn anew for each step, so that the network does not learn one stretch of it.
        self.model.noise = torch.rand(batch.mel.shape[2] * FRAME_SAMPLES, self.model.harmonics, device=batch.mel.device)
        wave, f0 = make(self.model, batch, self.mixed, own_pitch=own_pitch)
        mel, spectrum = distance(wave, batch.wave)
        terms = {"mel": mel, "stft": spectrum, "f0": f0}
        loss = 15 * mel + 3 * spectrum + f0
        if share is not None:
            with self.mixed:
                judged, true = judge_loss(self.judges, batch.wave, wave)
            self._learn(judged, share)
            with self.mixed:
                adversarial, features = fool_loss(self.judges, wave, true)
            loss = loss + 2.0 * adversarial + 4.0 * features
            terms |= {"judge": judged, "fool": adversarial, "features": features}
        return loss, terms

    def _learn(self, loss: Tensor, share: float) -> None:
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        for group in self.optimizer.param_groups:
            group["lr"] = DISCRIMINATOR_RATE * (1 - 0.9 * share)
        norm = torch.nn.utils.clip_grad_norm_(self.judges.parameters(), 10.0)
        if bool(torch.isfinite(norm)):
            self.optimizer.step()

    def warm_up(self, size: int, frames: int) -> None:
        """Compile the residual blocks on noise, before the data is there; no weight changes."""
        for block in (*self.model.resblocks, *self.model.source_resblocks):
            block.compile(dynamic=False)
        device = self.model.window.device
        mel = torch.randn(size, self.model.config.in_channels, frames, device=device) - 5
        wave = judged_part(torch.randn(size, frames * FRAME_SAMPLES, device=device) * 0.1)
        batch = Batch(mel, torch.full((size, frames), 120.0, device=device), wave)
        loss, _ = self.losses(batch, own_pitch=False, share=None)
        loss.backward()  # type: ignore[no-untyped-call]
        drop_gradients(self.model)
        print("hift: shapes ready", flush=True)


def train(args: argparse.Namespace, shared: Common) -> None:
    model = CausalHiFT(model_config().vocoder)
    init_vocoder(model)
    load_weights(model, shared.init)
    model.to(shared.device)
    torch.backends.cudnn.benchmark = shared.device.type == "cuda"
    judged = copy.deepcopy(model).eval()
    game = Game(model, shared.device, shared.mixed)
    if shared.compiled:
        game.warm_up(args.batch, args.frames)
    shared.wait_for_go()
    material = Material(with_ids(shared)[0], shared.device, args.frames)
    files = data_files(shared.data, validation=True)
    held_out = Material(files, shared.device, args.frames) if files else None
    fixed = [held_out.draw(args.batch) for _ in range(4)] if held_out else []
    plan = Plan(NAME, shared.out, shared.until, args.lr, shared.max_steps, 500, (0.8, 0.99), weight_decay=0.0)
    run = Run(model, plan, {"judges": game.judges, "optimizer": game.optimizer})
    validated = 0.0
    while not run.done():
        share = run.share if run.elapsed > args.gan else None
        own_pitch = run.step > OWN_PITCH_AFTER or shared.init is not None
        loss, terms = game.losses(material.draw(args.batch), own_pitch=own_pitch, share=share)
        run.update(loss, **terms)
        if fixed and time.time() - validated > args.validate_every:
            validated = time.time()
            run.averaged_into(judged)
            mel, f0 = validate(judged, fixed, shared.mixed)
            run.say(f"VAL mel {mel:.4f} f0 {f0:.4f}")
    run.save()


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Train the vocoder from mel to wave.")
    add_common(parser)
    parser.add_argument("--batch", type=int, default=24, help="cuts in a batch")
    parser.add_argument("--frames", type=int, default=64, help="mel frames of a cut (50 a second)")
    parser.add_argument("--gan", type=float, default=30.0, help="seconds after which the discriminators play")
    parser.add_argument("--lr", type=float, default=4e-4, help="highest learning rate")
    parser.add_argument("--validate-every", type=float, default=90.0, help="seconds between validations")
    args = parser.parse_args(argv)
    train(args, common(args))


if __name__ == "__main__":
    sys.exit(guarded(main))
