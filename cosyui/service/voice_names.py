"""The voices that a request can name instead of sending a clip."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

EXAMPLES = Path(__file__).parents[1] / "assets" / "examples"
EXAMPLE_TRANSCRIPTS: dict[Literal["en", "zh"], str] = {
    "en": "Teaching was, of course, the first thing that suggested itself.",
    "zh": "当年就在沂州府和沂水县建立了分驻地。",
}
OPENAI_VOICES = (
    "alloy",
    "ash",
    "ballad",
    "cedar",
    "coral",
    "echo",
    "fable",
    "marin",
    "nova",
    "onyx",
    "sage",
    "shimmer",
    "verse",
)
"""Names that programs written for OpenAI send; all of them are the built-in voice ``en``."""


@dataclass(frozen=True)
class VoiceData:
    """A prompt clip and what is said in it; without a transcript it is used across languages."""

    clip: Path | bytes
    transcript: str = ""
    language: str | None = None


class Voices(Protocol):
    """Called from threads."""

    def find(self, name: str) -> VoiceData | None:
        """The voice of this name, None if there is none."""

    def list(self) -> Sequence[str]:
        """All names, each once."""


class BuiltInVoices:
    """The two examples of the page, the English one also under OpenAI's names."""

    def find(self, name: str) -> VoiceData | None:
        if name in OPENAI_VOICES:
            name = "en"
        for language, transcript in EXAMPLE_TRANSCRIPTS.items():
            if name == language:
                return VoiceData(EXAMPLES / f"{language}.wav", transcript, language)
        return None

    def list(self) -> Sequence[str]:
        return (*EXAMPLE_TRANSCRIPTS, *OPENAI_VOICES)
