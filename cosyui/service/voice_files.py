"""Saved voices on the disk: a folder for each, named by its id, with ``voice.json`` and ``clip.wav``. Blocking."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from contextlib import suppress
from pathlib import Path

from cosyui.service.voice_record import ID_PATTERN, Voice

RECORD, CLIP = "voice.json", "clip.wav"
NEW, GONE = ".new-", ".gone-"
"""Beginnings of the names of folders that are not voices yet, or not any more."""
LARGEST_RECORD = 64 << 10
LARGEST_CLIP = 64 << 20


class VoiceFiles:
    """The folder is made with the first voice. What stands in it appears and goes as a whole."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def read_all(self) -> tuple[list[Voice], dict[str, str]]:
        """The voices, the oldest first, and why others cannot be read. Finishes what a killed server began to delete.

        Raises OSError when the folder is there and cannot be read.
        """
        voices: list[Voice] = []
        damaged: dict[str, str] = {}
        if not self.root.exists():
            return voices, damaged
        for folder in sorted(self.root.iterdir()):
            if folder.name.startswith((NEW, GONE)):
                shutil.rmtree(folder, ignore_errors=True)
            elif re.fullmatch(ID_PATTERN, folder.name):
                try:
                    voices.append(self._read(folder))
                except (OSError, ValueError) as error:
                    damaged[folder.name] = (getattr(error, "strerror", None) or str(error)).partition("\n")[0]
        return sorted(voices, key=lambda voice: (voice.created, voice.id)), damaged

    def write(self, voice: Voice, clip: bytes) -> None:
        """Raises OSError; then nothing is left of it."""
        self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        new = self.root / f"{NEW}{voice.id}"
        try:
            new.mkdir(mode=0o700)
            _write(new / CLIP, clip)
            _write(new / RECORD, _record(voice))
            new.rename(self.root / voice.id)
        except OSError:
            shutil.rmtree(new, ignore_errors=True)
            raise
        _sync(self.root)

    def replace(self, voice: Voice) -> None:
        """Write the record anew; the clip stays. Raises OSError; then the old record is there."""
        new = self.root / voice.id / f"{NEW}{RECORD}"
        try:
            _write(new, _record(voice))
            new.replace(new.with_name(RECORD))
        except OSError:
            with suppress(OSError):
                new.unlink()
            raise
        _sync(new.parent)

    def put_away(self, voice_id: str) -> None:
        """It is no voice any more; `sweep` deletes it. Raises OSError; then it is there as it was."""
        with suppress(FileNotFoundError):
            (self.root / voice_id).rename(self.root / f"{GONE}{voice_id}")

    def sweep(self, voice_id: str) -> None:
        """Raises OSError when something of it is left, which the next start deletes."""
        with suppress(FileNotFoundError):
            shutil.rmtree(self.root / f"{GONE}{voice_id}")

    def clip(self, voice: Voice) -> bytes:
        """Raises OSError when it cannot be read, ValueError when it is not the one that was saved."""
        data = _read(self.root / voice.id / CLIP, LARGEST_CLIP)
        if hashlib.sha256(data).hexdigest() != voice.clip:
            raise ValueError("the clip is not the one that was saved")
        return data

    def _read(self, folder: Path) -> Voice:
        voice = Voice.model_validate_json(_read(folder / RECORD, LARGEST_RECORD))
        if voice.id != folder.name:
            raise ValueError("the record is another voice's")
        if (folder / CLIP).stat().st_size == 0:
            raise ValueError("the clip is empty")
        return voice


def _record(voice: Voice) -> bytes:
    return voice.model_dump_json(indent=2).encode()


def _read(path: Path, most: int) -> bytes:
    with path.open("rb") as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise ValueError(f"{path.name} is too large")
    return data


def _write(path: Path, data: bytes) -> None:
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _sync(folder: Path) -> None:
    """So that what was renamed in it stays renamed, whatever happens to the machine; not every disk can."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
