"""What an engine process is told at start: which engine, its configuration, and a script for the fake one."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from cosyui.engine.config import EngineConfig

if TYPE_CHECKING:
    from cosyui.settings import Settings

EngineKind = Literal["real", "fake"]
EngineState = Literal["starting", "ready", "restarting", "broken", "stopped"]


@dataclass(frozen=True)
class FakeScript:
    """How the fake engine behaves when a request's text has no directive of its own.

    ``chunk_seconds`` of speech per step; ``step_seconds`` of pretended work per step; ``release_file`` lets held
    requests go on once it exists; ``directives`` are those of `fake.DIRECTIVES` that hold for every request, written
    as in a text: ``[fake:hold]``.
    """

    chunk_seconds: float = 0.5
    step_seconds: float = 0.0
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
        engine = EngineConfig(
            model=settings.model,
            llm_file=settings.llm_file,
            device=settings.device,
            precision=settings.precision,
            threads=settings.threads,
            prompt_cache_bytes=settings.prompt_cache_mb << 20,
            lexicon=settings.lexicon,
        )
        release = str(settings.fake_release_file) if settings.fake_release_file else None
        return cls(
            engine,
            settings.engine,
            FakeScript(release_file=release, directives=settings.fake_directives),
            settings.log_level,
        )
