"""Recordings for tests, made from real clips: encoded in every format, damaged, spoilt in the ways of real life."""

from __future__ import annotations

import io
import struct
from pathlib import Path

import av
import numpy as np
import soundfile

CLIPS = Path(__file__).parents[1] / "data" / "clips"
RATE = 16_000


def real(name: str = "en_librivox_0870") -> np.ndarray:
    """A real clip (S,) at 16 kHz; the English one is 7.1 s of speech."""
    wave, rate = soundfile.read(CLIPS / f"{name}.flac", dtype="float32")
    return at_rate(wave, rate, RATE)


def at_rate(wave: np.ndarray, rate: int, wanted: int) -> np.ndarray:
    import soxr

    return soxr.resample(wave, rate, wanted) if rate != wanted else wave


def encoded(wave: np.ndarray, rate: int = RATE, form: str = "WAV", subtype: str | None = None) -> bytes:
    """By soundfile; ``wave`` is (S,) or (S, C)."""
    stream = io.BytesIO()
    soundfile.write(stream, wave, rate, format=form, subtype=subtype)
    return stream.getvalue()


def by_av(
    wave: np.ndarray, container: str, codec: str, rate: int = RATE, bits: int | None = None, quality: int | None = None
) -> bytes:
    """By PyAV, mono; ``quality`` asks for a changing rate."""
    stream = io.BytesIO()
    with av.open(stream, "w", format=container) as file:
        track = file.add_stream(codec, rate=rate, layout="mono")
        if bits is not None:
            track.bit_rate = bits
        if quality is not None:
            track.codec_context.qscale = True
            track.codec_context.global_quality = quality * 118
        pcm = (np.clip(wave, -1, 1) * 32767).astype(np.int16)[None]
        frame = av.AudioFrame.from_ndarray(pcm, format="s16", layout="mono")
        frame.sample_rate = rate
        for packet in [*track.encode(frame), *track.encode(None)]:
            file.mux(packet)
    return stream.getvalue()


def with_cover(mp3: bytes, picture_bytes: int) -> bytes:
    """An ID3v2.3 tag with a picture in front."""
    content = b"\0image/jpeg\0\3\0" + b"\xff\xd8" + bytes(picture_bytes)
    frame = b"APIC" + struct.pack(">IH", len(content), 0) + content
    size = bytes(len(frame) >> shift & 0x7F for shift in (21, 14, 7, 0))
    return b"ID3\3\0\0" + size + frame + mp3


def changing_rate_mp3(wave: np.ndarray) -> bytes:
    """Without an index: judged by its first frames, it would have another length."""
    mp3 = by_av(wave, "mp3", "libmp3lame", quality=2)
    start = mp3.index(b"\xff\xf3")
    return mp3[mp3.index(b"\xff\xf3", start + 2) :]  # the first frame is the index


def silence(hours: float, rate: int = RATE, channels: int = 1) -> bytes:
    """A FLAC of some hundred kilobytes."""
    stream = io.BytesIO()
    with soundfile.SoundFile(stream, "w", rate, channels, "PCM_16", format="FLAC") as file:
        second = np.zeros((rate, channels), np.int16)
        for _ in range(round(3600 * hours)):
            file.write(second)
    return stream.getvalue()


def claiming(flac: bytes, frames: int) -> bytes:
    """A FLAC whose header has another number of frames (36 bits, at the end of STREAMINFO's second eight bytes)."""
    place = 8 + 10
    (word,) = struct.unpack(">Q", flac[place : place + 8])
    return flac[:place] + struct.pack(">Q", word & ~0xFFFFFFFFF | frames & 0xFFFFFFFFF) + flac[place + 8 :]


def table_bomb(m4a: bytes, samples: int = 60_000_000) -> bytes:
    """An M4A whose tables claim millions of packets of one byte; a demuxer makes an entry of memory for each."""
    data = bytearray(m4a)
    sizes, chunks = data.find(b"stsz"), data.find(b"stsc")
    struct.pack_into(">II", data, sizes + 8, 1, samples)
    struct.pack_into(">IIII", data, chunks + 8, 1, 1, samples, 1)
    return bytes(data)


def click(rate: int = RATE) -> np.ndarray:
    """A mouse button: down and up."""
    noise = np.random.default_rng(5).uniform(-0.7, 0.7, round(0.006 * rate)) * np.linspace(1, 0, round(0.006 * rate))
    return np.concatenate([noise, np.zeros(round(0.03 * rate)), noise]).astype(np.float32)


def noise(seconds: float, dbfs: float, rate: int = RATE) -> np.ndarray:
    level = 10 ** (dbfs / 20)
    return np.random.default_rng(0).normal(0, level, round(seconds * rate)).astype(np.float32)


def rms_db(wave: np.ndarray) -> float:
    return float(10 * np.log10(np.mean(np.square(wave, dtype=np.float64))))
