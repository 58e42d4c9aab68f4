"""Prompt clips: every way one can be bad has its code; what is good comes out mono, level, trimmed and bounded."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from clips_made import RATE, at_rate, by_av, click, encoded, noise, real, rms_db, silence, table_bomb

from cosyui.errors import InputError
from cosyui.hub import EMBEDDED_FOLDER
from cosyui.model.prompt_encoders import SPEAKER_FILE, SpeakerEncoder
from cosyui.speech.clip.intake import CUT_SECONDS, MARGIN, TARGET_DBFS, load_clip
from cosyui.speech.features import kaldi_fbank

WAVE = real()
WAV = encoded(WAVE)
SPEECH = (0.0, 6.98)
"""Where the speech of that clip lies, by hand."""


def quiet(seconds: float) -> np.ndarray:
    return np.zeros(round(seconds * RATE), np.float32)


def spoilt(value: float, count: int) -> bytes:
    wave = WAVE.copy()
    wave[1000 : 1000 + count] = value
    return encoded(wave, subtype="FLOAT")


def long(seconds: float) -> np.ndarray:
    """A real recording of some length: two voices' sentences in turn, with pauses."""
    both = np.concatenate([WAVE, quiet(0.5), real("zh_SSB0133"), quiet(0.4)])
    return np.resize(both, round(seconds * RATE))


