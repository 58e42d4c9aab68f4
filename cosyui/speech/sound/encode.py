"""Sound on its way to a listener: int16 chunks become WAV, PCM, MP3, Opus, FLAC or AAC, as they come."""

from __future__ import annotations

import threading
from functools import cache
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from cosyui.engine.request import SAMPLE_RATE
from cosyui.errors import InputError
from cosyui.speech.clip import pyav
from cosyui.speech.sound.audio_out import wav_header

RATES = (8_000, 16_000, 22_050, 24_000, 44_100, 48_000)
UNKNOWN_SIZE = 2**32 - 1
"""In the header of a WAV whose length nobody knows yet; readers then read to the end."""
_OGG_PAGE = 100_000
"""Microseconds of sound in a page: nobody hears less than one."""


class _Codec(NamedTuple):
    """How libav makes a format. ``bits``: the most bits a second by rate, the first that fits counts.

    ``coding``: options of the codec. Where many listen, encoding is most of the server's own work: at these rates its
    thorough settings take two to six times as long for the same sound (docs/performance.md).
    """

    container: str
    codec: str
    samples: str
    bits: tuple[tuple[int, int], ...] = ()
    options: tuple[tuple[str, str], ...] = ()
    rates: tuple[int, ...] = RATES
    coding: tuple[tuple[str, str], ...] = ()

    def bit_rate(self, rate: int) -> int | None:
        return next((bits for top, bits in self.bits if rate <= top), None)


_CODECS = {
    # Constant bits and no table of contents: a player then knows the length of a file that was streamed.
    "mp3": _Codec(
        "mp3",
        "libmp3lame",
        "s16p",
        ((8_000, 64_000), (24_000, 96_000), (48_000, 128_000)),
        (("write_xing", "0"), ("id3v2_version", "0")),
        coding=(("compression_level", "7"),),
    ),
    "opus": _Codec(
        "ogg",
        "libopus",
        "s16",
        ((8_000, 32_000), (48_000, 64_000)),
        (("page_duration", str(_OGG_PAGE)),),
        (8_000, 16_000, 24_000, 48_000),
        (("compression_level", "5"),),
    ),
    "aac": _Codec("adts", "aac", "fltp", ((8_000, 48_000), (48_000, 96_000)), coding=(("aac_coder", "fast"),)),
    "flac": _Codec("flac", "flac", "s16"),
}
MEDIA_TYPES = {
    "mp3": "audio/mpeg",
    "opus": "audio/ogg",
    "aac": "audio/aac",
    "flac": "audio/flac",
    "wav": "audio/wav",
    "pcm": "audio/pcm",
}
"""Every format by its name."""


def check_format(name: str, rate: int = SAMPLE_RATE) -> None:
    """Raises InputError ``format_unsupported`` or ``sample_rate_unsupported`` for what cannot be made here."""
    if name not in formats():
        message = f"The format {name[:40]!r} cannot be made here; there are {', '.join(formats())}."
        raise InputError("format_unsupported", message, "response_format")
    rates = _CODECS[name].rates if name in _CODECS else RATES
    if rate not in rates:
        message = f"{name} is made with a sample rate of {', '.join(map(str, rates))} Hz, not {rate}."
        raise InputError("sample_rate_unsupported", message, "sample_rate")


@cache
def formats() -> tuple[str, ...]:
    """Those that the installed libraries can make; the first call takes some tenths of a second."""
    return tuple(name for name in MEDIA_TYPES if name not in _CODECS or _is_there(_CODECS[name]))


def _is_there(codec: _Codec) -> bool:
    if not pyav.installed():
        return False
    import av

    if codec.codec not in av.codecs_available or codec.container not in av.formats_available:
        return False
    return bool(av.Codec(codec.codec, "w").is_encoder)


