"""PCM, fades, and files that appear whole or not at all."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch
from hypothesis import given
from hypothesis import strategies as st

from cosyui.errors import CosyuiError
from cosyui.speech.sound import audio_out
from cosyui.speech.sound.audio_out import WavWriter, fade, to_pcm16, wav_header


@given(st.lists(st.floats(-3, 3, width=32), max_size=50))
def test_pcm_is_rounded_clipped_little_endian(values: list[float]) -> None:
    pcm = np.frombuffer(to_pcm16(np.array(values, np.float32)), "<i2").astype(int)
    expected = np.clip(np.array(values, np.float64), -1, 1) * 32767
    assert len(pcm) == len(values)
    assert np.abs(pcm - expected).max(initial=0) <= 0.51


def test_pcm_takes_tensors_and_refuses_what_is_not_finite() -> None:
    assert to_pcm16(torch.tensor([[0.0, 1.0, -1.0]])) == np.array([0, 32767, -32767], "<i2").tobytes()
    for bad in (float("nan"), float("inf")):
        with pytest.raises(ValueError, match="finite"):
            to_pcm16(np.array([0.0, bad]))


def test_fades_touch_only_the_ends_and_leave_the_input_alone() -> None:
    wave = np.ones(4800, np.float32)
    faded = fade(wave)
    assert wave.min() == 1.0
    assert faded[0] < 0.01
    assert faded[-1] < 0.01
    assert (faded[480:-480] == 1.0).all()
    assert (np.diff(faded[:480]) > 0).all()
    assert fade(wave, start=False)[0] == 1.0
    assert fade(wave, end=False)[-1] == 1.0
    assert torch.equal(fade(torch.ones(4800)), torch.from_numpy(faded))


@pytest.mark.parametrize("length", [0, 1, 2, 3, 100])
def test_short_waves_fade_without_overlap(length: int) -> None:
    faded = fade(np.ones(length, np.float32))
    assert len(faded) == length
    assert (faded <= 1.0).all()


def write_wav(path: Path, chunks: Iterable[bytes]) -> float:
    """The seconds that were written."""
    with WavWriter(path) as writer:
        for chunk in chunks:
            writer.write(chunk)
    return writer.seconds


def chunks(*sizes: int) -> Iterator[bytes]:
    for size in sizes:
        yield np.arange(size, dtype="<i2").tobytes()


def test_the_file_is_right_and_readable_by_all_its_users(tmp_path: Path) -> None:
    path = tmp_path / "new" / "a.wav"
    seconds = write_wav(path, chunks(240, 0, 24_000))
    samples, rate = soundfile.read(path, dtype="int16")
    assert rate == 24_000
    assert samples.tolist() == [*range(240), *range(24_000)]
    assert seconds == pytest.approx(1.01)
    assert path.stat().st_size == 44 + 2 * 24_240
    assert [entry.name for entry in path.parent.iterdir()] == ["a.wav"]


def test_an_empty_file_still_has_a_right_header(tmp_path: Path) -> None:
    assert write_wav(tmp_path / "a.wav", []) == 0
    assert (tmp_path / "a.wav").read_bytes() == wav_header(0)


def test_nothing_is_visible_before_the_end_and_nothing_left_after_a_failure(tmp_path: Path) -> None:
    path = tmp_path / "a.wav"
    path.write_bytes(b"the old one")

    def failing() -> Iterator[bytes]:
        yield bytes(200)
        assert path.read_bytes() == b"the old one"
        raise RuntimeError("engine")

    with pytest.raises(RuntimeError, match="engine"):
        write_wav(path, failing())
    assert path.read_bytes() == b"the old one"
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.wav"]


class FailingFile:
    """A file on a disk that is full, from the given call on."""

    def __init__(self, file, number: int, calls: int) -> None:
        self.file, self.number, self.calls = file, number, calls
        self.name = file.name

    def write(self, data: bytes) -> int:
        self.calls -= 1
        if self.calls < 0:
            raise OSError(self.number, os.strerror(self.number))
        return self.file.write(data)

    def __getattr__(self, name: str):
        return getattr(self.file, name)


@pytest.mark.parametrize(
    ("number", "code"),
    [(errno.ENOSPC, "disk_full"), (errno.EDQUOT, "disk_full"), (errno.EIO, "outputs_not_writable")],
)
@pytest.mark.parametrize("calls", [0, 1, 2, 3])
def test_a_full_disk_is_a_clear_error_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, code: str, calls: int
) -> None:
    real = audio_out.tempfile.NamedTemporaryFile
    monkeypatch.setattr(
        audio_out.tempfile, "NamedTemporaryFile", lambda *a, **k: FailingFile(real(*a, **k), number, calls)
    )
    with pytest.raises(CosyuiError) as caught:
        write_wav(tmp_path / "a.wav", chunks(100, 100))
    assert caught.value.code == code
    assert str(tmp_path) in caught.value.message
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_made_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(CosyuiError) as caught:
        write_wav(tmp_path / "file" / "a.wav", chunks(10))
    assert caught.value.code == "outputs_not_writable"


def test_a_file_beyond_the_format_is_refused(tmp_path: Path) -> None:
    with WavWriter(tmp_path / "a.wav") as writer:
        writer.data_bytes = 2**32 - 100
        with pytest.raises(CosyuiError, match="4 GB"):
            writer.write(bytes(200))
        writer.data_bytes = 0
    assert (tmp_path / "a.wav").stat().st_size == 44
