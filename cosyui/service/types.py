"""What goes into the service (a form) and what comes out (updates, a result, an overview): plain frozen data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from cosyui.engine.request import EngineFacts, EngineStats, Mode, RequestStats
from cosyui.errors import BusyError, CosyuiError, InputError
from cosyui.host.config import EngineState
from cosyui.host.pool import EngineView
from cosyui.notice import Notice
from cosyui.ops.leaks import Leak
from cosyui.ops.monitor import MachineSample
from cosyui.ops.sampler import Sample
from cosyui.ops.schedule import JobView

JobState = Literal["waiting", "running", "writing"]


@dataclass(frozen=True)
class TakeForm:
    """What a user asks for, unchecked.

    ``clip`` is an audio file on disk or the bytes of one. ``seed`` None means: draw one (it is reported in the ticket
    and the result). ``stream`` asks for `Chunk` updates while the take is made. ``client`` names who asks, for fairness
    and the log; it is never a name of a person. ``deadline``: seconds from its submit, after which nobody wants it.
    """

    text: str
    mode: Mode = Mode.ZERO_SHOT
    clip: Path | bytes | None = None
    transcript: str = ""
    instruction: str = ""
    speed: float = 1.0
    seed: int | None = None
    stream: bool = False
    language: str | None = None
    client: str = "anonymous"
    deadline: float | None = None


@dataclass(frozen=True)
class Result:
    """A finished take: a 24 kHz mono int16 WAV at ``path``.

    ``seconds`` is the length of the speech. ``waited_seconds`` (submit to start of the engine's work),
    ``first_chunk_seconds`` and ``total_seconds`` (submit to file written) are what the user lived through;
    ``stats`` are the engine's own figures, with its RTF; ``notices`` are remarks on clip and transcript.
    """

    id: str
    path: Path
    seconds: float
    seed: int
    stats: RequestStats
    waited_seconds: float
    first_chunk_seconds: float
    total_seconds: float
    notices: tuple[Notice, ...] = ()


@dataclass(frozen=True)
class Waiting:
    """In the queue. ``position`` 1 is next; 0 means: its turn has come but the engine is not ready (see ``engine``).

    ``eta_seconds`` is the estimated time until its work starts; None while no speed has been measured yet or the
    engine is not ready.
    """

    position: int
    eta_seconds: float | None
    engine: EngineState = "ready"


@dataclass(frozen=True)
class Running:
    """The engine works on it: ``speech_seconds_done`` of about ``expected_seconds``; ``segments`` pieces of text.

    ``eta_seconds`` is the estimated time to the end, None while unknown. ``retried`` is true once the engine process
    had to be replaced and the request was started again; ``redone`` while a segment is made again that came out bad.
    """

    speech_seconds_done: float
    segments: int
    expected_seconds: float = 0.0
    eta_seconds: float | None = None
    retried: bool = False
    redone: bool = False


@dataclass(frozen=True)
class Chunk:
    """The next piece of speech of a streamed take: little-endian int16 mono PCM at 24 kHz."""

    pcm: bytes


@dataclass(frozen=True)
class Done:
    """Last update of a take that went well."""

    result: Result


@dataclass(frozen=True)
class Problem:
    """Last update of a take that failed; ``error`` has the code, the sentence to show and the field it belongs to."""

    error: CosyuiError


@dataclass(frozen=True)
class Stopped:
    """Last update of a take that was cancelled."""


Update = Waiting | Running | Chunk | Done | Problem | Stopped


class FormError(InputError):
    """A form with one or more problems; ``problems`` has each with its field, in the order of the form.

    ``code``, ``message`` and ``field`` are those of the first problem.
    """

    def __init__(self, problems: Sequence[InputError]) -> None:
        first = problems[0]
        super().__init__(first.code, first.message, first.field)
        self.problems: tuple[InputError, ...] = tuple(problems)

    def __reduce__(self) -> tuple[type[FormError], tuple[tuple[InputError, ...]]]:
        return type(self), (self.problems,)


class QueueFullError(BusyError):
    """The waiting queue is full; ``retry_after`` is a hint in whole seconds (for the page and a Retry-After header)."""

    retry_after: int = 0

    @classmethod
    def make(cls, waiting: int, retry_after: int) -> QueueFullError:
        message = (
            f"{waiting} requests are already waiting and the queue is full. Try again in about {retry_after} seconds."
        )
        error = cls("queue_full", message)
        error.retry_after = retry_after
        return error


class ClientQueueFullError(QueueFullError):
    """One client has as many requests waiting as it may; others are still taken in."""

    @classmethod
    def make(cls, waiting: int, retry_after: int) -> ClientQueueFullError:
        message = (
            f"{waiting} of your requests are already waiting, which leaves room for others. "
            f"Try again in about {retry_after} seconds."
        )
        error = cls("client_queue_full", message)
        error.retry_after = retry_after
        return error


class StoppingError(BusyError):
    """The service goes down and takes nothing in any more; ``retry_after``: seconds, by when it may be back."""

    status = 503
    retry_after = 30

    @classmethod
    def make(cls) -> StoppingError:
        return cls("service_stopping", "The service is shutting down. Try again when it is back.")


@dataclass(frozen=True)
class QueueEntry:
    """One request as the ops panel sees it; never its text. ``age_seconds`` counts from its submit; ``eta_seconds`` is
    until its work begins, or of one at work until it is done.

    ``position`` is that in its own line: short takes and long jobs wait in two.
    """

    id: str
    client: str
    state: JobState
    age_seconds: float
    position: int
    eta_seconds: float | None
    expected_seconds: float
    done_seconds: float
    mode: Mode
    long: bool = False


@dataclass(frozen=True)
class Overview:
    """The state of the whole service at one moment.

    ``facts`` and ``stats`` are those of all ``engines`` together; ``places``: how many takes may be in them, and as
    many long jobs. ``rtf`` is the moving average of finished requests, ``speed`` the seconds of speech a second of all
    requests together at the present load; both are None before the first. Counters count since the start.

    ``machine`` and ``sample`` are what was measured last, None before the first answer; ``problems``: of what
    watches and tidies; ``purge``: the job that deletes old files; ``waiting_rows``: of the journal, not written.
    """

    engine: EngineState
    problem: CosyuiError | None
    facts: EngineFacts | None
    stats: EngineStats | None
    engines: tuple[EngineView, ...]
    machine: MachineSample | None
    running: tuple[QueueEntry, ...]
    waiting: tuple[QueueEntry, ...]
    queue_size: int
    places: int
    rtf: float | None
    speed: float | None
    engine_restarts: int
    finished: int
    failed: int
    stopped: int
    rejected: int
    uptime_seconds: float
    sample: Sample
    problems: tuple[Notice, ...]
    leaks: tuple[Leak, ...]
    purge: JobView
    waiting_rows: int
