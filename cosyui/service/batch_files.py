"""Batches on the disk: a folder for each, named by its id, with what was asked for, how far it is, and a WAV a line.

Blocking. Records are written beside and renamed.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from cosyui.service import folders
from cosyui.service.batch_record import ID_PATTERN, Batch, Order, Progress
from cosyui.speech.sound.audio_out import HEADER_BYTES

BATCHES = "batches"
"""The folder, below the outputs."""
ORDER, PROGRESS, ARCHIVE = "order.json", "progress.json", "batch.zip"
LARGEST_RECORD = 64 << 20


class BatchFiles:
    """The folder is made with the first batch."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def folder(self, batch_id: str) -> Path:
        return self.root / batch_id

    def sound(self, batch_id: str, index: int) -> Path:
        """Where the sound of a line is, once it is made."""
        return self.folder(batch_id) / f"{index + 1:05}.wav"

    def archive(self, batch_id: str) -> Path:
        return self.folder(batch_id) / ARCHIVE

    def read_all(self) -> tuple[list[Batch], dict[str, str]]:
        """The batches, the oldest first, and why others cannot be read. Finishes what a killed server began to delete.

        Raises OSError when the folder is there and cannot be read.
        """
        batches, damaged = folders.read_all(self.root, ID_PATTERN, self._read)
        return sorted(batches, key=lambda batch: (batch.order.created, batch.id)), damaged

    def create(self, batch: Batch) -> None:
        """Raises OSError; then nothing is left of it."""
        order, progress = batch.order.model_dump_json().encode(), batch.progress.model_dump_json().encode()
        folders.create(self.root, batch.id, {ORDER: order, PROGRESS: progress})

    def save(self, batch_id: str, progress: bytes) -> None:
        """Raises OSError; then what was saved before is there."""
        folders.replace_file(self.folder(batch_id) / PROGRESS, progress)

    def keep(self, batch_id: str, index: int, take: Path) -> None:
        """A finished take becomes the sound of a line. Raises OSError."""
        take.replace(self.sound(batch_id, index))

    def remove(self, batch_id: str) -> None:
        """Raises OSError; what is left of it then, the next start deletes."""
        folders.put_away(self.root, batch_id)
        folders.sweep(self.root, batch_id)

    def size(self, batch_id: str) -> int:
        """Bytes of its files; of those that cannot be looked at, none."""
        total = 0
        with suppress(OSError):
            for entry in os.scandir(self.folder(batch_id)):
                with suppress(OSError):
                    total += entry.stat(follow_symlinks=False).st_size
        return total

    def _read(self, folder: Path) -> Batch:
        for left in folder.glob(".*.part"):  # a killed server was writing it
            left.unlink()
        order = Order.model_validate_json(folders.read_file(folder / ORDER, LARGEST_RECORD))
        progress = Progress.model_validate_json(folders.read_file(folder / PROGRESS, LARGEST_RECORD))
        if order.id != folder.name or len(progress.lines) != len(order.lines):
            raise ValueError("the records do not belong together")
        for index, line in enumerate(progress.lines):
            samples = _samples(self.sound(order.id, index))
            if line.status == "waiting" and samples > 0:  # it was made, and the server killed before it said so
                line.status, line.samples = "done", samples
            elif line.status == "done" and samples != line.samples:  # gone: by the same seed it is made again
                line.status = "waiting"
                progress.state = "stopped" if progress.state == "done" else progress.state
        return Batch(order, progress)


def _samples(path: Path) -> int:
    try:
        return (path.stat().st_size - HEADER_BYTES) // 2
    except OSError:
        return -1
