"""Many requests decoded side by side: each in a slot of its own, in groups of steps that the device runs unwatched.

The host enqueues groups and collects their tokens later; it never waits for a step. What decides a row's tokens (its
random numbers, its length rule, its stop) lies with its slot on the device, so they do not depend on the other rows.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from cosyui.engine.decode import LengthRule
from cosyui.engine.slot_graphs import KernelSteps
from cosyui.engine.slot_steps import PlainSteps
from cosyui.model.config import LLMConfig
from cosyui.model.llm import SpeechLM
from cosyui.model.llm_decode import BAD, ENDED, DecodeLLM, SlotState

MOST_IN_FLIGHT = 2
"""Groups enqueued and not collected: one runs while the host looks at the other."""


class Decoded(NamedTuple):
    """New ``tokens`` of a slot; ``ended``: there will be no more; ``bad``: because a logit was not finite."""

    tokens: list[int]
    ended: bool
    bad: bool


class Codes(Protocol):
    """The codes (steps, rows) of a group that may still be running."""

    def ready(self) -> bool: ...

    def get(self) -> Tensor:
        """int32 on the CPU; waits for them."""


class Steps(Protocol):
    """What runs the passes; see `cosyui.engine.slot_steps`."""

    group: int
    longest: int
    """Rows of a prefill."""
    alone: bool
    """Whether a step takes the whole device."""

    def prefill(self, slot: int, rows: Tensor, rule: LengthRule, uniforms: Tensor) -> None: ...

    def run(self, slots: Sequence[int]) -> Codes: ...


@dataclass(eq=False)
class _Request:
    slot: int
    maximum: int
    scheduled: int = 0
    """Tokens that what is enqueued can give at most."""
    received: int = 0
    ended: bool = False


class _Group(NamedTuple):
    requests: list[_Request]
    codes: Codes


class SlotDecoder:
    """Decodes up to ``slots`` requests of up to ``capacity`` positions each (prefill and tokens together).

    ``group`` steps are enqueued at a time on CUDA, one on a CPU. ``graphs``: record CUDA graphs, at once. Not
    thread-safe; on CUDA all work is enqueued on a stream of its own, and nothing but `poll` waits for it.
    """

    @torch.inference_mode()
    def __init__(
        self,
        llm: SpeechLM,
        slots: int,
        capacity: int,
        *,
        group: int = 4,
        graphs: bool = True,
        steps: Steps | None = None,
    ) -> None:
        self.config, self.capacity = llm.config, capacity
        self.model = DecodeLLM(llm, capacity)
        if steps is None:
            steps = self._best_steps(slots, group, graphs)
        self.steps = steps
        self.spare = list(range(slots))
        self.requests: dict[int, _Request] = {}
        self.in_flight: deque[_Group] = deque()

    def _best_steps(self, slots: int, group: int, graphs: bool) -> Steps:
        # One slot more than asked for takes the padding rows of a batch.
        state = SlotState(self.config, slots + 1, self.capacity, self.model.device, self.model.dtype)
        if self.model.device.type == "cuda" and KernelSteps.fits(self.config):
            return KernelSteps(self.model, state, group=group, graphs=graphs)
        return PlainSteps(self.model, state)

    @staticmethod
    def nbytes(config: LLMConfig, slots: int, capacity: int, dtype: torch.dtype) -> int:
        """Bytes that the slots take on the device, without weights and CUDA's own memory for graphs."""
        state = SlotState.nbytes(config, slots + 1, capacity, dtype)
        return state + KernelSteps.nbytes(config, slots, capacity, dtype)

    @property
    def alone(self) -> bool:
        """Whether a step takes the whole device, so that nothing is rendered beside it."""
        return self.steps.alone

    @property
    def free(self) -> int:
        """Slots that nobody has."""
        return len(self.spare)

    @torch.inference_mode()
    def join(self, text_ids: Sequence[int], prompt_speech: Sequence[int], rule: LengthRule, seed: int) -> int:
        """Enqueue the prefill of a request and return its slot, the caller's until `leave`.

        ``text_ids`` holds prompt text and text. Raises ValueError when it is longer than a slot or no slot is free.
        """
        length = 2 + len(text_ids) + len(prompt_speech)
        if length + rule.maximum > self.capacity:
            raise ValueError(f"a slot holds {self.capacity} positions, {length + rule.maximum} are needed")
        if length > self.steps.longest:
            raise ValueError(f"at most {self.steps.longest} positions can stand before the speech, not {length}")
        if not self.spare:
            raise ValueError("no slot is free")
        slot = self.spare[0]
        if rule.maximum > 0:
            generator = torch.Generator().manual_seed(seed)
            uniforms = torch.rand(rule.maximum, 2, generator=generator, dtype=torch.float64)
            self.steps.prefill(slot, self.model.input_rows(text_ids, prompt_speech), rule, uniforms)
        heapq.heappop(self.spare)  # only now: a prefill may fail
        self.requests[slot] = _Request(slot, rule.maximum)
        return slot

    def leave(self, slot: int) -> None:
        """Free the slot. What is in flight for it is dropped; a later prefill is enqueued behind that."""
        del self.requests[slot]
        heapq.heappush(self.spare, slot)

    @torch.inference_mode()
    def launch(self) -> bool:
        """Enqueue a group of steps for every request that may need them.

        False: none does, or `MOST_IN_FLIGHT` groups wait to be collected.
        """
        if len(self.in_flight) >= MOST_IN_FLIGHT:
            return False
        due = [r for r in self.requests.values() if not r.ended and r.scheduled < r.maximum]
        if not due:
            return False
        due.sort(key=lambda request: request.slot)
        for request in due:
            request.scheduled = max(1, request.scheduled) + self.steps.group
        self.in_flight.append(_Group(due, self.steps.run([request.slot for request in due])))
        return True

    def poll(self, wait: bool = False) -> dict[int, Decoded]:
        """What has come by slot since the last call; with ``wait``, wait for the oldest group in flight first."""
        out = {}
        for request in self.requests.values():
            if request.maximum <= 0 and not request.ended:
                request.ended = True
                out[request.slot] = Decoded([], True, False)
        while self.in_flight and ((wait and not out) or self.in_flight[0].codes.ready()):
            requests, codes = self.in_flight.popleft()
            for request, column in zip(requests, codes.get().T.tolist(), strict=False):
                if request.ended or self.requests.get(request.slot) is not request:
                    continue
                fresh = self._read(request, column)
                before = out.get(request.slot, Decoded([], False, False))
                out[request.slot] = Decoded(before.tokens + fresh.tokens, fresh.ended, fresh.bad)
        return out

    def _read(self, request: _Request, column: list[int]) -> Decoded:
        tokens = [code for code in column if code >= 0]
        request.received += len(tokens)
        bad = BAD in column
        request.ended = bad or ENDED in column or request.received >= request.maximum
        return Decoded(tokens, request.ended, bad)
