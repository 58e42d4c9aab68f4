"""A time-boxed optimiser loop: schedule by the share of time used, clipping, EMA, atomic checkpoints, resume."""

from __future__ import annotations

import math
import time
from collections import defaultdict, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn

SHOWN = 100
"""Steps that a printed figure is the mean of."""


class Stateful(Protocol):
    """What is saved beside the network so that a run can go on: a discriminator, its optimiser."""

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state_dict: dict[str, Any]) -> Any: ...


@dataclass(frozen=True)
class Plan:
    """One run. ``until``: unix time at which it ends; ``max_steps`` ends it earlier; ``ema`` 0 = none.

    The learning rate rises over ``warm_up`` steps and falls by a cosine of elapsed time to ``floor`` times itself.
    """

    name: str
    out: Path
    until: float
    learning_rate: float
    max_steps: int = 0
    warm_up: int = 300
    betas: tuple[float, float] = (0.9, 0.99)
    weight_decay: float = 0.01
    ema: float = 0.999
    floor: float = 0.02
    save_every: float = 75.0
    log_every: int = 200


@dataclass
class Progress:
    """What a checkpoint remembers of the loop. ``elapsed`` in seconds, over all starts of the run."""

    step: int = 0
    elapsed: float = 0.0
    best: float = math.inf
    skipped: int = 0
    figures: dict[str, deque[Tensor]] = field(default_factory=lambda: defaultdict(lambda: deque(maxlen=SHOWN)))


class Run:
    """Owns the optimiser and the averaged weights of ``model``; the caller computes losses."""

    def __init__(self, model: nn.Module, plan: Plan, beside: Mapping[str, Stateful] | None = None) -> None:
        """Goes on from ``out/full/NAME.pt`` if that exists; ``beside`` is saved and restored with the network."""
        self.model, self.plan, self.beside = model, plan, dict(beside or {})
        self.named = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
        self.parameters = [p for _, p in self.named]
        self.optimizer = torch.optim.AdamW(
            self.parameters,
            lr=plan.learning_rate,
            betas=plan.betas,
            weight_decay=plan.weight_decay,
            fused=self.parameters[0].is_cuda,
        )
        self.averages = [p.detach().clone() for p in self.parameters] if plan.ema else []
        self.progress = Progress()
        self.began = self.saved = self.beaten = time.time()
        self.full = plan.out / "full" / f"{plan.name}.pt"
        self.full.parent.mkdir(parents=True, exist_ok=True)
        if self.full.exists():
            self._resume()

    @property
    def step(self) -> int:
        return self.progress.step

    @property
    def elapsed(self) -> float:
        """Seconds of training, those before a restart included."""
        return self.progress.elapsed + time.time() - self.began

    @property
    def share(self) -> float:
        """Share of the run that is over, 0 .. 1: by time, or by steps where ``max_steps`` ends it earlier."""
        by_time = self.elapsed / max(1e-9, self.elapsed + self.plan.until - time.time())
        by_steps = self.step / self.plan.max_steps if self.plan.max_steps else 0.0
        return min(1.0, max(by_time, by_steps))

    def done(self) -> bool:
        return time.time() >= self.plan.until or 0 < self.plan.max_steps <= self.step

    def update(self, loss: Tensor, **figures: Tensor) -> None:
        """One optimiser step. A batch with a bad gradient is left out: it must not end a run."""
        plan, progress = self.plan, self.progress
        cosine = 0.5 * (1 + math.cos(math.pi * self.share))
        rate = plan.learning_rate * min(1, (self.step + 1) / plan.warm_up) * (plan.floor + (1 - plan.floor) * cosine)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        norm = torch.nn.utils.clip_grad_norm_(self.parameters, 1.0)
        progress.step += 1
        if bool(torch.isfinite(norm)):
            self.optimizer.step()
            self._average()
            for name, value in {**figures, "loss": loss}.items():
                progress.figures[name].append(value.detach())
        else:
            progress.skipped += 1
        self._report()
        if time.time() - self.saved > plan.save_every:
            self.save()

    def averaged_into(self, copy: nn.Module) -> None:
        """Give ``copy`` (same class as the network) the averaged weights, for validation."""
        target = dict(copy.named_parameters())
        with torch.no_grad():
            for (name, p), average in zip(self.named, self.averages or self.parameters, strict=True):
                target[name].copy_(average if self.averages else p)

    def state(self) -> dict[str, Tensor]:
        """Averaged weights in half precision on the CPU, under the network's tensor names; buffers as they are."""
        state = {name: value.detach().clone() for name, value in self.model.state_dict().items()}
        for (name, weight), average in zip(self.named, self.averages or self.parameters, strict=True):
            state[name] = (average if self.averages else weight).detach().half()
        return {name: value.cpu() for name, value in state.items()}

    def save(self) -> None:
        """``NAME.pt`` (averaged, for export) and ``full/NAME.pt`` (everything, to go on after a crash)."""
        self.saved = time.time()
        state = self.state()
        if not all(bool(torch.isfinite(value).all()) for value in state.values()):
            self.say("NOT SAVED: weights are not finite")
            return
        write_atomically(state, self.plan.out / f"{self.plan.name}.pt")
        everything = {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "averages": self.averages,
            "step": self.step,
            "elapsed": self.elapsed,
            "best": self.progress.best,
            "beside": {name: part.state_dict() for name, part in self.beside.items()},
        }
        write_atomically(everything, self.full)

    def keep_best(self, validation: float) -> bool:
        """Write ``NAME_best.pt`` if ``validation`` (lower is better) is the lowest so far."""
        if validation >= self.progress.best:
            return False
        self.progress.best = validation
        write_atomically(self.state(), self.plan.out / f"{self.plan.name}_best.pt")
        return True

    def say(self, text: str) -> None:
        print(f"{self.plan.name} {self.step} {self.elapsed:.0f}s {text}", flush=True)

    def _average(self) -> None:
        if self.averages:
            # Young averages forget fast: at step s they span about s steps.
            decay = min(self.plan.ema, self.step / (self.step + 50))
            torch._foreach_lerp_(self.averages, [p.detach() for p in self.parameters], 1 - decay)

    def _report(self) -> None:
        progress = self.progress
        if time.time() - self.beaten > 3:
            self.beaten = time.time()
            (self.plan.out / f"beat_{self.plan.name}").touch()
        if self.step % self.plan.log_every == 0 or self.step in (1, 20):
            means = {name: float(torch.stack(list(values)).mean()) for name, values in progress.figures.items()}
            skipped = f" skipped {progress.skipped}" if progress.skipped else ""
            self.say(" ".join(f"{name} {mean:.4f}" for name, mean in means.items()) + skipped)

    def _resume(self) -> None:
        data = torch.load(self.full, map_location=self.parameters[0].device, weights_only=True)
        self.model.load_state_dict(data["model"])
        self.optimizer.load_state_dict(data["optimizer"])
        self.averages = list(data["averages"])
        self.progress = Progress(step=data["step"], elapsed=data["elapsed"], best=data["best"])
        for name, part in self.beside.items():
            part.load_state_dict(data["beside"][name])
        # Else a restart would draw the batches of the first start again.
        torch.manual_seed(torch.initial_seed() + self.step)
        self.say("goes on")


def write_atomically(data: Any, file: Path) -> None:
    """`torch.save` under a temporary name, then rename: a reader never sees half a file."""
    temporary = file.with_suffix(".tmp")
    torch.save(data, temporary)
    temporary.replace(file)
