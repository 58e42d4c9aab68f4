"""What goes over the pipes between the server and its engine process: pickles of these."""

from __future__ import annotations

from dataclasses import dataclass

from cosyui.engine.loading import LoadProgress
from cosyui.engine.request import Cleared, EngineFacts, EngineStats, Event, SynthesisRequest
from cosyui.errors import CosyuiError
from cosyui.host.config import HostConfig


@dataclass(frozen=True)
class Start:
    """First command."""

    config: HostConfig


@dataclass(frozen=True)
class Submit:
    """``again``: an engine's process ended while it worked on this request."""

    request: SynthesisRequest
    again: bool = False


@dataclass(frozen=True)
class Cancel:
    request_id: str


@dataclass(frozen=True)
class AskStats:
    """Answered by a Stats between two steps."""


@dataclass(frozen=True)
class Clear:
    """Answered by an Emptied between two steps; ``light``: see `cosyui.engine.base.EngineProtocol.clear`."""

    light: bool = False


@dataclass(frozen=True)
class Shutdown:
    """Close the engine and exit."""


Command = Start | Submit | Cancel | AskStats | Clear | Shutdown


@dataclass(frozen=True)
class Loading:
    progress: LoadProgress


@dataclass(frozen=True)
class Ready:
    facts: EngineFacts


@dataclass(frozen=True)
class LoadFailed:
    """The model cannot be loaded, and trying again would not help."""

    error: CosyuiError


@dataclass(frozen=True)
class Stats:
    """``answer`` is true if it was asked for."""

    stats: EngineStats
    answer: bool = False


@dataclass(frozen=True)
class Emptied:
    """``light`` as it was asked for."""

    cleared: Cleared
    light: bool = False


@dataclass(frozen=True)
class Events:
    events: tuple[Event, ...]


Message = Loading | Ready | LoadFailed | Stats | Emptied | Events
