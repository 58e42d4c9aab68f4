"""How far the load of a model is, told at its real steps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

BEGINS = {
    "process": 0.0,
    "files": 0.05,
    "precision": 0.08,
    "weights": 0.2,
    "encoders": 0.45,
    "kernels": 0.55,
    "self_test": 0.9,
    "ready": 1.0,
}
"""The stages in their order, and what share of a load lies behind each when it begins: roughly, loads differ."""


@dataclass(frozen=True)
class LoadProgress:
    """``stage``: what is done now, one of `BEGINS`; ``share``: 0 to 1 of the whole load, never less than before."""

    stage: str
    share: float


OnProgress = Callable[[LoadProgress], None]


class Steps:
    """What a load calls: the stage, and which part of it (0 to 1) is done; ``tell`` hears the share of the whole."""

    def __init__(self, tell: OnProgress) -> None:
        self._tell = tell
        self._share = 0.0

    def __call__(self, stage: str, part: float = 0.0) -> None:
        begin, end = BEGINS[stage], min((other for other in BEGINS.values() if other > BEGINS[stage]), default=1.0)
        self._share = max(self._share, begin + min(1.0, part) * (end - begin))
        self._tell(LoadProgress(stage, self._share))
