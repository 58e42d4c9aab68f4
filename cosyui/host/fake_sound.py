"""What is asked of the fake engine in a text, and the sound that it makes of it: a tone per request and segment.

The pitch comes from the request's id and the number of the segment, so that a test can tell whose audio it hears, and
which part of it.
"""

from __future__ import annotations

import hashlib
import math
import re

import numpy as np

from cosyui.engine.request import SAMPLE_RATE, SynthesisRequest
from cosyui.errors import SetupError

DIRECTIVES = {
    "slow": "each chunk takes this many seconds (0.2)",
    "seconds": "this much speech, instead of a length that suits the text",
    "chunks": "this many chunks, instead of one per half second",
    "segments": "this many segments of equal length, with pauses between; a long request has one per 80 characters",
    "bad": "the segment of this number comes out bad at first and is made again",
    "bad_always": "the segment of this number comes out bad again and again",
    "fail": "fail after the first chunk, with this code (output_bad)",
    "oom": "fail with out_of_memory",
    "empty": "finish without any audio",
    "die": "kill the process after the first chunk; the retry goes well",
    "die_always": "kill the process after the first chunk, every time",
    "hold": "after the first chunk, wait until cancelled or until the script's release file exists",
    "gpu": "tell of memory as on a card of 24 GiB (for all requests only)",
    "leak": "leave so many bytes of that card's memory behind, for ever (1048576)",
    "noise": "write to stdout and stderr, as libraries do",
    "hang": "never come back from a step",
    "degraded": "have failed the self-test (for all requests only)",
    "load_error": "fail to load with checkpoint_missing_file (for all requests only)",
    "load_crash": "kill the process while loading (for all requests only)",
    "load_hold": "while loading, wait at the stage of this name until the release file exists (for all requests only)",
    "load_hang": "never finish loading (for all requests only)",
}
_DIRECTIVE = re.compile(r"\[fake:([a-z_]+)(?:=([\w.]+))?\]")
SEGMENT_CHARS = 80
PAUSE_SECONDS = 0.25


def directives(text: str) -> dict[str, str]:
    """The directives in a text with their values; SetupError for one that does not exist."""
    found = dict(_DIRECTIVE.findall(text))
    for name in found:
        if name not in DIRECTIVES:
            raise SetupError("setting_invalid", f"The fake engine knows no {name!r}; it knows {', '.join(DIRECTIVES)}.")
    return found


def tone_hz(request_id: str, segment: int = 0) -> int:
    """Pitch of a segment's tone: 200 to 1999 Hz by a hash of the request's id, and 20 Hz more for each segment."""
    base = 200 + int.from_bytes(hashlib.sha256(request_id.encode()).digest()[:4], "big") % 1800
    return base + 20 * (segment % 100)


def speech_seconds(request: SynthesisRequest) -> float:
    """How long the fake speech is without pauses: about as long as a person would take."""
    asked = directives(request.text).get("seconds")
    if asked:
        return float(asked)
    plain = _DIRECTIVE.sub("", request.text)
    return max(1.0, sum(0.22 if ord(character) > 0x2E7F else 0.065 for character in plain)) / request.speed


def segment_count(request: SynthesisRequest) -> int:
    asked = directives(request.text).get("segments")
    if asked:
        return int(asked)
    return math.ceil(len(_DIRECTIVE.sub("", request.text)) / SEGMENT_CHARS) if request.long else 1


def segment_pcm(request: SynthesisRequest, segment: int) -> bytes:
    """One segment and the pause before it: int16 PCM at 24 kHz, the same each time."""
    samples = round(speech_seconds(request) / segment_count(request) * SAMPLE_RATE)
    wave = 0.3 * np.sin(2 * np.pi * tone_hz(request.id, segment) * np.arange(samples) / SAMPLE_RATE)
    pause = bytes(2 * round(PAUSE_SECONDS * SAMPLE_RATE)) if segment else b""
    return pause + (wave * 32767).astype("<i2").tobytes()


def fake_pcm(request: SynthesisRequest) -> bytes:
    """All audio of a request."""
    return b"".join(segment_pcm(request, segment) for segment in range(segment_count(request)))
