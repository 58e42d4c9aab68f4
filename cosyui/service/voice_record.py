"""A saved voice: what is kept of it, and the rules for its words. Whoever makes one, by whatever way, meets these."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from cosyui.engine.request import Mode
from cosyui.errors import InputError
from cosyui.service.checks import transcript_problem
from cosyui.service.types import TakeForm
from cosyui.settings import Settings
from cosyui.speech.text.language import language_code

ID_PATTERN = r"^voice_[0-9a-f]{24}$"
LONGEST_NAME = 80
LONGEST_CONSENT = 1_000
_CONTROLS = ("Cc", "Cs", "Zl", "Zp")
"""Control characters, halves of characters, ends of lines and paragraphs."""
_BIDI = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
"""They change the order in which the words around them are shown."""


class VoiceWords(BaseModel):
    """What people say of a voice: this goes out with it, too."""

    model_config = ConfigDict(frozen=True, strict=True)

    name: str
    transcript: str = ""
    language: str | None = None
    consent: str = ""


class Voice(VoiceWords):
    """``id`` is drawn, ``name`` shown as it was given. Without a transcript it is used across languages.

    ``consent``: who agreed that it is used. ``created``: seconds since 1970. ``maker``: the client that made it, by the
    beginning of its key's hash; empty for nobody's. ``clip``: the SHA-256 of its WAV file, ``seconds`` its length.
    """

    id: str = Field(pattern=ID_PATTERN)
    created: int
    maker: str = ""
    clip: str = Field(pattern=r"^[0-9a-f]{64}$")
    seconds: float


@dataclass(frozen=True)
class VoiceForm:
    """A voice to be saved, unchecked; ``clip`` is an audio file on disk or the bytes of one."""

    name: str
    clip: Path | bytes | None
    transcript: str = ""
    language: str | None = None
    consent: str = ""
    maker: str = ""


def clean_words(given: Mapping[str, str | None], settings: Settings) -> tuple[VoiceWords, list[InputError]]:
    """The words of a voice as they are kept, and everything wrong with them, in the order of the form."""
    problems: list[InputError] = []
    words: dict[str, str | None] = {"name": ""}
    rules: dict[str, Callable[[str], str | None]] = {
        "name": clean_name,
        "transcript": lambda text: _clean_transcript(text, settings),
        "language": language_code,
        "consent": _clean_consent,
    }
    for field, clean in rules.items():
        try:
            words[field] = clean(given.get(field) or "")
        except InputError as problem:
            problems.append(problem)
    return VoiceWords.model_validate(words), problems


def clean_name(given: str) -> str:
    """Raises InputError ``voice_name_missing``, ``voice_name_too_long`` or ``voice_name_invalid``, field ``name``."""
    name = normal(given)
    if not any(unicodedata.category(char)[0] in "LNPS" for char in name):
        raise InputError("voice_name_missing", "Give the voice a name.", "name")
    if len(name) > LONGEST_NAME:
        message = f"The name has {len(name)} characters; at most {LONGEST_NAME} are possible."
        raise InputError("voice_name_too_long", message, "name")
    if any(unicodedata.category(char) in _CONTROLS or char in _BIDI for char in name):
        message = "The name has a line break, or a character that cannot be seen and changes how others are shown."
        raise InputError("voice_name_invalid", message, "name")
    return name


def normal(name: str) -> str:
    """Equal for names that look the same because their characters are only coded in two ways."""
    return unicodedata.normalize("NFC", name).strip()


def name_key(name: str) -> str:
    """Equal for names that differ in capitals only."""
    return unicodedata.normalize("NFC", normal(name).casefold())


def _clean_transcript(given: str, settings: Settings) -> str:
    text = _plain(given)
    if text:
        problem = transcript_problem(TakeForm("", Mode.ZERO_SHOT, transcript=text), settings)
        if problem is not None:
            raise problem
    return text


def _clean_consent(given: str) -> str:
    text = _plain(given)
    if not text:
        message = "Say who agreed that this voice is used, for example: my own voice."
        raise InputError("consent_missing", message, "consent")
    if len(text) > LONGEST_CONSENT:
        message = f"The note on consent has {len(text)} characters; at most {LONGEST_CONSENT} are possible."
        raise InputError("consent_too_long", message, "consent")
    return text


def _plain(text: str) -> str:
    """Without what is no text: control characters and halves of characters."""
    return "".join(char for char in text if char in "\n\t" or unicodedata.category(char) not in ("Cc", "Cs")).strip()
