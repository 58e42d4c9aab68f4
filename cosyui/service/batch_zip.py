"""What comes of a batch, as one ZIP: a WAV for each line, all of them joined, subtitles, and what did not work.

Blocking; in memory is never more than a minute of sound.
"""

from __future__ import annotations

import csv
import io
import json
import os
import tempfile
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cosyui.engine.request import SAMPLE_RATE
from cosyui.errors import CosyuiError
from cosyui.service.batch_files import BatchFiles
from cosyui.service.batch_record import Batch
from cosyui.service.subtitles import Cue, cues, srt, vtt
from cosyui.speech.sound.audio_out import MAX_DATA_BYTES, wav_header
from cosyui.speech.sound.sequence import joined

LONGEST_NAME = 40
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""A cell that begins so is calculated by spreadsheets."""


def build(batch: Batch, files: BatchFiles) -> Path:
    """Raises CosyuiError ``batch_not_stored``, or ``batch_broken`` when the sound of a line is gone."""
    path = files.archive(batch.id)
    done = [index for index, state in enumerate(batch.progress.lines) if state.status == "done"]
    gone = next((index for index in done if not files.sound(batch.id, index).is_file()), None)
    if gone is not None:
        message = f"The sound of line {batch.order.lines[gone].number} is gone from the disk. Start the batch again."
        raise CosyuiError("batch_broken", message)
    name = ""
    try:
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".batch.", suffix=".part", delete=False) as file:
            name = file.name
            with zipfile.ZipFile(file, "w") as archive:
                _fill(archive, batch, files, done)
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(path)
    except OSError as error:
        Path(name or path).unlink(missing_ok=True)
        message = f"The ZIP file could not be written ({error.strerror}). Free some space in COSYUI_OUTPUTS_DIR."
        raise CosyuiError("batch_not_stored", message) from error
    return path


def safe_name(number: int, text: str) -> str:
    """Letters and digits of any script, and dashes."""
    kept = "".join(char if char.isalnum() else "-" for char in text)
    short = "-".join(part for part in kept.split("-") if part)[:LONGEST_NAME].strip("-")
    return f"{number:04}-{short}" if short else f"{number:04}"


def cues_of(batch: Batch, done: list[int], pause: int) -> Iterator[Cue]:
    """Of the lines that are made, at their places in the joined sound."""
    begin = 0
    for index in done:
        line, state = batch.order.lines[index], batch.progress.lines[index]
        yield from cues(line.text, line.name, begin, state.samples, state.parts)
        begin += state.samples + pause


def _fill(archive: zipfile.ZipFile, batch: Batch, files: BatchFiles, done: list[int]) -> None:
    pause = round(batch.order.pause * SAMPLE_RATE)
    total = sum(batch.progress.lines[index].samples for index in done) + pause * max(0, len(done) - 1)
    names = {index: f"lines/{safe_name(index + 1, _called(batch, index))}.wav" for index in done}
    for index, name in names.items():
        archive.write(files.sound(batch.id, index), name)
    fits = 2 * total <= MAX_DATA_BYTES
    if fits:
        whole = zipfile.ZipInfo("dialogue.wav", time.localtime()[:6])
        with archive.open(whole, "w", force_zip64=True) as out:
            out.write(wav_header(2 * total))
            for pcm in joined([files.sound(batch.id, index) for index in done], pause):
                out.write(pcm)
        timed = list(cues_of(batch, done, pause))
        archive.writestr("subtitles.srt", srt(timed))
        archive.writestr("subtitles.vtt", vtt(timed))
    archive.writestr("manifest.json", json.dumps(_manifest(batch, names, fits), ensure_ascii=False, indent=2))
    archive.writestr("failures.csv", _failures(batch))


def _called(batch: Batch, index: int) -> str:
    line = batch.order.lines[index]
    return line.name or line.voice


def _manifest(batch: Batch, names: dict[int, str], fits: bool) -> dict[str, Any]:
    """``dialogue`` is null where all lines together do not fit into a WAV file."""
    pairs = zip(batch.order.lines, batch.progress.lines, strict=True)
    lines = [
        {
            "line": line.number,
            "name": line.name,
            "voice": line.voice,
            "text": line.text,
            "status": state.status,
            "seed": state.seed,
            "seconds": round(state.seconds, 3),
            "code": state.code,
            "file": names.get(index),
        }
        for index, (line, state) in enumerate(pairs)
    ]
    told = {"id": batch.id, "created": batch.order.created, "status": batch.state, "sample_rate": SAMPLE_RATE}
    return told | {"pause": batch.order.pause, "dialogue": "dialogue.wav" if fits else None, "lines": lines}


def _failures(batch: Batch) -> str:
    out = io.StringIO()
    table = csv.writer(out)
    table.writerow(["line", "name", "voice", "code", "message", "text"])
    for line, state in zip(batch.order.lines, batch.progress.lines, strict=True):
        if state.status == "failed":
            cells = [line.name, line.voice, state.code, state.message, line.text]
            table.writerow([line.number, *(_harmless(cell or "") for cell in cells)])
    return out.getvalue()


def _harmless(cell: str) -> str:
    return f"'{cell}" if cell.startswith(_FORMULA) else cell
