"""What soundfile cannot read well (MP3, M4A, AAC, WebM, MP4, AMR, WMA...), decoded by PyAV in a process of its own.

A small file can make a demuxer fill gigabytes with its tables, and such libraries have crashed on bad files. In a child
with bounds on memory and time that is a file that cannot be read, and nothing more.
"""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, replace
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cosyui.errors import InputError
from cosyui.speech.clip.mix import Block, Samples, Sound, check_form, mix, refused

FORMATS = "M4A, AAC, WebM, MP4, AMR, WMA"

MEMORY = 192 << 20
"""Bytes the child may use on top of what it needs to start."""
CPU_SECONDS = 20
"""Of the child; two minutes of sound take less than one."""

_CONTAINERS = "mov,matroska,ogg,aac,amr,asf,caf,wav,aiff,flac,mp3,ac3,eac3"
"""None of these names other files to open, as a playlist does."""
_DECODERS = (
    "aac,alac,mp3float,mp3,mp2float,mp2,opus,libopus,vorbis,libvorbis,flac,speex,libspeex,amrnb,amrwb,wmav1,wmav2,"
    "wmapro,wmalossless,wmavoice,ac3,eac3,pcm_s16le,pcm_s16be,pcm_s24le,pcm_s24be,pcm_s32le,pcm_f32le,pcm_f32be,pcm_u8,"
    "pcm_s8,pcm_mulaw,pcm_alaw,adpcm_ima_wav,adpcm_ms,adpcm_ima_qt,gsm,gsm_ms"
)
"""Sound only: a picture or a film in the same file is never decoded."""
_OPTIONS = {"format_whitelist": _CONTAINERS, "codec_whitelist": _DECODERS, "protocol_whitelist": "none"}


@cache
def installed() -> bool:
    """Whether PyAV is there."""
    return find_spec("av") is not None


def decode_apart(data: bytes) -> Sound | None:
    """The sound of a file, or None when it cannot be read within the bounds.

    Raises InputError ``clip_empty_file``, ``clip_sample_rate`` or ``clip_channels``. Takes a third of a second more
    than the decoding: a process is started.
    """
    root = str(Path(__file__).parents[3])
    paths = [root, *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"}
    try:
        answer = subprocess.run(
            [sys.executable, "-P", "-m", "cosyui.speech.clip.pyav"],
            input=data,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
            timeout=3 * CPU_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return None
    return _read_answer(answer.stdout) if answer.returncode == 0 else None


def _read_answer(answer: bytes) -> Sound | None:
    head, _, samples = answer.partition(b"\n")
    facts: dict[str, Any] = json.loads(head)
    if "code" in facts:
        raise refused(facts["code"], facts["message"])
    return Sound(wave=np.frombuffer(samples, dtype=np.float32).copy(), **facts) if facts else None


def main() -> int:
    """The child: a file on stdin; a line of JSON (facts or an error), then float32 samples on stdout."""
    import av  # before the memory is counted

    av.logging.set_level(None)
    data = sys.stdin.buffer.read()
    _bound()
    samples = b""
    try:
        sound = mix(partial(_blocks, data))
        facts = asdict(replace(sound, wave=np.zeros(0, np.float32)))
        del facts["wave"]
        samples = sound.wave.tobytes()
    except InputError as error:
        facts = {"code": error.code, "message": error.message}
    except (av.FFmpegError, ValueError, OSError, MemoryError):
        facts = {}
    sys.stdout.buffer.write(json.dumps(facts).encode() + b"\n" + samples)
    return 0


def _bound() -> None:
    """Limit this process; where the system has no such limits, the parent's timeout is left."""
    if find_spec("resource") is None:
        return
    import resource

    statm = Path("/proc/self/statm")
    used = int(statm.read_text().split()[0]) * resource.getpagesize() if statm.exists() else 1 << 30
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, used + MEMORY))
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _blocks(data: bytes) -> Iterator[Block]:
    """The first audio stream. Raises av.FFmpegError or ValueError when there is none that can be read."""
    import av

    with av.open(io.BytesIO(data), "r", options=_OPTIONS, metadata_errors="replace") as container:
        if not container.streams.audio:
            raise ValueError("no audio stream")
        stream = container.streams.audio[0]
        stream.codec_context.options = {"codec_whitelist": _DECODERS}
        sound = False
        packets = container.demux(stream)
        while (packet := _next(packets)) is not None:
            for frame in _decoded(packet):
                check_form(frame.sample_rate, frame.layout.nb_channels)
                sound = True
                yield Block(_as_float(frame), frame.sample_rate)
    if not sound:
        raise ValueError("nothing could be decoded")


def _next(packets: Iterator[Any]) -> Any:
    """The next packet; None at the end of the file, also where a damaged file ends too early."""
    import av

    try:
        return next(packets, None)
    except (av.FFmpegError, ValueError, OSError):
        return None


def _decoded(packet: Any) -> list[Any]:
    """The frames of a packet, none of a damaged one."""
    import av

    try:
        return list(packet.decode())
    except (av.FFmpegError, ValueError, OSError):
        return []


def _as_float(frame: Any) -> Samples:
    """A PyAV frame as (S, C) float32, full scale 1."""
    array: NDArray[Any] = frame.to_ndarray()
    frames = array.T if frame.format.is_planar else array.reshape(-1, frame.layout.nb_channels)
    if frames.dtype.kind == "u":
        return (frames.astype(np.float32) - np.float32(128)) / np.float32(128)
    if frames.dtype.kind == "i":
        return frames.astype(np.float32) / np.float32(2 ** (8 * frames.dtype.itemsize - 1))
    return frames.astype(np.float32)


if __name__ == "__main__":
    sys.exit(main())
