"""What an engine process is told at start: which engine, its configuration, and a script for the fake one."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from cosyui.engine.config import EngineConfig

if TYPE_CHECKING:
    from cosyui.settings import Settings

EngineKind = Literal["real", "fake"]
EngineState = Literal["starting", "ready", "restarting", "unloaded", "broken", "stopped"]


@dataclass(frozen=True)
class FakeScript:
    """How the fake engine behaves when a request's text has no directive of its own.

    ``chunk_seconds`` of speech per step; ``step_seconds`` of pretended work per step; ``places`` requests take turns
    at the steps; ``release_file`` lets held requests go on once it exists; ``directives`` are those of
    `fake.DIRECTIVES` that hold for every request, written as in a text: ``[fake:hold]``.
    """

    chunk_seconds: float = 0.5
    step_seconds: float = 0.0
    places: int = 1
    release_file: str | None = None
    directives: str = ""


@dataclass(frozen=True)
class HostConfig:
    """Picklable; sent to the child as its first message."""

    engine: EngineConfig
    kind: EngineKind = "real"
    fake: FakeScript = field(default_factory=FakeScript)
    log_level: str = "info"

    @classmethod
    def from_settings(cls, settings: Settings) -> HostConfig:
        """For one engine, on the one device of ``settings``."""
        engine = EngineConfig(
            model=settings.model,
            llm_file=settings.llm_file,
            device=settings.device,
            precision=settings.precision,
            threads=settings.threads,
            prompt_cache_bytes=settings.prompt_cache_mb << 20,
            vram_budget=settings.vram_budget,
            empty_cache=settings.empty_cache,
            places=settings.places,
            lexicon=settings.lexicon,
            self_test=settings.self_test,
        )
        release = str(settings.fake_release_file) if settings.fake_release_file else None
        return cls(
            engine,
            settings.engine,
            FakeScript(places=settings.fake_places, release_file=release, directives=settings.fake_directives),
            settings.log_level,
        )

    def on_devices(self, devices: Sequence[str]) -> tuple[HostConfig, ...]:
        """One for each of ``devices``, ``cuda:0`` and so on; this one for none. Engines share the CPU's cores."""
        if not devices:
            return (self,)
        threads = self.engine.threads or max(1, (os.cpu_count() or 1) // len(devices))
        engines = [replace(self.engine, device=device, threads=threads) for device in devices]
        return tuple(replace(self, engine=engine) for engine in engines)
