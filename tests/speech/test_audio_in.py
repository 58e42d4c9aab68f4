"""Prompt clips: every way a file can be bad has its own code, and what is good comes out mono, level and bounded."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
import soundfile

from cosyui.errors import InputError
from cosyui.speech.audio_in import ClipReport, load_clip

RATE = 24_000


def voice(seconds: float = 6.0, rate: int = RATE, level: float = 0.2) -> np.ndarray:
    """Something with syllables: a buzz whose loudness goes up and down four times a second."""
    time = np.arange(int(seconds * rate)) / rate
    buzz = sum(np.sin(2 * np.pi * 120 * k * time) / k for k in range(1, 6))
    return (level * buzz * (0.55 + 0.45 * np.sin(2 * np.pi * 4 * time))).astype(np.float32)


def encoded(wave: np.ndarray, rate: int = RATE, form: str = "WAV", subtype: str | None = None) -> bytes:
    stream = io.BytesIO()
    soundfile.write(stream, wave, rate, format=form, subtype=subtype)
    return stream.getvalue()


def rms_db(wave: np.ndarray) -> float:
    return float(10 * np.log10(np.mean(np.square(wave, dtype=np.float64))))


NOT_FINITE = voice()
NOT_FINITE[1000:1010] = np.nan
INFINITE = voice()
INFINITE[7] = np.inf
NOISE = np.random.default_rng(0).normal(0, 1e-4, 5 * RATE).astype(np.float32)
WAV = encoded(voice())

REFUSED = {
    "none": (None, "clip_missing"),
    "no file": (Path("/nonexistent/clip.wav"), "clip_missing"),
    "folder": (Path(__file__).parent, "clip_unreadable"),
    "0 bytes": (b"", "clip_empty_file"),
    "6 bytes": (b"RIFF12", "clip_unreadable"),
    "header only": (encoded(np.zeros(0, np.float32)), "clip_empty_file"),
    "text": (b"this is no audio file at all, but it is long enough" * 20, "clip_unreadable"),
    "picture": (b"\x89PNG\r\n\x1a\n" + bytes(2000), "clip_unreadable"),
    "0.02 s": (encoded(voice(0.02)), "clip_too_short"),
    "2.9 s": (encoded(voice(2.9)), "clip_too_short"),
    "31 s": (encoded(voice(31)), "clip_too_long"),
    "digital silence": (encoded(np.zeros(5 * RATE, np.float32)), "clip_silent"),
    "noise at -80 dBFS": (encoded(NOISE, subtype="FLOAT"), "clip_silent"),
    "constant": (encoded(np.full(5 * RATE, 0.5, np.float32), subtype="FLOAT"), "clip_silent"),
    "NaN": (encoded(NOT_FINITE, subtype="FLOAT"), "clip_not_finite"),
    "infinity": (encoded(INFINITE, subtype="FLOAT"), "clip_not_finite"),
    "4 kHz": (encoded(voice(rate=4000), 4000), "clip_sample_rate"),
    "12 channels": (encoded(np.stack([voice()] * 12, axis=1)), "clip_unreadable"),
}


@pytest.mark.parametrize(("source", "code"), REFUSED.values(), ids=REFUSED.keys())
def test_refused_clips(source: Path | bytes | None, code: str) -> None:
    with pytest.raises(InputError) as caught:
        load_clip(source)
    assert (caught.value.code, caught.value.field) == (code, "clip")
    assert len(caught.value.message) > 20


def test_messages_state_the_length_and_the_limit() -> None:
    with pytest.raises(InputError, match=r"2\.9 s .* 3 s"):
        load_clip(encoded(voice(2.9)))
    with pytest.raises(InputError, match="30 s"):
        load_clip(encoded(voice(31)))


def test_a_file_over_the_size_limit_is_not_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(soundfile, "SoundFile", lambda *_: pytest.fail("was opened"))
    with pytest.raises(InputError) as caught:
        load_clip(WAV, max_bytes=len(WAV) - 1)
    assert caught.value.code == "clip_too_large"


@pytest.mark.parametrize(
    ("form", "subtype"),
    [("WAV", "PCM_16"), ("WAV", "PCM_24"), ("WAV", "FLOAT"), ("WAV", "PCM_U8"), ("FLAC", "PCM_16"), ("OGG", "VORBIS"),
     ("OGG", "OPUS"), ("MP3", "MPEG_LAYER_III")],
)  # fmt: skip
def test_formats(form: str, subtype: str) -> None:
    clip, report = load_clip(encoded(voice(), form=form, subtype=subtype))
    assert clip.samples.dtype == np.float32
    assert clip.samples.ndim == 1
    assert clip.sample_rate == report.sample_rate == RATE
    assert report.seconds == pytest.approx(6.0, abs=0.1)
    assert abs(rms_db(clip.samples) - rms_db(voice())) < 1.0
    assert report.warnings == ()


@pytest.mark.parametrize("rate", [8_000, 11_025, 16_000, 44_100, 48_000, 192_000])
def test_rates_are_kept(rate: int) -> None:
    clip, report = load_clip(encoded(voice(rate=rate), rate))
    assert clip.sample_rate == rate
    assert clip.seconds == pytest.approx(6.0)
    assert any("telephone" in warning for warning in report.warnings) == (rate < 16_000)


def test_a_path_and_its_bytes_give_the_same_key(tmp_path: Path) -> None:
    path = tmp_path / "语音 “a” .. clip"
    path.write_bytes(WAV)
    assert load_clip(path)[0].key == load_clip(WAV)[0].key


STEREO = {
    "equal": (lambda wave: (wave, wave), 0.0),
    "opposite phase": (lambda wave: (wave, -wave), 0.0),
    "left only": (lambda wave: (wave, 0 * wave), -6.0),
    "nearly opposite": (lambda wave: (wave, -0.95 * wave), 0.0),
}


@pytest.mark.parametrize(("channels", "level"), STEREO.values(), ids=STEREO.keys())
def test_downmix_never_cancels(channels, level: float) -> None:
    wave = voice()
    clip, report = load_clip(encoded(np.stack(channels(wave), axis=1)))
    assert report.channels == 2
    assert rms_db(clip.samples) - rms_db(wave) == pytest.approx(level, abs=0.5)


def test_dc_is_removed() -> None:
    clip, _ = load_clip(encoded(voice() + np.float32(0.2), subtype="FLOAT"))
    assert abs(float(clip.samples.mean())) < 1e-5


def test_a_quiet_clip_is_raised_and_said_so() -> None:
    quiet, report = load_clip(encoded(voice(level=0.005), subtype="FLOAT"))
    assert report.rms_dbfs < -40
    assert any("quiet" in warning for warning in report.warnings)
    assert -30 < rms_db(quiet.samples) < -20
    assert float(np.abs(quiet.samples).max()) <= 0.95


def test_clipping_and_loudness_are_reported() -> None:
    clip, report = load_clip(encoded(np.clip(voice(level=2.0), -1, 1)))
    assert any("clipped" in warning for warning in report.warnings)
    assert report.peak_dbfs > -1.5
    assert float(np.abs(clip.samples).max()) <= 1.0


@pytest.mark.parametrize(("seconds", "advised"), [(3.5, True), (6.0, False), (12.5, False), (25.0, True)])
def test_length_advice(seconds: float, advised: bool) -> None:
    _, report = load_clip(encoded(voice(seconds)))
    assert any("5-13 seconds" in warning for warning in report.warnings) == advised


def test_a_file_cut_in_the_middle_gives_what_it_has() -> None:
    clip, report = load_clip(WAV[: len(WAV) * 2 // 3])
    assert isinstance(report, ClipReport)
    assert clip.seconds == pytest.approx(4.0, abs=0.1)


class Counted:
    """Stands for a file of hours: counts the frames that are asked for."""

    samplerate, channels, frames = 16_000, 1, 1 << 36
    asked = 0

    def __init__(self, *_: object) -> None:
        Counted.asked = 0

    def __enter__(self) -> Counted:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def read(self, frames: int, **_: object) -> np.ndarray:
        Counted.asked += frames
        return np.zeros((frames, 1), np.float32)


def test_decoding_stops_at_the_limit_whatever_the_header_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(soundfile, "SoundFile", Counted)
    with pytest.raises(InputError) as caught:
        load_clip(b"x")
    assert caught.value.code == "clip_too_long"
    assert Counted.asked == 31 * 16_000
