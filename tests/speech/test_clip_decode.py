"""Decoding: every format that people upload, whatever its header says, within bounds of memory."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from clips_made import (
    RATE,
    at_rate,
    by_av,
    changing_rate_mp3,
    claiming,
    encoded,
    real,
    rms_db,
    silence,
    table_bomb,
    with_cover,
)

from cosyui.errors import InputError
from cosyui.speech.clip import pyav
from cosyui.speech.clip.decode import decode, formats
from cosyui.speech.clip.mix import DECODE_SECONDS

WAVE = real()
SECONDS = len(WAVE) / RATE
STEREO = np.stack([WAVE, 0.9 * WAVE], axis=1)
M4A = by_av(WAVE, "ipod", "aac")
MP3 = encoded(WAVE, form="MP3")

FORMATS = {
    "wav 16 bit": encoded(WAVE),
    "wav 24 bit 48 kHz stereo": encoded(at_rate(STEREO, RATE, 48_000), 48_000, subtype="PCM_24"),
    "wav 32 bit float 192 kHz": encoded(at_rate(WAVE, RATE, 192_000), 192_000, subtype="FLOAT"),
    "wav 8 bit": encoded(WAVE, subtype="PCM_U8"),
    "wav mu-law 8 kHz": encoded(at_rate(WAVE, RATE, 8_000), 8_000, subtype="ULAW"),
    "wav A-law 8 kHz stereo": encoded(at_rate(STEREO, RATE, 8_000), 8_000, subtype="ALAW"),
    "wav ADPCM": encoded(WAVE, subtype="IMA_ADPCM"),
    "aiff 22.05 kHz": encoded(at_rate(WAVE, RATE, 22_050), 22_050, "AIFF"),
    "flac 11.025 kHz": encoded(at_rate(WAVE, RATE, 11_025), 11_025, "FLAC"),
    "ogg vorbis": encoded(WAVE, form="OGG", subtype="VORBIS"),
    "ogg opus": encoded(WAVE, form="OGG", subtype="OPUS"),
    "mp3": MP3,
    "mp3 44.1 kHz stereo": encoded(at_rate(STEREO, RATE, 44_100), 44_100, "MP3"),
    "mp3 with a picture of 5 MB": with_cover(MP3, 5 << 20),
    "mp3 of changing rate without index": changing_rate_mp3(WAVE),
    "m4a aac": M4A,
    "m4a alac": by_av(WAVE, "ipod", "alac"),
    "mp4 aac 44.1 kHz": by_av(at_rate(WAVE, RATE, 44_100), "mp4", "aac", 44_100),
    "aac": by_av(WAVE, "adts", "aac"),
    "webm opus": by_av(at_rate(WAVE, RATE, 48_000), "webm", "libopus", 48_000),
    "matroska pcm": by_av(WAVE, "matroska", "pcm_s16le"),
    "amr": by_av(at_rate(WAVE, RATE, 8_000), "amr", "libopencore_amrnb", 8_000, 12_200),
    "wma": by_av(at_rate(WAVE, RATE, 44_100), "asf", "wmav2", 44_100, 128_000),
    "caf": by_av(WAVE, "caf", "pcm_s16le"),
}


@pytest.mark.parametrize("data", FORMATS.values(), ids=FORMATS.keys())
def test_formats_give_the_sound_that_went_in(data: bytes) -> None:
    sound = decode(data)
    assert sound.wave.dtype == np.float32
    assert sound.wave.ndim == 1
    assert sound.seconds == pytest.approx(SECONDS, rel=0.02)
    assert rms_db(sound.wave) == pytest.approx(rms_db(WAVE), abs=1.5)
    assert sound.rate == min(sound.file_rate, 48_000)
    assert sound.whole


UNREADABLE = {
    "6 bytes": b"RIFF12",
    "text": b"this is no audio file at all, but it is long enough" * 20,
    "picture": b"\x89PNG\r\n\x1a\n" + bytes(2000),
    "m4a without its table": M4A[: len(M4A) // 2],
    "playlist": b"#EXTM3U\n#EXT-X-TARGETDURATION:10\n#EXTINF:7,\n{path}\n#EXT-X-ENDLIST\n",
    "list of files": b"ffconcat version 1.0\nfile '{path}'\n",
    "stream description": b"v=0\no=- 0 0 IN IP4 127.0.0.1\ns=x\nc=IN IP4 127.0.0.1\nm=audio 9 RTP/AVP 0\n",
    "manifest": b'<?xml version="1.0"?><MPD xmlns="urn:mpeg:dash:schema:mpd:2011"><BaseURL>{path}</BaseURL></MPD>',
}


@pytest.mark.parametrize("data", UNREADABLE.values(), ids=UNREADABLE.keys())
def test_what_is_no_recording_is_refused_with_the_formats_that_work(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "inside.aac").write_bytes(FORMATS["aac"])
    with pytest.raises(InputError) as caught:
        decode(data.replace(b"{path}", str(tmp_path / "inside.aac").encode()))
    assert caught.value.code == "clip_unreadable"
    assert caught.value.message.endswith(f"These formats work: {formats()}.")


@pytest.mark.parametrize("kind", ["wav 16 bit", "mp3", "webm opus", "aac"])
def test_a_file_cut_in_the_middle_gives_what_it_has(kind: str) -> None:
    data = FORMATS[kind]
    sound = decode(data[: len(data) * 2 // 3])
    assert sound.seconds == pytest.approx(SECONDS * 2 / 3, rel=0.1)
    assert np.isfinite(sound.wave).all()


def test_a_header_is_not_believed() -> None:
    sound = decode(claiming(encoded(WAVE, form="FLAC"), (1 << 36) - 1))
    assert sound.seconds == pytest.approx(SECONDS, abs=0.1)
    assert sound.whole


@pytest.mark.parametrize("share", [0.25, 4.0])
def test_length_of_an_mp3_is_what_is_in_it(share: float) -> None:
    index = MP3.index(b"Xing") if b"Xing" in MP3 else MP3.index(b"Info")
    frames = int.from_bytes(MP3[index + 8 : index + 12])
    wrong = MP3[: index + 8] + round(frames * share).to_bytes(4) + MP3[index + 12 :]
    assert decode(wrong).seconds == pytest.approx(SECONDS, rel=0.02)


def test_what_a_browser_records_has_no_length_in_its_header() -> None:
    data = FORMATS["webm opus"]
    assert b"\x44\x89" in data[:500]
    sound = decode(data.replace(b"\x44\x89", b"\x4d\x80", 1))  # the duration becomes another element
    assert sound.seconds == pytest.approx(SECONDS, rel=0.02)


def test_without_the_general_decoder_the_others_still_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pyav, "installed", lambda: False)
    assert decode(MP3).seconds == pytest.approx(SECONDS, rel=0.02)
    with pytest.raises(InputError) as caught:
        decode(M4A)
    assert caught.value.code == "clip_unreadable"
    assert "MP3" in caught.value.message
    assert "M4A" not in caught.value.message


MEASURED = """
import resource, sys
from pathlib import Path
import numpy, soundfile, soxr
from cosyui.errors import InputError
from cosyui.speech.clip.decode import decode
data = Path(sys.argv[1]).read_bytes()
memory = lambda name: int(Path("/proc/self/status").read_text().split(name + ":")[1].split()[0])
Path("/proc/self/clear_refs").write_text("5")  # the peak (VmHWM) starts anew
before = memory("VmRSS")
try:
    print("whole" if decode(data).whole else "not whole", end=" ")
