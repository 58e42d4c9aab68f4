"""A prompt clip from outside: decoded within bounds, trimmed to its speech, level, with a report in plain words."""

from __future__ import annotations

import io
import math
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from cosyui.engine.request import PromptClip
from cosyui.speech.clip.decode import decode
from cosyui.speech.clip.mix import DECODE_SECONDS, Samples, Sound, refused
from cosyui.speech.clip.report import ClipReport, advice_on, changes_of
from cosyui.speech.clip.voiced import HOP, Speech, find_speech
from cosyui.speech.clip.window import best_window

DEFAULT_MAX_BYTES = 32 << 20
SILENT_DBFS = -65.0
"""The loudest half second of speech below this: nothing was recorded."""
LEAST_SPEECH = 1.0
"""Seconds of speech without which there is no voice to copy."""
MARGIN = 0.2
"""Seconds that are left before and after the speech."""
TARGET_DBFS = -23.0
"""Level that every clip's speech is brought to: the model copies the level of its prompt."""
PEAK_LIMIT = 0.95
REPAIRABLE = 1e-3
"""Share of damaged samples up to which lines are drawn over them."""
CUT_SECONDS = 13.0
"""Length of the best part of a long recording."""


class Limits(NamedTuple):
    """What a clip may be; seconds and bytes."""

    min_seconds: float = 3.0
    max_seconds: float = 30.0
    max_bytes: int = DEFAULT_MAX_BYTES


def load_clip(
    source: Path | bytes | None,
    *,
    min_seconds: float = 3.0,
    max_seconds: float = 30.0,
    max_bytes: int = DEFAULT_MAX_BYTES,
    transcript: str = "",
    cut_over: float | None = None,
) -> tuple[PromptClip, ClipReport]:
    """`read_source`, then `prepare`: a prompt clip from a file or the bytes of one."""
    limits = Limits(min_seconds, max_seconds, max_bytes)
    clip, report = prepare(read_source(source, max_bytes), limits, cut_over=cut_over)
    return replace(clip, transcript=transcript), report


def read_source(source: Path | bytes | None, max_bytes: int) -> bytes:
    """The bytes of a file, read once and never more than allowed.

    Raises InputError (field ``clip``): ``clip_missing``, ``clip_empty_file``, ``clip_too_large``, ``clip_unreadable``.
    """
    if source is None:
        raise refused("clip_missing", "Upload or record a clip of the voice, 3 to 30 seconds long.")
    if isinstance(source, Path):
        try:
            if not source.is_file() and source.exists():
                raise refused("clip_unreadable", "The prompt clip is not a file. Upload an audio file.")
            with source.open("rb") as file:
                source = file.read(max_bytes + 1)
        except OSError:
            raise refused("clip_missing", "The prompt clip is no longer there. Upload it again.") from None
    if not source:
        raise refused("clip_empty_file", "The file of the prompt clip is empty (0 bytes). Upload it again.")
    if len(source) > max_bytes:
        raise refused("clip_too_large", f"The clip's file is too large; {max_bytes / 2**20:.0f} MB are allowed.")
    return source


