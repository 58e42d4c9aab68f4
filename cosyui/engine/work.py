"""A request in the engine."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from cosyui.engine.needs import Need
from cosyui.engine.request import SynthesisRequest
from cosyui.engine.take import Steps, Take


@dataclass(eq=False)
class Work:
    """A request in the engine; ``take`` and ``steps`` from the moment it is worked on.

    ``need`` is what it waits for, with the thread's ``future`` where that is an `Aside`; ``answer`` is handed over when
    it is resumed; ``aside_since``: it was put aside for others then.
    """

    request: SynthesisRequest
    take: Take | None = None
    steps: Steps | None = None
    need: Need | None = None
    future: Future[Any] | None = None
    answer: Any = None
    aside_since: float | None = None

    def close(self) -> None:
        """Free what it holds, in whatever state it is."""
        if self.steps is not None:
            self.steps.close()
        self.take = self.steps = self.need = self.answer = None
