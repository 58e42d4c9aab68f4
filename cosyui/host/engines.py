"""What a service needs of its engines, in processes of this machine (`EnginePool`) or far away (`RemoteEngines`)."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Protocol

from cosyui.engine.loading import LoadProgress
from cosyui.engine.request import Cleared, EngineFacts, EngineStats, Event, SynthesisRequest
from cosyui.errors import CosyuiError
from cosyui.host.config import EngineState
from cosyui.host.pool import EngineView
from cosyui.host.stream import HandedOver


class OneEngine(Protocol):
    """One of several, found by the number that `HandedOver` tells."""

    @property
    def state(self) -> EngineState: ...

    @property
    def latest_stats(self) -> EngineStats | None: ...


class Engines(Protocol):
    """See `EnginePool`, whose words hold for all of them. ``pids`` are those of processes on this machine."""

    on_change: Callable[[], None]

    @property
    def engines(self) -> Sequence[OneEngine]: ...

    @property
    def state(self) -> EngineState: ...

    @property
    def places(self) -> int: ...

    @property
    def facts(self) -> EngineFacts | None: ...

    @property
    def progress(self) -> LoadProgress | None: ...

    @property
    def latest_stats(self) -> EngineStats | None: ...

    @property
    def problem(self) -> CosyuiError | None: ...

    @property
    def restarts(self) -> int: ...

    @property
    def pids(self) -> tuple[int, ...]: ...

    @property
    def pid(self) -> int | None: ...

    def views(self) -> tuple[EngineView, ...]: ...

    async def start(self, *, lazy: bool = False) -> None: ...

    def load(self) -> None: ...

    async def unload(self) -> None: ...

    async def wait_until(self, *states: EngineState) -> EngineState: ...

    def events(self, request: SynthesisRequest) -> AsyncGenerator[Event | HandedOver, None]: ...

    async def cancel(self, request_id: str) -> None: ...

    async def stats(self) -> EngineStats | None: ...

    async def clear(self, *, light: bool = False) -> list[Cleared]: ...

    async def restart(self, number: int | None = None) -> None: ...

    async def close(self) -> None: ...