def prepare(data: bytes, limits: Limits, *, cut_over: float | None = None) -> tuple[PromptClip, ClipReport]:
    """Mono float32 speech in [-1, 1] at its own rate (48 kHz at most), without DC, level, without dead air at the ends.

    Pauses stay as they are, so that a transcript stays true. With ``cut_over``, a clip whose speech is longer than
    that many seconds is cut to its best part; such a report has ``cut`` set, and a transcript of the recording is none
    of the clip.

    Raises InputError (field ``clip``): those of `decode`; ``clip_not_finite``, ``clip_too_short``, ``clip_too_long``
    (it can be cut), ``clip_far_too_long`` (it was not read to its end), ``clip_silent``, ``clip_no_speech``.
    """
    sound = decode(data)
    _check_sound(sound, limits)
    wave = sound.wave - sound.wave.mean(dtype=np.float64).astype(np.float32)
    speech = find_speech(wave, sound.rate)
    _check_speech(speech)
    start, end = speech.edges(MARGIN)
    cut = cut_over is not None and end - start > cut_over
    if cut:
        speech = speech.within(best_window(speech, wave, sound.rate, CUT_SECONDS - 2 * MARGIN))
        start, end = speech.edges(MARGIN)
    elif end - start > limits.max_seconds:
        raise refused("clip_too_long", _too_long(end - start, limits.max_seconds))
    rms = _speech_dbfs(wave, sound.rate, speech)
    wave = wave[round(start * sound.rate) : round(end * sound.rate)]
    report = ClipReport(
        seconds=sound.seconds,
        kept_seconds=len(wave) / sound.rate,
        speech_seconds=speech.seconds,
        sample_rate=sound.file_rate,
        channels=sound.channels,
        bandwidth_hz=speech.bandwidth,
        peak_dbfs=_dbfs(sound.peak),
        rms_dbfs=rms,
        noise_db=speech.above_noise,
        clipped=sound.clipped,
        changes=changes_of(sound, (start, end), cut=cut),
        advice=advice_on(sound, speech, len(wave) / sound.rate, rms, limits.min_seconds),
    )
    return PromptClip(_level(wave, rms), sound.rate), report


def wav_bytes(clip: PromptClip) -> bytes:
    """The clip as a WAV file, 16 bit."""
    import soundfile

    file = io.BytesIO()
    soundfile.write(file, clip.samples, clip.sample_rate, format="WAV", subtype="PCM_16")
    return file.getvalue()


def _check_sound(sound: Sound, limits: Limits) -> None:
    if not sound.whole:
        message = f"The recording is longer than {DECODE_SECONDS:g} s. Cut out 5-13 s of clear speech and upload them."
        raise refused("clip_far_too_long", message)
    if sound.repaired > REPAIRABLE * len(sound.wave) * sound.channels:
        message = "The clip contains many invalid samples (NaN or infinity). Export it again as WAV."
        raise refused("clip_not_finite", message)
    if sound.seconds < limits.min_seconds:
        message = f"The clip is {sound.seconds:.1f} s long; at least {limits.min_seconds:g} s are needed."
        raise refused("clip_too_short", f"{message} 5-13 s work best.")


def _check_speech(speech: Speech) -> None:
    if speech.loud < SILENT_DBFS:
        message = "No speech was found in the clip: it is silent. Check the microphone or the file."
        raise refused("clip_silent", message)
    if speech.seconds < LEAST_SPEECH:
        message = f"The clip has only {speech.seconds:.1f} s of speech; at least {LEAST_SPEECH:g} s are needed."
        raise refused("clip_no_speech", f"{message} Record 5-13 s of clear speech.")


def _too_long(seconds: float, limit: float) -> str:
    return (
        f"The clip is {seconds:.1f} s long, longer than {limit:g} s. Use its best part and type or transcribe what is "
        "said in that, or choose the cross-lingual mode, which cuts by itself."
    )


def _speech_dbfs(wave: Samples, rate: int, speech: Speech) -> float:
    """RMS of the runs of speech."""
    hop = HOP * rate
    runs = [wave[round(start * hop) : round(end * hop)] for start, end in speech.runs]
    return _dbfs(math.sqrt(float(np.square(np.concatenate(runs), dtype=np.float64).mean())))


def _level(wave: Samples, rms_dbfs: float) -> Samples:
    """At the target level, as far as its peak allows."""
    gain = min(10 ** ((TARGET_DBFS - rms_dbfs) / 20), PEAK_LIMIT / float(np.abs(wave).max()))
    return (wave * np.float32(gain)).astype(np.float32)


def _dbfs(amplitude: float) -> float:
    return 20 * math.log10(max(amplitude, 1e-9))
