"""Train the flow: ``python -m cosyui.voice_training.train_flow --help``.

Stretches of several utterances of one voice, a random part of them as prompt; half of the steps use the streaming
mask; speaker, tokens and prompt are dropped together for classifier-free guidance (arXiv:2207.12598).
"""

from __future__ import annotations

import argparse
import copy
import math
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cosyui.model.dit import attention_mask
from cosyui.model.flow import Flow
from cosyui.voice_training.cli import Common, add_common, common, drop_gradients, load_weights, with_ids
from cosyui.voice_training.layout import guarded, model_config
from cosyui.voice_training.run import Plan, Run
from cosyui.voice_training.starting_weights import init_flow
from cosyui.voice_training.store import Store, timeline

NAME = "flow"
SIGMA_MIN = 1e-6
DROPPED = 0.2
"""Share of rows trained without any condition."""
PROMPTED, LONGEST_PROMPT = 0.75, 0.7
"""Share of rows with a prompt, and the largest part of a row it takes."""


@dataclass(frozen=True)
class Batch:
    """``mel`` (B, 80, 2N) float32, ``tokens`` (B, N) int64, ``speakers`` (B, 192)."""

    mel: Tensor
    tokens: Tensor
    speakers: Tensor


class Material:
    """Mels, tokens and speaker vectors of some data files, flat on the device (the waves are let go)."""

    def __init__(self, files: Sequence[Path], ids: Sequence[dict[str, NDArray[Any]]], device: torch.device) -> None:
        self.store = Store(files, device)
        self.mel = self.store.mels()
        self.store.wave = torch.empty(0, dtype=torch.int16, device=device)
        self.tokens = torch.from_numpy(np.concatenate([part["codes"] for part in ids])).to(device)
        self.speakers = torch.from_numpy(np.concatenate([part["emb"] for part in ids])).to(device)
        assert 2 * len(self.tokens) == len(self.mel), "id files do not belong to the data files"

    def draw(self, batch: int, tokens: int) -> Batch:
        """The speaker vector is that of any utterance in the stretch, as a prompt's would be."""
        device = self.store.device
        index, utterances = timeline(self.store, batch, tokens)
        frames = (2 * index[:, :, None] + torch.arange(2, device=device)).reshape(batch, -1)
        pick = torch.randint(utterances.shape[1], (batch, 1), device=device)
        speakers = self.speakers[utterances.gather(1, pick)[:, 0]]
        return Batch(self.mel[frames].float().transpose(1, 2), self.tokens[index].long(), speakers)


@dataclass(frozen=True)
class Draws:
    """The random part of a loss: ``prompt`` (B,) frames, ``keep`` (B, 1) 0 or 1, ``t`` (B,), ``noise`` as the mel."""

    prompt: Tensor
    keep: Tensor
    t: Tensor
    noise: Tensor


def random_draws(batch: Batch, generator: torch.Generator | None = None) -> Draws:
    size, tokens = batch.tokens.shape
    device = batch.mel.device

    def uniform() -> Tensor:
        return torch.rand(size, device=device, generator=generator)

    prompt = (uniform() * LONGEST_PROMPT * tokens).long() * 2 * (uniform() < PROMPTED)
    keep = (uniform() >= DROPPED).float()[:, None]
    t = 1 - torch.cos(uniform() * 0.5 * math.pi)
    return Draws(prompt, keep, t, torch.randn(batch.mel.shape, device=device, generator=generator))


def loss_of(model: Flow, batch: Batch, draws: Draws, mask: Tensor | None, mixed: torch.autocast) -> Tensor:
    """Mean squared error of the velocity over the frames behind the prompt."""
    frames = batch.mel.shape[2]
    in_prompt = torch.arange(frames, device=batch.mel.device) < draws.prompt[:, None]
    t, keep = draws.t[:, None, None], draws.keep
    noisy = (1 - (1 - SIGMA_MIN) * t) * draws.noise + t * batch.mel
    lengths = torch.full((len(batch.tokens),), batch.tokens.shape[1], device=batch.mel.device)
    with mixed:
        mu = model.encode(batch.tokens, lengths).float() * keep[:, :, None]
        speaker = model.project_speaker(batch.speakers).float() * keep
        cond = batch.mel * in_prompt[:, None] * keep[:, :, None]
        velocity = model.estimator(noisy, mu, draws.t, speaker, cond, mask)
    wanted = batch.mel - (1 - SIGMA_MIN) * draws.noise
    weight = (~in_prompt)[:, None].float()
    error: Tensor = (velocity.float() - wanted) ** 2 * weight
    return error.sum() / (weight.sum() * batch.mel.shape[1])


@torch.no_grad()
def validate(model: Flow, batches: Sequence[Batch], masks: Sequence[Tensor | None], shared: Common) -> float:
    """Mean loss with draws that are the same every time."""
    generator = torch.Generator(shared.device).manual_seed(7)
    losses = [
        float(loss_of(model, batch, random_draws(batch, generator), mask, shared.mixed))
        for batch in batches
        for mask in masks
    ]
    return sum(losses) / len(losses)


def compile_blocks(model: Flow, size: int, tokens: int, masks: Sequence[Tensor | None], shared: Common) -> None:
    for block in model.estimator.transformer_blocks:
        block.compile(dynamic=False)
    config = model.config
    mel = torch.randn(size, config.mel_dim, tokens * config.token_mel_ratio, device=shared.device)
    ids = torch.randint(0, config.vocab_size, (size, tokens), device=shared.device)
    batch = Batch(mel, ids, torch.randn(size, config.spk_dim, device=shared.device))
    for mask in masks:
        loss_of(model, batch, random_draws(batch), mask, shared.mixed).backward()  # type: ignore[no-untyped-call]
    drop_gradients(model)
    print("flow: shapes ready", flush=True)


def train(args: argparse.Namespace, shared: Common) -> None:
    model = Flow(model_config().flow)
    init_flow(model)
    load_weights(model, shared.init)
    model.to(shared.device)
    judged = copy.deepcopy(model).eval()
    block = attention_mask(None, 2 * args.tokens, model.config.chunk_frames, shared.device)
    masks = (None, block)
    if shared.compiled:
        compile_blocks(model, args.batch, args.tokens, masks, shared)
    shared.wait_for_go()
    material = Material(*with_ids(shared), shared.device)
    files, ids = with_ids(shared, validation=True)
    held_out = Material(files, ids, shared.device) if files else None
    fixed = [held_out.draw(args.batch, args.tokens) for _ in range(3)] if held_out else []
    plan = Plan(NAME, shared.out, shared.until, args.lr, shared.max_steps, warm_up=500, ema=0.9995)
    run = Run(model, plan)
    validated = 0.0
    while not run.done():
        batch = material.draw(args.batch, args.tokens)
        run.update(loss_of(model, batch, random_draws(batch), masks[run.step % 2], shared.mixed))
        if fixed and time.time() - validated > args.validate_every:
            validated = time.time()
            run.averaged_into(judged)
            run.say(f"VAL loss {validate(judged, fixed, masks, shared):.4f}")
    run.save()


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Train the flow from speech ids and speaker vectors to mel.")
    add_common(parser)
    parser.add_argument("--batch", type=int, default=48, help="stretches in a batch")
    parser.add_argument("--tokens", type=int, default=300, help="speech tokens of a stretch (25 a second)")
    parser.add_argument("--lr", type=float, default=5e-4, help="highest learning rate")
    parser.add_argument("--validate-every", type=float, default=60.0, help="seconds between validations")
    args = parser.parse_args(argv)
    train(args, common(args))


if __name__ == "__main__":
    sys.exit(guarded(main))
