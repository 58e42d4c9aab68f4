"""A saved voice as a file to take along: a ZIP with its clip and its words. Nothing is unpacked to the disk."""

from __future__ import annotations

import io
import struct
import zipfile
import zlib
from collections.abc import Sequence

from cosyui.errors import InputError
from cosyui.service.voice_files import CLIP, LARGEST_RECORD, RECORD
from cosyui.service.voice_record import VoiceWords

SLACK = 128 << 10
"""Bytes of a file beside its clip, at most."""
_END = struct.Struct("<4s4H2LH")
_LONGEST_LIST = 1 << 10
_KINDS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_BROKEN = (zipfile.BadZipFile, zlib.error, EOFError, OSError, ValueError, NotImplementedError, struct.error)


def pack(words: VoiceWords, clip: bytes) -> bytes:
    file = io.BytesIO()
    record = VoiceWords.model_validate(words.model_dump(include=set(VoiceWords.model_fields)))
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr(CLIP, clip)
        archive.writestr(RECORD, record.model_dump_json(indent=2))
    return file.getvalue()


def joined(files: Sequence[bytes]) -> bytes:
    """One file for `unpack` from what somebody has of an exported voice: the file itself, or its two parts.

    Raises InputError ``voice_file_missing`` or ``voice_file_invalid``, field ``file``.
    """
    if not files:
        raise InputError("voice_file_missing", "Choose the file of an exported voice.", "file")
    if len(files) == 1:
        return files[0]
    records = [data for data in files if data.lstrip()[:1] == b"{"]
    clips = [data for data in files if data not in records]
    if len(records) != 1 or len(clips) != 1 or len(records[0]) > LARGEST_RECORD:
        raise _invalid(f"give the exported ZIP alone, or {CLIP} together with {RECORD}")
    try:
        return pack(VoiceWords.model_validate_json(records[0]), clips[0])
    except ValueError as error:
        raise _invalid(str(error).partition("\n")[0]) from None


def unpack(data: bytes, largest_clip: int) -> tuple[VoiceWords, bytes]:
    """Raises InputError ``voice_file_invalid``, field ``file``; what is in there is not checked."""
    if len(data) > largest_clip + SLACK:
        raise _invalid(f"it is larger than {(largest_clip + SLACK) / 2**20:.1f} MB")
    if not _lists_two(data):
        raise _invalid(f"it is no ZIP with {CLIP} and {RECORD} alone")
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = {info.filename: info for info in archive.infolist()}
            if sorted(members) != [CLIP, RECORD] or len(archive.infolist()) != len(members):
                raise ValueError(f"it holds other files than {CLIP} and {RECORD}")
            clip = _member(archive, members[CLIP], largest_clip)
            words = VoiceWords.model_validate_json(_member(archive, members[RECORD], LARGEST_RECORD))
    except _BROKEN as error:
        raise _invalid(str(error).partition("\n")[0] or type(error).__name__) from None
    return words, clip


def _lists_two(data: bytes) -> bool:
    """Looks at the end of a ZIP before its list is read, which could be long: no comment, no ZIP64, a short list."""
    end = data[-_END.size :]
    if len(end) < _END.size or data[-_END.size - 20 :][:4] == b"PK\6\7":
        return False
    mark, _, _, _, count, size, _, comment = _END.unpack(end)
    return bool(mark == b"PK\5\6" and count == 2 and size <= _LONGEST_LIST and comment == 0)


def _member(archive: zipfile.ZipFile, info: zipfile.ZipInfo, most: int) -> bytes:
    """Never more than ``most`` bytes are unpacked, whatever the list says."""
    if info.flag_bits & 1 or info.compress_type not in _KINDS or info.file_size > most:
        raise ValueError(f"{info.filename} is too large, encrypted or packed in an unusual way")
    with archive.open(info) as file:
        data = file.read(most + 1)
    if len(data) != info.file_size:
        raise ValueError(f"{info.filename} is not as long as it should be")
    return data


def _invalid(reason: str) -> InputError:
    message = f"This is no file of a saved voice: {reason}. Export the voice again."
    return InputError("voice_file_invalid", message, "file")
