"""Bytes of an audio file to a mono wave: by soundfile where it does well, else by PyAV in a process of its own.

What a file is, is told by its content alone. Readers get bytes in memory, so that nothing in a file can make them open
another one or an address. No sentence of a library leaves this room.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np

from cosyui.speech.clip import pyav
from cosyui.speech.clip.mix import Block, Samples, Sound, check_form, mix, refused

_SOUNDFILE_FORMATS = "WAV, FLAC, MP3, OGG, Opus, AIFF"
_PIECE, _PIECES = 1024, 32
"""Frames that are read at once, and how many of these make a block."""


class _NotMineError(Exception):
    """soundfile cannot read the file; another reader may."""


def formats() -> str:
    """What can be read here, for people."""
    return f"{_SOUNDFILE_FORMATS}, {pyav.FORMATS}" if pyav.installed() else _SOUNDFILE_FORMATS


def decode(data: bytes) -> Sound:
    """The sound of a file as far as it can be read.

    Raises InputError (field ``clip``): ``clip_unreadable``, ``clip_empty_file``, ``clip_sample_rate``,
    ``clip_channels``.
    """
    general = pyav.installed()
    if not (general and _is_mpeg(data)):
        with suppress(_NotMineError):
            return mix(partial(_by_soundfile, data))
    sound = pyav.decode_apart(data) if general else None
    if sound is None:
        raise refused("clip_unreadable", f"The clip cannot be read as audio. These formats work: {formats()}.")
    return sound


def _is_mpeg(data: bytes) -> bool:
    """MP3 and its kin. soundfile ends them at a length that it guesses from the first frames, often far too early."""
    return data[:3] == b"ID3" or (data[:1] == b"\xff" and data[1:2] >= b"\xe0")


def _by_soundfile(data: bytes) -> Iterator[Block]:
    import soundfile

    try:
        file = soundfile.SoundFile(io.BytesIO(data))
    except (soundfile.SoundFileError, ValueError, TypeError):
        raise _NotMineError from None
    with file:
        check_form(file.samplerate, file.channels)
        while (frames := _read(file)) is not None:
            yield Block(frames, file.samplerate)
        if file.tell() == 0 and file.frames > 0:
            raise _NotMineError  # there should be sound, but nothing of it can be decoded


def _read(file: Any) -> Samples | None:
    """The next frames (S, C); None at the end, also where the file is cut off or damaged: what came before is good.

    In small pieces, since the reader gives nothing of a piece in which it fails.
    """
    import soundfile

    pieces: list[Samples] = []
    try:
        while len(pieces) < _PIECES and len(piece := file.read(_PIECE, dtype="float32", always_2d=True)):
            pieces.append(piece)
    except soundfile.SoundFileError:
        pass
    return np.concatenate(pieces) if pieces else None
