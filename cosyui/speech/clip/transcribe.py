"""What is said in a prompt clip, written down by a speech recogniser: optional, behind one interface."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from cosyui.errors import CosyuiError, InputError, SetupError

INSTALL = 'pip install "faster-whisper"'
DEFAULT_MODEL = "small"
_RATE = 16_000
_STYLE = {"zh": "以下是普通话的句子，用简体中文和标点符号。"}
"""A beginning that the model goes on from: it decides script and punctuation."""


@dataclass(frozen=True)
class Transcript:
    """``language`` is a code such as ``en`` or ``zh``."""

    text: str
    language: str


class Transcriber(Protocol):
    """A speech recogniser. Blocking, and may take many seconds at the first call; call it from a thread."""

    def __call__(self, samples: NDArray[np.float32], rate: int, language: str | None = None) -> Transcript:
        """Mono float32 samples (S,) in [-1, 1] at ``rate`` Hz to text; None lets it tell the language.

        Raises InputError ``transcript_not_heard`` (field ``transcript``), CosyuiError ``transcriber_failed``.
        """
        ...


class FasterWhisper:
    """Whisper on the CPU. ``model`` is a name (downloaded at the first use) or a folder in CTranslate2's format."""

    def __init__(self, model: str = DEFAULT_MODEL, threads: int = 0) -> None:
        self._name = model
        self._threads = threads
        self._model: Any = None
        self._lock = threading.Lock()

    def __call__(self, samples: NDArray[np.float32], rate: int, language: str | None = None) -> Transcript:
        """One clip at a time."""
        import soxr

        wave = soxr.resample(samples, rate, _RATE)
        with self._lock:
            try:
                return self._heard(wave, language)
            except (OSError, ValueError, RuntimeError) as error:
                message = f"The speech recogniser failed ({type(error).__name__}). Type the transcript instead."
                raise CosyuiError("transcriber_failed", message, "transcript") from error

    def _heard(self, wave: NDArray[np.float32], language: str | None) -> Transcript:
        model = self._loaded()
        if language is None:
            language = str(model.detect_language(wave)[0])
        segments, _ = model.transcribe(
            wave,
            language=language,
            initial_prompt=_STYLE.get(language),
            condition_on_previous_text=False,
            without_timestamps=True,
        )
        return _transcript("".join(segment.text for segment in segments), language)

    def _loaded(self) -> Any:
        if self._model is None:
            import httpx
            from faster_whisper import WhisperModel

            try:
                self._model = WhisperModel(self._name, "cpu", compute_type="int8", cpu_threads=self._threads)
            except httpx.HTTPError as error:
                raise OSError("the model could not be downloaded") from error
        return self._model


class FakeTranscriber:
    """Hears the length of the clip; for tests of what is around it."""

    def __call__(self, samples: NDArray[np.float32], rate: int, language: str | None = None) -> Transcript:
        return _transcript(f"A clip of {len(samples) / rate:.1f} seconds.", language or "en")


def find_transcriber(setting: str) -> Transcriber | None:
    """``off``; ``auto``: the default model when its package is there; ``fake``; or the name or folder of a model.

    Raises SetupError ``package_missing`` when a model is named but cannot be used.
    """
    if setting == "off":
        return None
    if setting == "fake":
        return FakeTranscriber()
    if find_spec("faster_whisper") is not None:
        return FasterWhisper(DEFAULT_MODEL if setting == "auto" else setting)
    if setting == "auto":
        return None
    raise SetupError("package_missing", f"COSYUI_TRANSCRIBER={setting} needs a package: {INSTALL}")


def _transcript(text: str, language: str) -> Transcript:
    text = " ".join(text.split())
    if not any(char.isalnum() for char in text):
        message = "No words were heard in the clip. Type what is said in it, or use another clip."
        raise InputError("transcript_not_heard", message, "transcript")
    return Transcript(text, language)
