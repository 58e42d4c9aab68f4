"""The folder for temporary files: alone with its owner, and gone after it, however that ends."""

import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from cosyui.errors import SetupError
from cosyui.service.scratch import scratch_folder

OWNER = """
import sys
from cosyui.service.scratch import scratch_folder
with scratch_folder() as folder:
    (folder / "uploads").mkdir()
    (folder / "uploads" / "voice.wav").write_bytes(b"private")
    print(folder, flush=True)
    sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def temporary(tmp_path, monkeypatch):
    """The system's place for temporary folders."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return tmp_path


@pytest.fixture
def owner():
    """Another server's process, and its folder."""
    process = subprocess.Popen([sys.executable, "-c", OWNER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    yield process, Path(process.stdout.readline().strip())
    process.kill()
    process.communicate()


def test_it_is_private_and_gone_afterwards(temporary):
    with scratch_folder() as folder:
        assert folder.parent == temporary
        assert folder.stat().st_mode & 0o777 == 0o700
        (folder / "something").write_text("to be deleted")
    assert list(temporary.iterdir()) == []


def test_what_a_killed_server_left_goes_at_the_next_start(owner):
    process, left = owner
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert (left / "uploads" / "voice.wav").exists()
    with scratch_folder():
        assert not left.exists()


def test_a_living_server_keeps_its_own(owner):
    _, kept = owner
    with scratch_folder() as first, scratch_folder() as second:
        assert len({first, second, kept}) == 3
    assert (kept / "uploads" / "voice.wav").exists()


def test_nothing_else_is_touched(temporary):
    elsewhere = temporary / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / ".lock").touch()
    (temporary / "cosyui-link").symlink_to(elsewhere)
    (temporary / "cosyui-without-lock").mkdir()
    (temporary / "cosyui-file").touch()
    before = set(temporary.iterdir())
    with scratch_folder():
        pass
    assert set(temporary.iterdir()) == before
    assert (elsewhere / ".lock").exists()


def test_no_place_is_told(temporary, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(temporary / "missing"))
    with pytest.raises(SetupError, match="Set TMPDIR") as caught, scratch_folder():
        pass
    assert caught.value.code == "temporary_not_writable"