REFUSED = {
    "none": (None, "clip_missing"),
    "no file": (Path("/nonexistent/clip.wav"), "clip_missing"),
    "folder": (Path(__file__).parent, "clip_unreadable"),
    "0 bytes": (b"", "clip_empty_file"),
    "6 bytes": (b"RIFF12", "clip_unreadable"),
    "header only": (encoded(quiet(0)), "clip_empty_file"),
    "tables of an m4a too long": (table_bomb(by_av(WAVE, "ipod", "aac")), "clip_unreadable"),
    "0.02 s": (encoded(WAVE[: RATE // 50]), "clip_too_short"),
    "0.3 s": (encoded(WAVE[: RATE * 3 // 10]), "clip_too_short"),
    "0.9 s": (encoded(WAVE[: RATE * 9 // 10]), "clip_too_short"),
    "2.9 s": (encoded(WAVE[: RATE * 29 // 10]), "clip_too_short"),
    "31 s": (encoded(long(31)), "clip_too_long"),
    "35 s": (encoded(long(35)), "clip_too_long"),
    "59 s": (encoded(long(59)), "clip_too_long"),
    "3 h": (silence(3), "clip_far_too_long"),
    "digital silence": (encoded(quiet(5)), "clip_silent"),
    "noise at -80 dBFS": (encoded(noise(5, -80), subtype="FLOAT"), "clip_silent"),
    "constant": (encoded(np.full(5 * RATE, 0.5, np.float32), subtype="FLOAT"), "clip_silent"),
    "a word in silence": (encoded(np.concatenate([quiet(3), WAVE[: RATE // 2], quiet(3)])), "clip_no_speech"),
    "clicks in silence": (encoded(np.concatenate([quiet(2), click(), quiet(2), click(), quiet(1)])), "clip_silent"),
    "a room": (encoded(noise(5, -55)), "clip_no_speech"),
    "much NaN": (spoilt(np.nan, 500), "clip_not_finite"),
    "much infinity": (spoilt(np.inf, 500), "clip_not_finite"),
    "4 kHz": (encoded(at_rate(WAVE, RATE, 4000), 4000), "clip_sample_rate"),
    "12 channels": (encoded(np.stack([WAVE] * 12, axis=1)), "clip_channels"),
}


@pytest.mark.parametrize(("source", "code"), REFUSED.values(), ids=REFUSED.keys())
def test_refused_clips(source: Path | bytes | None, code: str) -> None:
    with pytest.raises(InputError) as caught:
        load_clip(source)
    assert (caught.value.code, caught.value.field) == (code, "clip")
    assert len(caught.value.message) > 20


def test_messages_state_what_was_measured_and_the_limit() -> None:
    with pytest.raises(InputError, match=r"2\.9 s .* 3 s"):
        load_clip(encoded(WAVE[: RATE * 29 // 10]))
    with pytest.raises(InputError, match=r"3[01]\.\d s .* 30 s.*best part.*transcribe.*cross-lingual"):
        load_clip(encoded(np.resize(WAVE[: 6 * RATE], 31 * RATE)))


def test_a_file_over_the_size_limit_is_not_read_whole(tmp_path: Path) -> None:
    path = tmp_path / "large.wav"
    path.write_bytes(WAV)
    for source in (path, WAV):
        with pytest.raises(InputError) as caught:
            load_clip(source, max_bytes=len(WAV) - 1)
        assert caught.value.code == "clip_too_large"


VERSIONS = {
    "48 kHz 24 bit stereo": (lambda: encoded(stereo(48_000), 48_000, subtype="PCM_24"), 0.99),
    "44.1 kHz stereo mp3": (lambda: encoded(stereo(44_100), 44_100, "MP3"), 0.95),
    "192 kHz 32 bit float": (lambda: encoded(at_rate(WAVE, RATE, 192_000), 192_000, subtype="FLOAT"), 0.99),
    "22.05 kHz": (lambda: encoded(at_rate(WAVE, RATE, 22_050), 22_050), 0.99),
    "m4a": (lambda: by_av(WAVE, "ipod", "aac"), 0.95),
    "webm": (lambda: by_av(at_rate(WAVE, RATE, 48_000), "webm", "libopus", 48_000), 0.95),
    "opposite phase": (lambda: encoded(np.stack([WAVE, -WAVE], axis=1)), 0.99),
    "-50 dBFS": (lambda: encoded(WAVE * 10 ** ((-50 - rms_db(WAVE)) / 20), subtype="PCM_24"), 0.99),
    "dead air": (lambda: encoded(np.concatenate([quiet(1.5), WAVE, quiet(2)])), 0.95),
}


def stereo(rate: int) -> np.ndarray:
    wave = at_rate(WAVE, RATE, rate)
    return np.stack([wave, 0.8 * wave], axis=1)


@pytest.fixture(scope="module")
def voice_of():
    """The speaker vector of a clip, by the embedded checkpoint's encoder."""
    encoder = SpeakerEncoder(EMBEDDED_FOLDER / SPEAKER_FILE)

    def vector(data: bytes) -> np.ndarray:
        clip, _ = load_clip(data)
        assert np.isfinite(clip.samples).all()
        found = encoder(kaldi_fbank(at_rate(clip.samples, clip.sample_rate, RATE)))
        assert np.isfinite(found).all()
        return found / np.linalg.norm(found)

    return vector


@pytest.mark.parametrize(("make", "least"), VERSIONS.values(), ids=VERSIONS.keys())
def test_every_version_of_a_clip_is_the_same_voice(voice_of, make, least: float) -> None:
    assert float(voice_of(make()) @ voice_of(WAV)) > least


@pytest.mark.parametrize("subtype", ["ULAW", "ALAW"])
@pytest.mark.parametrize("channels", [1, 2])
def test_telephone_recordings_work_with_a_remark(subtype: str, channels: int) -> None:
    wave = np.repeat(at_rate(WAVE, RATE, 8_000)[:, None], channels, axis=1)
    clip, report = load_clip(encoded(wave, 8_000, subtype=subtype))
    assert clip.sample_rate == report.sample_rate == 8_000
    assert report.channels == channels
    assert codes(report) == ["clip_narrow"]


def test_telephone_sound_at_a_high_rate_is_told_too() -> None:
    narrow = at_rate(at_rate(WAVE, RATE, 8_000), 8_000, 48_000)
    assert codes(load_clip(encoded(narrow, 48_000))[1]) == ["clip_narrow"]


def codes(report) -> list[str]:
    return [notice.code for notice in report.notices]


REMARKS = {
    "good": (WAVE, []),
    "short": (WAVE[: 4 * RATE], ["clip_short"]),
    "long": (long(20), ["clip_long"]),
    "little speech": (np.concatenate([WAVE[: 2 * RATE], quiet(3)]), ["clip_trimmed", "clip_little_speech"]),
    "quiet": (WAVE * 0.05, ["clip_quiet"]),
    "overdriven": (np.clip(WAVE * 8, -1, 1), ["clip_clipped"]),
    "noisy": (WAVE[: 6 * RATE] + noise(6, -32), ["clip_noisy"]),
    "drowned in noise": (WAVE[: 6 * RATE] + noise(6, -22), ["clip_noisy"]),
    "a steady sound": (np.sin(np.arange(6 * RATE, dtype=np.float32) / 14) / 3, ["clip_noisy", "clip_narrow"]),
    "opposite channels": (np.stack([WAVE, -WAVE], axis=1), ["clip_opposite"]),
}


@pytest.mark.parametrize(("wave", "expected"), REMARKS.values(), ids=REMARKS.keys())
def test_remarks(wave: np.ndarray, expected: list[str]) -> None:
    _, report = load_clip(encoded(wave, subtype="PCM_24"))
    assert codes(report) == expected
    assert all("{" not in str(notice) for notice in report.notices)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_few_damaged_samples_are_repaired(bad: float) -> None:
    clip, report = load_clip(spoilt(bad, 11))
    assert codes(report) == ["clip_repaired"]
    assert dict(report.changes[0].values) == {"count": 11}
    assert np.isfinite(clip.samples).all()
    assert float(np.abs(clip.samples).max()) <= 0.95


@pytest.mark.parametrize("level", [0.01, 0.05, 1.0, 2.0, 30_000.0])
def test_level_of_the_prompt_does_not_depend_on_the_recording(level: float) -> None:
    clip, _ = load_clip(encoded(WAVE * np.float32(level) + np.float32(0.1 * level), subtype="FLOAT"))
    assert rms_db(clip.samples) == pytest.approx(TARGET_DBFS, abs=1.0)
    assert float(np.abs(clip.samples).max()) <= 0.951
    assert abs(float(clip.samples.mean())) < 0.005


DEAD_AIR = {
    "silence": (quiet, 1.5, 1.0, 0.3),
    "room": (lambda seconds: noise(seconds, -60), 1.5, 1.0, 0.3),
    "loud room, soft ends drowned": (lambda seconds: noise(seconds, -45), 2.5, 3.0, 0.6),
    "none": (quiet, 0.0, 0.0, 0.4),
}


@pytest.mark.parametrize(("air", "before", "after", "exact"), DEAD_AIR.values(), ids=DEAD_AIR.keys())
@pytest.mark.parametrize("clicks", [True, False])
def test_dead_air_and_clicks_are_cut_off(air, before: float, after: float, exact: float, clicks: bool) -> None:
    """A click on the way to the speech and one after it, as a mouse makes them."""
    knock = click() if clicks and before else quiet(0)
    start = np.concatenate([air(before), knock, air(0.25 if before else 0)])
    end = np.concatenate([air(0.25 if after else 0), knock, air(after)])
    inside = air(len(WAVE) / RATE) if before else quiet(len(WAVE) / RATE)
    clip, report = load_clip(encoded(np.concatenate([start, WAVE + inside, end])))
    assert clip.seconds == pytest.approx(SPEECH[1] - SPEECH[0] + 2 * MARGIN, abs=exact)
    assert report.seconds == pytest.approx((len(start) + len(WAVE) + len(end)) / RATE, abs=0.01)
    head = clip.samples[: round(0.1 * RATE)]
    if clicks and before:
        assert np.abs(head).max() < 0.05
    assert ("clip_trimmed" in codes(report)) == (before > 0)


def test_pauses_inside_stay() -> None:
    clip, report = load_clip(encoded(np.concatenate([WAVE[: 4 * RATE], quiet(2), WAVE[4 * RATE :]])))
    assert clip.seconds == pytest.approx(SPEECH[1] + 2, abs=0.3)
    assert report.speech_seconds < clip.seconds - 1.5


def test_a_click_inside_speech_stays() -> None:
    wave = WAVE.copy()
    wave[3 * RATE : 3 * RATE + len(click())] += click()
    assert load_clip(encoded(wave))[0].seconds == pytest.approx(load_clip(WAV)[0].seconds, abs=0.05)


SPOILT = {
    "overdriven": lambda wave: np.clip(6 * wave, -1, 1),
    "noisy": lambda wave: wave + noise(len(wave) / RATE, -38),
    "mostly pauses": lambda wave: wave * (np.arange(len(wave)) // RATE % 4 == 0),
}


@pytest.mark.parametrize("seconds", [31, 59, 110])
@pytest.mark.parametrize("spoil", SPOILT.values(), ids=SPOILT.keys())
def test_a_long_recording_is_cut_to_its_best_part(spoil, seconds: int) -> None:
    """The only good stretch is the last one: most of the clip comes from there."""
    good = np.concatenate([quiet(0.5), WAVE, quiet(0.4), WAVE[: 4 * RATE], quiet(0.5)])
    bad = spoil(np.resize(np.concatenate([WAVE, quiet(0.5)]), round(seconds * RATE) - len(good)))
    clip, report = load_clip(encoded(np.concatenate([bad, good])), cut_over=30.0)
    assert report.cut
    assert 8.0 < clip.seconds <= CUT_SECONDS
    before_good = seconds - len(good) / RATE - dict(report.changes[0].values)["start"]
    assert before_good < clip.seconds / 2
    assert rms_db(clip.samples) == pytest.approx(TARGET_DBFS, abs=3)


def test_the_best_part_begins_and_ends_in_pauses() -> None:
    clip, _ = load_clip(encoded(np.tile(long(14.28), 3)), cut_over=30.0)
    edge = round(0.05 * clip.sample_rate)
    assert max(rms_db(clip.samples[:edge]), rms_db(clip.samples[-edge:])) < TARGET_DBFS - 20


def test_speech_without_a_pause_is_cut_all_the_same() -> None:
    dense = np.resize(WAVE[RATE : 5 * RATE], 40 * RATE)
    clip, report = load_clip(encoded(dense), cut_over=30.0)
    assert report.cut
    assert 6.0 < clip.seconds <= CUT_SECONDS


def test_nothing_is_cut_below_the_limit() -> None:
    clip, report = load_clip(encoded(long(25)), cut_over=30.0)
    assert not report.cut
    assert clip.seconds == pytest.approx(25, abs=0.8)


def test_names_do_not_matter(tmp_path: Path) -> None:
    keys = set()
    for name in ("语音 “a” .. clip", "clip.raw", "clip.mp3", ".hidden", "x" * 240, "😀___..."):
        (tmp_path / name).write_bytes(WAV)
        keys.add(load_clip(tmp_path / name)[0].key)
    assert keys == {load_clip(WAV)[0].key}
