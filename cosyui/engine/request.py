"""What goes down to an engine (a request) and what comes back up (events): plain frozen data that pickles."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from cosyui.notice import Notice

SAMPLE_RATE = 24_000
"""Hz of all audio that leaves an engine."""


class Mode(StrEnum):
    """How the prompt clip is used (oracle: CosyVoice3 prompt formats)."""

    ZERO_SHOT = "zero_shot"
    CROSS_LINGUAL = "cross_lingual"
    INSTRUCT = "instruct"


@dataclass(frozen=True)
class PromptClip:
    """A decoded, checked prompt clip: mono float32 ``samples`` in [-1, 1] at ``sample_rate`` Hz, and its transcript."""

    samples: NDArray[np.float32]
    sample_rate: int
    transcript: str = ""

    @cached_property
    def key(self) -> str:
        """Content hash of the sound (not of the transcript): the key of the prompt feature cache."""
        head = f"{self.sample_rate}:".encode()
        return hashlib.sha256(head + np.ascontiguousarray(self.samples).tobytes()).hexdigest()

    @property
    def seconds(self) -> float:
        return len(self.samples) / self.sample_rate


@dataclass(frozen=True)
class SynthesisRequest:
    """One take. ``stream`` asks for chunks as early as possible; otherwise a chunk is a whole segment. ``long``: a job
    of many segments that lets short takes go before it at the border of each.
    """

    id: str
    text: str
    mode: Mode
    prompt: PromptClip
    seed: int
    instruction: str = ""
    language: str | None = None
    speed: float = 1.0
    stream: bool = False
    long: bool = False


@dataclass(frozen=True)
class RequestMemory:
    """Around one request, in bytes: ``rss`` of the engine's process at its end; the rest is of the GPU, None on a CPU.

    ``allocated`` and ``reserved`` by PyTorch, ``device``: all that is used of the card. Before the work began and after
    all was freed. The peaks are those of the whole engine meanwhile: all requests that were at work share them; that of
    the device is the highest of some looks.
    """

    rss: int
    allocated_before: int | None = None
    allocated_peak: int | None = None
    allocated_after: int | None = None
    reserved_before: int | None = None
    reserved_peak: int | None = None
    reserved_after: int | None = None
    device_before: int | None = None
    device_peak: int | None = None
    device_after: int | None = None


@dataclass(frozen=True)
class RequestStats:
    """Measured by the engine for one finished request; seconds are the time it was worked on, on the engine's clock.

    ``retries``: segments that were made again because they came out bad; ``redone``: pieces of sound that were made
    again in float32; ``warnings``: remarks for the user. ``parts``: of each segment, the sample at which its sound
    ends, and the characters of its text as it was read.
    """

    speech_seconds: float
    total_seconds: float
    first_chunk_seconds: float
    speech_tokens: int
    segments: int
    text_seconds: float = 0.0
    prompt_seconds: float = 0.0
    llm_seconds: float = 0.0
    flow_seconds: float = 0.0
    vocoder_seconds: float = 0.0
    retries: int = 0
    precision: str = "float32"
    warnings: tuple[Notice, ...] = ()
    redone: int = 0
    memory: RequestMemory | None = None
    parts: tuple[tuple[int, int], ...] = ()

    @property
    def rtf(self) -> float:
        """Real-time factor: seconds of work per second of speech."""
        return self.total_seconds / self.speech_seconds if self.speech_seconds else 0.0


@dataclass(frozen=True)
class Started:
    """The engine has taken the request up; ``segments`` is how many pieces of text it will speak."""

    request_id: str
    segments: int


@dataclass(frozen=True)
class Progress:
    """``speech_seconds`` of the request have been decoded, about once a second; ``redone``: a segment is made again."""

    request_id: str
    speech_seconds: float
    redone: bool = False


@dataclass(frozen=True)
class AudioChunk:
    """The next piece of speech: little-endian int16 mono PCM at ``SAMPLE_RATE``."""

    request_id: str
    index: int
    pcm: bytes

    @property
    def samples(self) -> int:
        return len(self.pcm) // 2


@dataclass(frozen=True)
class Finished:
    """The last event of a request that went well."""

    request_id: str
    stats: RequestStats


@dataclass(frozen=True)
class Failed:
    """The last event of a request that did not; ``code``, ``message`` and ``field`` as in ``CosyuiError``."""

    request_id: str
    code: str
    message: str
    field: str | None = None
    status: int = 500
    memory: RequestMemory | None = None


@dataclass(frozen=True)
class Cancelled:
    """The last event of a request that was cancelled."""

    request_id: str


Event = Started | Progress | AudioChunk | Finished | Failed | Cancelled


@dataclass(frozen=True)
class SelfTest:
    """What a loaded model showed of itself, in ``seconds``. ``reason``: what is wrong, None if it passed.

    ``agreement``: of speech tokens with those heard in their sound, 0 by chance and 1 for all; ``gain``: how much
    likelier a clip's speech is behind its own words than behind others, in nats a token; None if not found out.
    """

    seconds: float
    reason: Notice | None = None
    agreement: float | None = None
    gain: float | None = None


@dataclass(frozen=True)
class EngineFacts:
    """What was loaded: shown in the ops panel and in the preload report. Sizes in bytes, times in seconds.

    ``places``: how many requests are worked on at once; ``providers``: what ONNX Runtime runs each encoder on;
    ``versions`` of the libraries; ``self_test`` is None where none was made.
    """

    model: str
    source: str
    device: str
    precision: dict[str, str]
    parameters: dict[str, int]
    memory: dict[str, int]
    load_seconds: float
    places: int = 1
    demo_voice: bool = False
    instruct_supported: bool = True
    languages: tuple[str, ...] = ("zh", "en")
    warnings: tuple[str, ...] = ()
    providers: dict[str, str] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    self_test: SelfTest | None = None

    @property
    def degraded(self) -> Notice | None:
        """Why takes are made that may be nonsense."""
        return None if self.self_test is None else self.self_test.reason


@dataclass(frozen=True)
class Cleared:
    """What an engine gave back when it was asked to: bytes by part, and how long that took.

    ``features`` of clips, ``unused`` memory of the card that PyTorch had kept, ``host`` memory of the process.
    """

    freed: dict[str, int]
    seconds: float


@dataclass(frozen=True)
class EngineStats:
    """Live counters of an engine; memory in bytes. Without CUDA only ``rss`` and ``features`` are not 0.

    ``features``: of prompts, in the process's memory. Of ``allocated``: ``weights``; ``kv_slots``; ``kept`` keys and
    values of streams and prompts; ``graphs`` with buffers, workspaces and constants. ``graph_pools`` and
    ``largest_free`` (the largest block that an idle engine could hand out, some seconds old) are reserved and not
    allocated, ``inactive_splits``: pieces of blocks that cannot go back to the card. ``context``: CUDA's own, a guess.
    ``allocated_peak``: the most since the start or the last soft restart. ``gpu``: the card's UUID.
    """

    running: int
    waiting: int
    finished: int
    failed: int
    rss: int
    allocated: int = 0
    allocated_peak: int = 0
    reserved: int = 0
    device_used: int = 0
    device_total: int = 0
    cached_prompts: int = 0
    features: int = 0
    weights: int = 0
    kv_slots: int = 0
    kept: int = 0
    graphs: int = 0
    graph_pools: int = 0
    context: int = 0
    inactive_splits: int = 0
    largest_free: int = 0
    gpu: str = ""
    extra: dict[str, float] = field(default_factory=dict)
