"""Sound on its way out: int16 PCM, fades, and WAV files that appear whole or not at all."""

from __future__ import annotations

import errno
import os
import struct
import tempfile
from pathlib import Path
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any, Self, overload

import numpy as np
from numpy.typing import NDArray

from cosyui.engine.request import SAMPLE_RATE
from cosyui.errors import CosyuiError

if TYPE_CHECKING:
    from torch import Tensor

Samples = NDArray[np.float32]

FADE_SECONDS = 0.02
HEADER_BYTES = 44
MAX_DATA_BYTES = 2**32 - 1 - HEADER_BYTES


def to_pcm16(wave: Any) -> bytes:
    """Float samples in [-1, 1] (any shape, numpy or torch) as little-endian int16; louder ones are clipped.

    Raises ValueError for NaN or infinity: such sound must not leave the engine.
    """
    samples = np.asarray(wave, dtype=np.float32).reshape(-1)
    if not np.isfinite(samples).all():
        raise ValueError("the wave has samples that are not finite")
    scaled: NDArray[np.float32] = np.clip(samples, -1.0, 1.0) * np.float32(32767.0)
    return np.rint(scaled).astype("<i2").tobytes()


@overload
def fade(
    wave: Samples, sample_rate: int = ..., *, start: bool = ..., end: bool = ..., seconds: float = ...
) -> Samples: ...
@overload
def fade(
    wave: Tensor, sample_rate: int = ..., *, start: bool = ..., end: bool = ..., seconds: float = ...
) -> Tensor: ...
def fade(
    wave: Samples | Tensor,
    sample_rate: int = SAMPLE_RATE,
    *,
    start: bool = True,
    end: bool = True,
    seconds: float = FADE_SECONDS,
) -> Samples | Tensor:
    """A copy of ``wave`` (S,) with a raised-cosine fade at its start, its end or both; short waves get short fades.

    Numpy gives numpy, a tensor gives a tensor on the CPU.
    """
    faded = np.array(wave if isinstance(wave, np.ndarray) else wave.detach().cpu().numpy(), dtype=np.float32)
    length = min(int(seconds * sample_rate), len(faded) // 2)
    if length:
        ramp = (0.5 - 0.5 * np.cos(np.pi * (np.arange(length) + 0.5) / length)).astype(np.float32)
        if start:
            faded[:length] *= ramp
        if end:
            faded[-length:] *= ramp[::-1]
    if isinstance(wave, np.ndarray):
        return faded
    import torch  # only its caller has one loaded; the web process needs none

    return torch.from_numpy(faded)


def wav_header(data_bytes: int, sample_rate: int = SAMPLE_RATE, channels: int = 1) -> bytes:
    """The 44-byte header of an int16 WAV file with ``data_bytes`` of samples."""
    block = 2 * channels
    form = struct.pack("<4sI4s", b"RIFF", HEADER_BYTES - 8 + data_bytes, b"WAVE")
    layout = struct.pack("<4sIHHIIHH", b"fmt ", 16, 1, channels, sample_rate, sample_rate * block, block, 16)
    return form + layout + struct.pack("<4sI", b"data", data_bytes)


class WavWriter:
    """Writes int16 chunks to a temporary file beside ``path`` and renames it when it is finished.

    The file appears under its name only when it is complete, with a right header and flushed to disk; after `discard`
    nothing is left. Use it in a ``with`` block, or call `open`, then `finish` or `discard`. All raise CosyuiError
    ``disk_full``, ``outputs_not_writable`` or ``output_bad`` (over 4 GB).
    """

    def __init__(self, path: Path, sample_rate: int = SAMPLE_RATE) -> None:
        self.path = path
        self.sample_rate = sample_rate
        self.data_bytes = 0
        self._file: IO[bytes] | None = None

    @property
    def seconds(self) -> float:
        """Length of what was written so far."""
        return self.data_bytes / 2 / self.sample_rate

    def open(self) -> Self:
        """Make the temporary file, and its folder if there is none."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file = tempfile.NamedTemporaryFile(  # noqa: SIM115  (closed by finish and discard)
                dir=self.path.parent, prefix=f".{self.path.stem}.", suffix=".part", delete=False
            )
            self._file.write(wav_header(0, self.sample_rate))
        except OSError as error:
            self.discard()
            raise _write_error(error, self.path) from error
        return self

    def write(self, pcm: bytes) -> None:
        """Append little-endian int16 samples."""
        assert self._file is not None, "open it first"
        if self.data_bytes + len(pcm) > MAX_DATA_BYTES:
            raise CosyuiError("output_bad", "The recording has outgrown the WAV format (4 GB). Use shorter texts.")
        try:
            self._file.write(pcm)
        except OSError as error:
            raise _write_error(error, self.path) from error
        self.data_bytes += len(pcm)

    def flush(self) -> None:
        """Let `read` see all that was written."""
        assert self._file is not None, "open it first"
        try:
            self._file.flush()
        except OSError as error:
            raise _write_error(error, self.path) from error

    def read(self, start: int, size: int) -> bytes:
        """Samples again, from byte ``start`` on, of a file in work or a finished one. Raises OSError if it is gone."""
        if self._file is not None:
            return os.pread(self._file.fileno(), size, HEADER_BYTES + start)
        with self.path.open("rb") as file:
            file.seek(HEADER_BYTES + start)
            return file.read(size)

    def finish(self) -> None:
        """Let the file appear under its name; after an error nothing is left."""
        try:
            self._finish()
        except OSError as problem:
            self.discard()
            raise _write_error(problem, self.path) from problem

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.finish()
        else:
            self.discard()

    def _finish(self) -> None:
        assert self._file is not None
        self._file.seek(0)
        self._file.write(wav_header(self.data_bytes, self.sample_rate))
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        # A temporary file is private; the result is an ordinary file of this user.
        Path(self._file.name).chmod(0o644)
        Path(self._file.name).replace(self.path)
        self._file = None

    def discard(self) -> None:
        """Take the temporary file away; fine if there is none."""
        if self._file is None:
            return
        name = Path(self._file.name)
        try:
            self._file.close()
        except OSError:
            # Closing flushes, which fails again on a full disk; the file goes anyway.
            pass
        finally:
            name.unlink(missing_ok=True)
            self._file = None


def _write_error(error: OSError, path: Path) -> CosyuiError:
    folder = path.parent
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return CosyuiError("disk_full", f"The disk is full: nothing could be saved in {folder}. Free some space.")
    reason = error.strerror or "unknown reason"
    return CosyuiError("outputs_not_writable", f"The result could not be saved in {folder}: {reason}.")
