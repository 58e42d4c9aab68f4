"""Every format gives the same sound back, as it is made, and holds nothing but what it has yet to give."""

import io
import threading
import tracemalloc
import wave
from pathlib import Path

import av
import numpy as np
import pytest
import soundfile

from cosyui.engine.request import SAMPLE_RATE
from cosyui.errors import InputError
from cosyui.speech.sound import encode
from cosyui.speech.sound.encode import MEDIA_TYPES, RATES, Encoder, check_format, formats

LOSSLESS = ("wav", "flac", "pcm")
LOSSY = ("mp3", "opus", "aac")
FRAME = {"mp3": 1152, "opus": 960, "aac": 1024, "flac": 1, "wav": 1, "pcm": 1}
PAIRS = [(name, rate) for name in MEDIA_TYPES for rate in RATES if name != "opus" or rate not in (22_050, 44_100)]


def tone(seconds, hertz=440.0):
    samples = np.arange(round(seconds * SAMPLE_RATE))
    return (0.5 * 32767 * np.sin(2 * np.pi * hertz * samples / SAMPLE_RATE)).astype("<i2")


def encoded(name, samples, sizes=(6000,), rate=SAMPLE_RATE, known=False):
    encoder, parts, start, turn = Encoder(name, rate, len(samples) if known else None), [], 0, 0
    while start < len(samples):
        size = sizes[turn % len(sizes)]
        parts.append(encoder.add(samples[start : start + size].tobytes()))
        start, turn = start + size, turn + 1
    return [*parts, encoder.finish()]


def decoded(name, data):
    """Samples in [-1, 1] and their rate."""
    if name == "pcm":
        return np.frombuffer(data, "<i2") / 32768, None
    if name == "wav":
        return soundfile.read(io.BytesIO(data))
    with av.open(io.BytesIO(data)) as file:
        frames = [frame.to_ndarray()[0] for frame in file.decode(audio=0)]
        scale = 32768 if name == "flac" else 1
        return np.concatenate(frames) / scale, file.streams.audio[0].rate


def level(samples):
    return 20 * np.log10(np.sqrt(np.mean(np.square(samples))))


@pytest.mark.parametrize(("name", "rate"), PAIRS)
def test_sound_comes_back_with_its_length_level_and_rate(name, rate):
    sound = tone(2.0)
    back, told = decoded(name, b"".join(encoded(name, sound, rate=rate)))
    assert told in (rate, None) or (name, told) == ("opus", 48_000)
    told = told or rate
    frame = FRAME[name] * (told / rate if name == "opus" else 1)
    assert abs(len(back) - 2.0 * told) <= 2.5 * frame
    middle = back[round(0.5 * told) : round(1.5 * told)]
    assert abs(level(middle) - level(sound / 32768)) < (1.0 if name in LOSSY else 0.5)
    spectrum = np.abs(np.fft.rfft(middle * np.hanning(len(middle))))
    assert np.argmax(spectrum) * told / len(middle) == pytest.approx(440, abs=2)


@pytest.mark.parametrize("name", MEDIA_TYPES)
def test_first_bytes_come_before_the_last_chunk(name):
    parts = encoded(name, tone(3.0), sizes=(12_000,))
    assert parts[0]
    assert all(parts[:-1])
    assert len(parts[-1]) < sum(map(len, parts)) / 3


@pytest.mark.parametrize("rate", [SAMPLE_RATE, 8_000, 44_100])
@pytest.mark.parametrize("name", LOSSLESS)
def test_cuts_change_no_sample(name, rate):
    noise = (np.random.default_rng(1).standard_normal(30_011) * 5000).astype("<i2")
    whole = decoded(name, b"".join(encoded(name, noise, (30_011,), rate)))[0]
    for sizes in ((1, 7, 480, 3001), (24_000,), (5000, 1)):
        assert np.array_equal(decoded(name, b"".join(encoded(name, noise, sizes, rate)))[0], whole)
    if rate == SAMPLE_RATE:
        assert np.array_equal(whole * 32768, noise)


@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("samples", [1, 12_345, 24_001])
def test_wav_of_known_length_passes_a_strict_reader(samples, rate):
    data = b"".join(encoded("wav", tone(2.0)[:samples], rate=rate, known=True))
    with wave.open(io.BytesIO(data)) as file:
        assert file.getframerate() == rate
        assert file.getnframes() == round(samples * rate / SAMPLE_RATE)
        assert len(file.readframes(file.getnframes())) == 2 * file.getnframes() == len(data) - 44


@pytest.mark.parametrize("rate", RATES)
def test_flac_of_known_length_tells_it(rate):
    with soundfile.SoundFile(io.BytesIO(b"".join(encoded("flac", tone(1.0), rate=rate, known=True)))) as file:
        assert (file.frames, file.samplerate, file.channels) == (rate, rate, 1)
        assert len(file.read()) == rate


def test_streamed_wav_has_one_header_that_leaves_the_length_open():
    data = b"".join(encoded("wav", tone(1.0)))
    assert data.count(b"RIFF") == 1
    assert data[4:8] == data[40:44] == b"\xff\xff\xff\xff"


def test_streamed_mp3_has_no_false_index():
    data = b"".join(encoded("mp3", tone(3.0)))
    assert b"Xing" not in data
    assert b"Info" not in data
    with av.open(io.BytesIO(data)) as file:
        assert file.duration / 1e6 == pytest.approx(3.0, abs=0.15)


@pytest.mark.parametrize("name", MEDIA_TYPES)
def test_long_noise_is_not_kept(name):
    noise = (np.random.default_rng(2).standard_normal(SAMPLE_RATE) * 8000).astype("<i2").tobytes()
    encoder = Encoder(name)
    for _ in range(5):
        encoder.add(noise)
    tracemalloc.start()
    length = sum(len(encoder.add(noise)) for _ in range(20))
    held = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert length > 20 * 4000
    assert held < 64 << 10
    encoder.finish()


@pytest.mark.parametrize("name", MEDIA_TYPES)
def test_a_stream_cut_short_leaves_nothing(name):
    def files():
        return sorted(str(path.readlink()) for path in Path("/proc/self/fd").iterdir() if path.is_symlink())

    Encoder(name).finish()
    threads, before = threading.active_count(), files() if Path("/proc/self/fd").exists() else []
    for begin in (False, True):
        encoder = Encoder(name, 16_000)
        if begin:
            encoder.add(tone(0.3).tobytes())
        encoder.close()
        encoder.close()
        assert encoder.add(tone(0.1).tobytes()) == encoder.finish() == b""
    assert threading.active_count() == threads
    assert not before or files() == before


def test_what_cannot_be_made_is_refused(monkeypatch):
    assert set(formats()) == set(MEDIA_TYPES)
    for name, rate, code in (
        ("ogg", SAMPLE_RATE, "format_unsupported"),
        ("opus", 44_100, "sample_rate_unsupported"),
        ("wav", 11_025, "sample_rate_unsupported"),
    ):
        with pytest.raises(InputError) as caught:
            check_format(name, rate)
        assert caught.value.code == code
    monkeypatch.setattr(encode.pyav, "installed", lambda: False)
    formats.cache_clear()
    try:
        assert formats() == ("wav", "pcm")
        with pytest.raises(InputError, match="there are wav, pcm"):
            Encoder("mp3")
    finally:
        formats.cache_clear()
