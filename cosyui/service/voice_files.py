"""Saved voices on the disk: a folder for each, named by its id, with ``voice.json`` and ``clip.wav``. Blocking."""

from __future__ import annotations

import hashlib
from pathlib import Path

from cosyui.service import folders
from cosyui.service.voice_record import ID_PATTERN, Voice

RECORD, CLIP = "voice.json", "clip.wav"
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
        voices, damaged = folders.read_all(self.root, ID_PATTERN, self._read)
        return sorted(voices, key=lambda voice: (voice.created, voice.id)), damaged

    def write(self, voice: Voice, clip: bytes) -> None:
        """Raises OSError; then nothing is left of it."""
        folders.create(self.root, voice.id, {CLIP: clip, RECORD: _record(voice)})

    def replace(self, voice: Voice) -> None:
        """Write the record anew; the clip stays. Raises OSError; then the old record is there."""
        folders.replace_file(self.root / voice.id / RECORD, _record(voice))

    def put_away(self, voice_id: str) -> None:
        """It is no voice any more; `sweep` deletes it. Raises OSError; then it is there as it was."""
        folders.put_away(self.root, voice_id)

    def sweep(self, voice_id: str) -> None:
        """Raises OSError when something of it is left, which the next start deletes."""
        folders.sweep(self.root, voice_id)

    def clip(self, voice: Voice) -> bytes:
        """Raises OSError when it cannot be read, ValueError when it is not the one that was saved."""
        data = folders.read_file(self.root / voice.id / CLIP, LARGEST_CLIP)
        if hashlib.sha256(data).hexdigest() != voice.clip:
            raise ValueError("the clip is not the one that was saved")
        return data

    def _read(self, folder: Path) -> Voice:
        voice = Voice.model_validate_json(folders.read_file(folder / RECORD, LARGEST_RECORD))
        if voice.id != folder.name:
            raise ValueError("the record is another voice's")
        if (folder / CLIP).stat().st_size == 0:
            raise ValueError("the clip is empty")
        return voice


def _record(voice: Voice) -> bytes:
    return voice.model_dump_json(indent=2).encode()
