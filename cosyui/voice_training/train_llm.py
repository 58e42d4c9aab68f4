"""Train the speech-token LLM: ``python -m cosyui.voice_training.train_llm --help``.

Validation is on sentences and voices that training never sees; the averaged weights of the best validation stay in
``llm_best.pt`` beside the last ones in ``llm.pt``.
"""

from __future__ import annotations

import argparse
import copy
import sys
import time
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cosyui.model.llm import DecoderLayer, SpeechLM
from cosyui.voice_training.cli import Common, add_common, common, drop_gradients, load_weights
from cosyui.voice_training.feed import Batch, rows_of, validation_batches
from cosyui.voice_training.feed_process import FeedReader
from cosyui.voice_training.instructions import prompt_ids
from cosyui.voice_training.layout import EOS, TOKENS_PER_HOUR, guarded, model_config, text_tokenizer
from cosyui.voice_training.run import Plan, Run
from cosyui.voice_training.starting_weights import init_llm

NAME = "llm"


class LLMTrainer(nn.Module):
    """`SpeechLM` with dropout: on the embedded rows and on what attention and MLP add to the residual stream."""

    def __init__(self, lm: SpeechLM, dropout: float) -> None:
        super().__init__()
        self.lm, self.dropout = lm, dropout
        if dropout:
            for layer in self.layers():
                layer.self_attn.register_forward_hook(self._drop)
                layer.mlp.register_forward_hook(self._drop)

    def layers(self) -> list[DecoderLayer]:
        return [layer for layer in self.lm.qwen.layers if isinstance(layer, DecoderLayer)]

    def _drop(self, module: nn.Module, inputs: Any, output: Tensor) -> Tensor:
        return F.dropout(output, self.dropout, module.training)

    def forward(self, kind: Tensor, ids: Tensor) -> Tensor:
        """``kind`` (B, L): 1 = ``ids`` is a row of the speech table, 0 = of the text table -> hidden (B, L, hidden)."""
        rows = torch.where(kind[..., None] == 1, self.lm.embed_speech(ids * kind), self.lm.embed_text(ids * (1 - kind)))
        out: Tensor = self.lm(F.dropout(rows, self.dropout, self.training))
        return out

    def logits(self, kind: Tensor, ids: Tensor, targets: Tensor, mixed: torch.autocast) -> tuple[Tensor, Tensor]:
        """Logits (N, speech_vocab) float32 at the N positions that have a target, and those targets (N,)."""
        chosen = targets >= 0
        with mixed:
            logits = self.lm.logits(self(kind, ids)[chosen])
        return logits, targets[chosen]


def on_device(batch: Batch, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """``kind``, ``ids``, ``targets`` as int64 tensors."""
    arrays = (batch.kind, batch.ids, batch.targets)
    kind, ids, targets = (torch.tensor(array, dtype=torch.int16).to(device).long() for array in arrays)
    return kind, ids, targets


@torch.no_grad()
def validate(model: LLMTrainer, batches: Sequence[Batch], shared: Common) -> dict[str, float]:
    """Mean cross-entropy (``loss``), share of right tokens, and the probability of the stop where it is due."""
    tokens = loss = right = stops = stop_share = 0.0
    for batch in batches:
        logits, targets = model.logits(*on_device(batch, shared.device), shared.mixed)
        tokens += len(targets)
        loss += float(F.cross_entropy(logits, targets, reduction="sum"))
        right += float((logits.argmax(-1) == targets).sum())
        due = targets == EOS
        stops += float(due.sum())
        stop_share += float(logits[due].softmax(-1)[:, EOS].sum())
    return {"loss": loss / tokens, "accuracy": right / tokens, "stop": stop_share / max(1.0, stops)}


def compile_layers(model: LLMTrainer, budget: int, shared: Common) -> None:
    """Compile the layers for the shape of every bucket, once each, before the data is there."""
    for layer in model.layers():
        layer.compile(dynamic=False)
    for length, rows in rows_of(budget).items():
        kind = torch.ones(rows, length, dtype=torch.int64, device=shared.device)
        kind[:, 1:40] = 0
        ids = torch.randint(0, 500, (rows, length), device=shared.device)
        logits, targets = model.logits(kind, ids, ids, shared.mixed)
        F.cross_entropy(logits, targets).backward()  # type: ignore[no-untyped-call]
        drop_gradients(model)
        print(f"llm: {rows} x {length} ready", flush=True)


def train(args: argparse.Namespace, shared: Common) -> None:
    lm = SpeechLM(model_config().llm)
    init_llm(lm)
    load_weights(lm, shared.init)
    model = LLMTrainer(lm, args.dropout).to(shared.device)
    judged = copy.deepcopy(model).eval()
    if shared.compiled:
        compile_layers(model, args.budget, shared)
    shared.wait_for_go()
    plan = Plan(NAME, shared.out, shared.until, args.lr, shared.max_steps, args.warm_up, (0.9, 0.98), weight_decay=0.1)
    run = Run(model.lm, plan)
    batches = validation_batches(shared.ids, prompt_ids(text_tokenizer()))
    feed = FeedReader(shared.ids, args.budget, args.workers, args.seed + run.step)
    validated, hours = time.time(), 0.0

    def check() -> None:
        run.averaged_into(judged.lm)
        found = validate(judged, batches, shared)
        best = " best" if run.keep_best(found["loss"]) else ""
        run.say("VAL " + " ".join(f"{key} {value:.4f}" for key, value in found.items()) + f"{best} of {hours:.1f} h")

    while not run.done():
        batch = feed.next()
        hours = batch.codes / TOKENS_PER_HOUR
        logits, targets = model.logits(*on_device(batch, shared.device), shared.mixed)
        accuracy = (logits.argmax(-1) == targets).float().mean()
        run.update(F.cross_entropy(logits, targets), accuracy=accuracy)
        if batches and time.time() - validated > args.validate_every:
            check()
            validated = time.time()
    if batches:
        check()
    run.save()
    feed.close()


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Train the speech-token LLM on text ids and speech ids.")
    add_common(parser)
    parser.add_argument("--budget", type=int, default=49_152, help="positions (text ids and speech tokens) of a batch")
    parser.add_argument("--dropout", type=float, default=0.1, help="share of values dropped")
    parser.add_argument("--workers", type=int, default=3, help="feed processes")
    parser.add_argument("--lr", type=float, default=1.5e-3, help="highest learning rate")
    parser.add_argument("--warm-up", type=int, default=500, help="steps until that rate")
    parser.add_argument("--validate-every", type=float, default=40.0, help="seconds between validations")
    args = parser.parse_args(argv)
    train(args, common(args))


if __name__ == "__main__":
    sys.exit(guarded(main))