except InputError as error:
    print(error.code, end=" ")
print((memory("VmHWM") - before) >> 10, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss >> 10)
"""


BOMBS = {
    "3 h FLAC of silence": (lambda: silence(3), "not whole"),
    "2^36 frames claimed": (lambda: claiming(silence(0.05), (1 << 36) - 1), "not whole"),
    "m4a with 60 million entries": (lambda: table_bomb(M4A), "clip_unreadable"),
    "eight channels at 192 kHz": (lambda: silence(40 / 3600, 192_000, 8), "whole"),
    "an hour of m4a": (lambda: by_av(np.zeros(3600 * 8_000), "ipod", "aac", 8_000), "not whole"),
}


@pytest.mark.skipif(sys.platform != "linux", reason="memory is measured and bounded as Linux does it")
@pytest.mark.parametrize(("make", "answer"), BOMBS.values(), ids=BOMBS.keys())
def test_memory_stays_bounded(make, answer: str, tmp_path: Path) -> None:
    """Measured in a process of its own: extra memory of it, and all of its child's."""
    (tmp_path / "bomb").write_bytes(make())
    command = [sys.executable, "-c", MEASURED, str(tmp_path / "bomb")]
    root = str(Path(__file__).parents[2])
    told = subprocess.run(
        command, env=os.environ | {"PYTHONPATH": root}, capture_output=True, text=True, check=True, timeout=120
    ).stdout
    *what, extra, child = told.split()
    assert " ".join(what) == answer
    assert int(extra) < 200
    assert int(child) < 300


