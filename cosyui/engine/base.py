"""The interface of an engine, as the host drives it. `Engine` (real) and `FakeEngine` (tests) both have it."""

from __future__ import annotations

from typing import Protocol

from cosyui.engine.request import Cleared, EngineFacts, EngineStats, Event, SynthesisRequest


class EngineProtocol(Protocol):
    """Single-threaded and cooperative: the host calls `step` in a loop and handles commands between steps.

    A step is short (one decode step, one chunk), so that cancelling and stopping take effect at the next token or
    chunk. No method raises for a fault of a request: that becomes a `Failed` event.
    """

    facts: EngineFacts

    def submit(self, request: SynthesisRequest) -> None:
        """Take a request; its events come out of later steps, ending with exactly one Finished, Failed or Cancelled."""

    def cancel(self, request_id: str) -> None:
        """Drop a request at once and free what it holds; unknown ids are ignored."""

    @property
    def has_work(self) -> bool:
        """True while a step would do anything."""

    def step(self) -> list[Event]:
        """Do the next small piece of work and return the events it made, in order."""

    def stats(self) -> EngineStats:
        """Live counters; cheap enough to call every second."""

    def clear(self, *, light: bool = False) -> Cleared:
        """Give back what can be made again: caches and unused memory. Requests in work go on.

        ``light``: only memory that nobody uses; nothing has to be made again.
        """

    def close(self) -> None:
        """Free the model and its memory; the engine cannot be used afterwards."""
