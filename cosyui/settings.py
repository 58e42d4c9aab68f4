"""Every option of the service in one typed place, read from COSYUI_* environment variables.

An unknown COSYUI_* variable or a wrong value is a SetupError that names it, not something silently ignored.
"""

from __future__ import annotations

import difflib
import hashlib
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr, ValidationError, model_validator
from pydantic_core import ErrorDetails
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from cosyui.engine.config import EmptyCache, Precision
from cosyui.errors import SetupError
from cosyui.speech.text.screen import MAX_INSTRUCTION_CHARS, MAX_TRANSCRIPT_CHARS

PREFIX = "COSYUI_"
UNITS = {"": 1 << 20, "mb": 10**6, "mib": 1 << 20, "gb": 10**9, "gib": 1 << 30}
SMALLEST_BUDGET = 256 << 20
"""No checkpoint fits into less; a number below it is one whose unit was forgotten."""


def byte_size(given: Any) -> int:
    """Bytes of ``6144`` (MiB), ``6GB``, ``5.5 GiB``; nothing is 0. Raises ValueError."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?|) ?([a-z]*)", str(given).strip().lower())
    if match is None or match[2] not in UNITS or (match[2] and not match[1]):
        raise ValueError("write a number of MiB, or one with a unit: 6144, 6GB or 6GiB")
    return int(float(match[1] or 0) * UNITS[match[2]])


def memory_size(given: Any) -> int:
    """As `byte_size`, for memory of a model. Raises ValueError also for less than any model needs."""
    size = byte_size(given)
    if 0 < size < SMALLEST_BUDGET:
        raise ValueError("that is too little for any model; a number without unit is MiB, so write 6GiB for six GiB")
    return size


def name_password_pairs(given: SecretStr) -> SecretStr:
    """Checks ``name:password`` pairs. Raises ValueError, which does not tell them."""
    pairs = [pair.strip().partition(":") for pair in given.get_secret_value().split(",")] if given else []
    if any(not name or not password for name, _, password in pairs):
        raise ValueError("write name:password, several with commas between")
    return given


def api_key_list(given: SecretStr) -> SecretStr:
    """Checks API keys. Raises ValueError, which does not tell them."""
    keys = [key.strip() for key in given.get_secret_value().split(",")] if given else []
    if any(not re.fullmatch(r"sha256:[0-9a-fA-F]{64}|(?!sha256:)[!-~]+", key) for key in keys):
        raise ValueError("write keys without blanks, or sha256: and 64 hexadecimal digits; several with commas between")
    return given


class Settings(BaseSettings):
    """Options with their defaults; make one with `Settings.load`. Each is set by COSYUI_<NAME IN CAPITALS>."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, extra="forbid", frozen=True, hide_input_in_errors=True, protected_namespaces=()
    )

    # the engine
    engine: Literal["real", "fake"] = Field("real", description="'fake' makes tones instead of speech, for tests")
    model: str = Field("embedded", min_length=1, description="'embedded', a folder, hf:<repo> or modelscope:<id>")
    llm_file: str = Field("llm.pt", pattern=r"^[\w.-]+\.pt$", description="speech-token LLM file of the checkpoint")
    device: str = Field("auto", pattern=r"^(auto|cpu|cuda(:\d+)?)$", description="auto, cpu, cuda or cuda:<number>")
    devices: str = Field(
        "",
        pattern=r"^(|all|\d+( ?, ?\d+)*)$",
        description="several GPUs, one engine each: all, or numbers as in 0,1; empty for the one of 'device'",
    )
    vram_budget: Annotated[int, BeforeValidator(memory_size)] = Field(
        0, description="GPU memory that each engine may use: MiB, or with a unit as in 6GB; 0 for four fifths of it"
    )
    empty_cache: EmptyCache = Field("auto", description="unused GPU memory goes back: auto (when idle), always, never")
    places: int = Field(
        0,
        ge=0,
        le=256,
        description="requests that an engine works on at once; up to 16 have the least latency; "
        "0: as memory allows, one on a CPU",
    )
    precision: Precision = Field("auto", description="number format of the network's weights")
    threads: int = Field(0, ge=0, le=256, description="CPU threads of the engine; 0 leaves the default")
    prompt_cache_mb: int = Field(64, ge=0, le=65536, description="bound of the cache of prompt features, MiB")
    self_test: bool = Field(True, description="speak a sentence at the start, to know that it is speech")
    start: Literal["preload", "lazy"] = Field("preload", description="the model is loaded at once, or by a request")
    idle_unload_minutes: float = Field(
        0.0, ge=0, le=525_600, description="minutes without a request after which the model is unloaded; 0: never"
    )
    lexicon: Path | None = Field(None, description="file of own pronunciations, one 'word = marks' a line")
    fake_directives: str = Field("", description="what the fake engine does with every request, as [fake:slow]")
    fake_places: int = Field(1, ge=1, le=1024, description="how many requests the fake engine works on at once")
    fake_release_file: Path | None = Field(None, description="held requests of the fake engine end once it exists")

    # the listener
    host: str = Field("127.0.0.1", min_length=1, description="address to listen on; 0.0.0.0 opens it to the network")
    port: int = Field(7860, ge=1, le=65535, description="port to listen on")
    page: bool = Field(True, description="serve the page; without it the API alone, which needs less memory")
    drain_seconds: float = Field(
        30.0, ge=0, le=86_400, description="how long takes may still finish when the server is told to stop"
    )
    hosts: str = Field("", description="names that browsers reach it by, as in voice.example.org, comma-separated")

    # who may do what
    login: Annotated[SecretStr, AfterValidator(name_password_pairs)] = Field(
        SecretStr(""), description="who may open the page: name:password, comma-separated; empty for everybody"
    )
    admin_password: SecretStr = Field(
        SecretStr(""), description="opens the actions of the ops tab; empty: they are open on this machine alone"
    )
    ops: Literal["all", "admin", "off"] = Field("all", description="who sees the ops tab")

    # the API
    api_keys: Annotated[SecretStr, AfterValidator(api_key_list)] = Field(
        SecretStr(""), description="keys of the API, plain or as sha256:<hex>, comma-separated; empty: open as the page"
    )
    api_rate: int = Field(0, ge=0, le=1_000_000, description="API requests a minute of a key or address; 0: no limit")
    api_concurrency: int = Field(
        0, ge=0, le=10_000, description="unfinished API requests of a key or address; 0: no limit"
    )
    body_max_bytes: int = Field(
        1 << 20, ge=1024, le=1 << 30, description="largest body of an API request without its clip, bytes"
    )
    stream_idle_seconds: float = Field(
        60.0, gt=0, le=3600, description="seconds without text, or without reading, after which a stream is closed"
    )
    cors_origins: str = Field(
        "",
        pattern=r"^(|https?://[^\s,/*]+( ?, ?https?://[^\s,/*]+)*)$",
        description="sites whose pages may use the API, as in https://app.example.org, comma-separated",
    )

    # requests
    queue_size: int = Field(10, ge=0, le=10_000, description="how many requests may wait")
    client_queue: int = Field(
        0, ge=0, le=10_000, description="how many requests of one client may wait; 0 for half of 'queue_size'"
    )
    max_chars: int = Field(200, ge=1, le=100_000, description="longest text of a take, characters")
    long_max_chars: int = Field(
        20_000, ge=0, le=100_000, description="longest text of a long job, characters; 0 takes no long jobs"
    )
    max_instruction_chars: int = Field(
        MAX_INSTRUCTION_CHARS, ge=1, le=MAX_INSTRUCTION_CHARS, description="longest instruction, characters"
    )
    max_transcript_chars: int = Field(
        MAX_TRANSCRIPT_CHARS, ge=1, le=MAX_TRANSCRIPT_CHARS, description="longest transcript of a clip, characters"
    )
    clip_min_seconds: float = Field(3.0, gt=0, le=60, description="shortest prompt clip")
    clip_max_seconds: float = Field(30.0, gt=0, le=60, description="longest prompt clip")
    clip_max_bytes: int = Field(20 << 20, ge=1024, le=1 << 30, description="largest prompt clip file, bytes")
    clips_dir: Path | None = Field(None, description="folder for private copies of clips; default: a temporary one")
    voices_dir: Path | None = Field(None, description="folder for saved voices; default: 'voices' beside 'outputs_dir'")
    voices_max: int = Field(500, ge=0, le=100_000, description="how many voices may be saved")
    transcriber: str = Field("auto", min_length=1, description="writes transcripts: auto, off, or a Whisper model")
    request_timeout: float = Field(
        600.0, gt=0, description="seconds after which a take is given up, or a long job that makes no progress"
    )

    batch_lines: int = Field(1_000, ge=0, le=10_000, description="lines that a batch may have; 0 takes no batches")
    batch_pause: float = Field(0.4, ge=0, le=10, description="seconds between the lines of a batch's joined file")

    # results and logs
    outputs_dir: Path = Field(Path("outputs"), description="folder for finished takes")
    purge_hours: float = Field(
        24.0, ge=0, le=87_600, description="hours after which takes and temporary files are deleted; 0 keeps them"
    )
    outputs_quota: Annotated[int, BeforeValidator(byte_size)] = Field(
        0, description="disk space for takes, the oldest go first: MiB, or with a unit as in 20GB; 0 for no limit"
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field("info", description="least severe log line shown")

    # what is watched
    sample_seconds: float = Field(1.0, ge=1, le=60, description="seconds between two samples of memory and load")
    journal: Path = Field(Path(".cosyui/journal.sqlite"), description="file with a row of figures for each request")
    journal_rows: int = Field(100_000, ge=100, le=10_000_000, description="rows that the journal keeps at most")
    journal_days: float = Field(30.0, gt=0, le=3650, description="days that the journal keeps a row")

    # the history of takes on the page
    history: bool = Field(True, description="keep the page's takes with their texts and clips, each for who made it")
    history_file: Path | None = Field(None, description="its file; default: 'history.sqlite' beside 'journal'")
    history_rows: int = Field(10_000, ge=10, le=1_000_000, description="takes that the history keeps at most")
    history_days: float = Field(30.0, gt=0, le=36_500, description="days that it keeps a take that is no favourite")
    history_favourites: int = Field(200, ge=0, le=100_000, description="favourites that a login or a browser may have")

    @classmethod
    def load(cls, overrides: Mapping[str, Any] | None = None, environ: Mapping[str, str] | None = None) -> Self:
        """Read ``environ`` (default: the process environment), then ``overrides`` by option name; None is skipped.

        Raises:
            SetupError: ``setting_unknown`` or ``setting_invalid``; the message names every offender.
        """
        environ = os.environ if environ is None else environ
        known = set(cls.model_fields)
        values: dict[str, Any] = {}
        shown: dict[str, str] = {}
        for variable, value in environ.items():
            if variable.upper().startswith(PREFIX):
                name = variable[len(PREFIX) :].lower()
                values[name], shown[name] = value, variable
        for name, value in (overrides or {}).items():
            if value is not None:
                values[name], shown[name] = value, name
        unknown = sorted(set(values) - known)
        if unknown:
            raise SetupError("setting_unknown", " ".join(_unknown(shown[name], name, known) for name in unknown))
        try:
            return cls(**values)
        except ValidationError as error:
            lines = [cls._invalid(shown, values, detail) for detail in error.errors(include_url=False)]
            raise SetupError("setting_invalid", " ".join(lines)) from None

    @property
    def logins(self) -> dict[str, str]:
        """Passwords by name."""
        pairs = (pair.strip().partition(":") for pair in self.login.get_secret_value().split(",") if pair)
        return {name: password for name, _, password in pairs}

    @property
    def host_names(self) -> frozenset[str]:
        """Of ``hosts``, in small letters, each with its port if one was given."""
        return frozenset(name.strip().lower() for name in self.hosts.split(",") if name.strip())

    @property
    def api_key_digests(self) -> tuple[bytes, ...]:
        """SHA-256 of each API key."""
        keys = (key.strip() for key in self.api_keys.get_secret_value().split(",") if key)
        return tuple(
            bytes.fromhex(key[7:]) if key.startswith("sha256:") else hashlib.sha256(key.encode()).digest()
            for key in keys
        )

    @property
    def api_origins(self) -> tuple[str, ...]:
        """Of ``cors_origins``, in small letters."""
        return tuple(origin.strip().lower() for origin in self.cors_origins.split(",") if origin.strip())

    @property
    def client_limit(self) -> int:
        """How many requests of one client may wait in each line."""
        return self.client_queue or max(1, (self.queue_size + 1) // 2)

    @property
    def voices_folder(self) -> Path:
        """Where saved voices are."""
        return (self.voices_dir or self.outputs_dir.expanduser().absolute().parent / "voices").expanduser().absolute()

    @property
    def history_path(self) -> Path:
        """The history's SQLite file."""
        return (self.history_file or self.journal.with_name("history.sqlite")).expanduser().absolute()

    @property
    def longest_text(self) -> int:
        """Characters of the longest text that is taken at all."""
        return max(self.max_chars, self.long_max_chars)

    @model_validator(mode="after")
    def _clip_range(self) -> Self:
        if self.clip_min_seconds > self.clip_max_seconds:
            raise ValueError("COSYUI_CLIP_MIN_SECONDS must not be more than COSYUI_CLIP_MAX_SECONDS")
        return self

    @model_validator(mode="after")
    def _one_way_to_devices(self) -> Self:
        if self.devices and self.device != "auto":
            raise ValueError("COSYUI_DEVICE is for one device and COSYUI_DEVICES for several: set one of them")
        numbers = [int(number) for number in self.devices.split(",") if number.strip().isdecimal()]
        if len(set(numbers)) < len(numbers):
            raise ValueError(f"COSYUI_DEVICES={self.devices} names a GPU twice; each has one engine")
        return self

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Only what `load` collected: one way in, so that an unknown variable cannot slip past."""
        return (init_settings,)

    @classmethod
    def _invalid(cls, shown: Mapping[str, str], values: Mapping[str, Any], detail: ErrorDetails) -> str:
        name = str(detail["loc"][0]) if detail["loc"] else ""
        field = cls.model_fields.get(name)
        if field is None:
            return detail["msg"].removeprefix("Value error, ") + "."
        allowed = get_args(field.annotation)
        if allowed and all(isinstance(choice, str) for choice in allowed):
            what = "allowed are " + ", ".join(map(repr, allowed))
        else:
            message = detail["msg"].removeprefix("Value error, ")
            reason = message[:1].lower() + message[1:]
            what = f"{reason} ({field.description})"
        secret = field.annotation is SecretStr or SecretStr in allowed
        value = "the given value" if secret else f"{str(values.get(name))[:80]!r}"
        return f"{shown.get(name, name)}: {value} is not possible; {what}."

    def table(self) -> dict[str, str]:
        """Every option and its value as text, for the log and the ops panel; secrets are masked."""
        return {name: str(getattr(self, name)) for name in type(self).model_fields}


def _unknown(given: str, name: str, known: set[str]) -> str:
    close = difflib.get_close_matches(name, known, n=3, cutoff=0.6)
    style = (lambda option: PREFIX + option.upper()) if given.upper().startswith(PREFIX) else str
    if close:
        return f"{given} is not a setting; did you mean {' or '.join(style(option) for option in close)}?"
    return f"{given} is not a setting; known are {', '.join(style(option) for option in sorted(known))}."