def test_decoding_stops_at_the_limit() -> None:
    sound = decode(silence(0.1))
    assert DECODE_SECONDS <= sound.seconds < DECODE_SECONDS + 3
    assert not sound.whole


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (encoded(np.zeros(0, np.float32)), "clip_empty_file"),
        (encoded(at_rate(WAVE, RATE, 4_000), 4_000), "clip_sample_rate"),
        (encoded(np.stack([WAVE] * 12, axis=1)), "clip_channels"),
        (by_av(at_rate(WAVE, RATE, 4_000), "matroska", "pcm_s16le", 4_000), "clip_sample_rate"),
    ],
)
def test_refused_by_form(data: bytes, code: str) -> None:
    with pytest.raises(InputError) as caught:
        decode(data)
    assert (caught.value.code, caught.value.field) == (code, "clip")


MIXES = {
    "equal": (lambda wave: (wave, wave), 0.0, False),
    "opposite": (lambda wave: (wave, -wave), 0.0, True),
    "nearly opposite": (lambda wave: (wave, -0.95 * wave), 0.0, True),
    "left only": (lambda wave: (wave, 0 * wave), -6.0, False),
    "surround, centre only": (lambda wave: (0 * wave, 0 * wave, wave, 0 * wave, 0 * wave, 0 * wave), -15.6, False),
}


@pytest.mark.parametrize(("channels", "level", "opposite"), MIXES.values(), ids=MIXES.keys())
@pytest.mark.parametrize("rate", [RATE, 96_000])
def test_mix_never_cancels(channels, level: float, opposite: bool, rate: int) -> None:
    wave = at_rate(WAVE, RATE, rate)
    sound = decode(encoded(np.stack(channels(wave), axis=1), rate))
    assert rms_db(sound.wave) - rms_db(wave) == pytest.approx(level, abs=0.5)
    assert sound.opposite == opposite
    assert sound.channels == len(channels(wave))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e30])
def test_damaged_samples_are_counted_and_bridged(bad: float) -> None:
    spoilt = np.stack([WAVE, WAVE], axis=1)
    spoilt[20_000:20_010, 0] = bad
    sound = decode(encoded(spoilt, subtype="FLOAT"))
    assert sound.repaired == 10
    assert np.abs(sound.wave - WAVE).max() < 0.2


CLIPPED = {
    "as recorded": (WAVE, False),
    "at full scale": (np.clip(8 * WAVE, -1, 1), True),
    "turned down afterwards": (0.3 * np.clip(8 * WAVE, -1, 1), True),
    "8 bit": (0.1 * WAVE, False),
}


@pytest.mark.parametrize(("wave", "clipped"), CLIPPED.values(), ids=CLIPPED.keys())
def test_flat_tops_are_found(wave: np.ndarray, clipped: bool) -> None:
    subtype = "PCM_U8" if len(wave) == len(WAVE) and np.abs(wave).max() < 0.1 else "PCM_16"
    assert (decode(encoded(wave, subtype=subtype)).clipped > 1e-3) == clipped