class Encoder:
    """`add` chunks of int16 mono PCM at 24 kHz, then `finish`; each gives the bytes that are ready by then.

    ``samples``: how many will come, if that is known: then a WAV or FLAC has a true header. `close` ends it wherever it
    is, also while another thread is in `add`; nothing comes after it. Neither threads nor files are used.

    Raises InputError as `check_format`.
    """

    def __init__(self, name: str, rate: int = SAMPLE_RATE, samples: int | None = None) -> None:
        check_format(name, rate)
        length = None if samples is None else round(samples * rate / SAMPLE_RATE)
        self._lock = threading.Lock()
        self._resampler = None if rate == SAMPLE_RATE else _Resampler(rate)
        coded = name in _CODECS
        self._body: _Body | None = _Coded(_CODECS[name], rate, length) if coded else _Plain(name, rate, length)

    def add(self, pcm: bytes) -> bytes:
        with self._lock:
            if self._body is None or not pcm:
                return b""
            return self._body.add(pcm if self._resampler is None else self._resampler(pcm))

    def finish(self) -> bytes:
        """The rest; the encoder is closed then."""
        with self._lock:
            if self._body is None:
                return b""
            body, self._body = self._body, None
            rest = b"" if self._resampler is None else self._resampler(b"", last=True)
            return body.add(rest) + body.finish()

    def close(self) -> None:
        """Calling it twice is fine, and so is after `finish`."""
        with self._lock:
            body, self._body = self._body, None
            if body is not None:
                body.finish()


class _Body(Protocol):
    """What comes of samples at their final rate."""

    def add(self, pcm: bytes) -> bytes: ...
    def finish(self) -> bytes: ...


class _Plain:
    """Samples as they are, behind a header if it is a WAV. With ``length``, exactly so many."""

    def __init__(self, name: str, rate: int, length: int | None) -> None:
        self._left = None if length is None else 2 * length
        self._head = b""
        if name == "wav":
            self._head = streamed_wav_header(rate) if length is None else wav_header(2 * length, rate)

    def add(self, pcm: bytes) -> bytes:
        head, self._head = self._head, b""
        if self._left is not None:
            pcm = pcm[: self._left]
            self._left -= len(pcm)
        return head + pcm

    def finish(self) -> bytes:
        return self.add(bytes(self._left or 0))


class _Coded:
    """What libav makes; every packet leaves at once."""

    def __init__(self, codec: _Codec, rate: int, length: int | None) -> None:
        import av

        self._rate = rate
        self._length = length if codec.container == "flac" else None
        self._samples = 0
        self._sink = _Sink()
        options = dict(codec.options) | {"flush_packets": "1"}
        self._container = av.open(self._sink, "w", format=codec.container, options=options)
        add: Any = self._container.add_stream
        self._stream = add(codec.codec, rate=rate, layout="mono", format=codec.samples, options=dict(codec.coding))
        bits = codec.bit_rate(rate)
        if bits is not None:
            self._stream.bit_rate = bits

    def add(self, pcm: bytes) -> bytes:
        import av

        if pcm:
            frame = av.AudioFrame.from_ndarray(np.frombuffer(pcm, "<i2")[None], format="s16", layout="mono")
            frame.sample_rate, frame.pts = self._rate, self._samples
            self._samples += frame.samples
            self._container.mux(self._stream.encode(frame))
        return self._taken()

    def finish(self) -> bytes:
        if self._samples:
            self._container.mux(self._stream.encode(None))
        self._container.close()
        return self._taken()

    def _taken(self) -> bytes:
        data = self._sink.take()
        if data and self._length is not None:
            data, self._length = _with_length(data, self._length), None
        return data


class _Sink:
    """Where libav writes to: it has no place to go back to, so nothing is ever changed that has left."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def write(self, data: bytes) -> int:
        self._parts.append(bytes(data))
        return len(data)

    def take(self) -> bytes:
        parts, self._parts = self._parts, []
        return b"".join(parts)


class _Resampler:
    """From 24 kHz to another rate; what it gives does not depend on how the sound is cut into chunks."""

    def __init__(self, rate: int) -> None:
        import soxr

        self._stream = soxr.ResampleStream(SAMPLE_RATE, rate, 1, dtype="float32", quality="HQ")

    def __call__(self, pcm: bytes, *, last: bool = False) -> bytes:
        wave = self._stream.resample_chunk(np.frombuffer(pcm, "<i2").astype(np.float32), last=last)
        samples: NDArray[np.int16] = np.clip(np.rint(wave), -32768, 32767).astype("<i2")
        return samples.tobytes()


def _with_length(flac: bytes, samples: int) -> bytes:
    """The beginning of a FLAC, whose stream info ends a field of 64 bits with the number of samples in 36."""
    field = int.from_bytes(flac[18:26], "big") >> 36 << 36 | samples
    return flac[:18] + field.to_bytes(8, "big") + flac[26:]


def streamed_wav_header(rate: int = SAMPLE_RATE) -> bytes:
    """The header of an int16 WAV of unknown length."""
    header = bytearray(wav_header(0, rate))
    header[4:8] = header[40:44] = UNKNOWN_SIZE.to_bytes(4, "little")
    return bytes(header)
