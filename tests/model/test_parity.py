"""The parity tool on the golden data that the repository holds, and that it can fail."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from cosyui.bench.__main__ import main

ORACLE = Path(__file__).parent.parent / "data" / "oracle"
GOLDEN = sorted(path.name for path in (ORACLE / "golden").iterdir())


@pytest.mark.parametrize("name", GOLDEN)
def test_golden_file_is_reproduced(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["parity", str(ORACLE), "--only", name]) == 0, capsys.readouterr().out
    assert "parity: 1 of 1" in capsys.readouterr().out


def test_a_changed_golden_value_is_noticed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(ORACLE / "checkpoint", tmp_path / "checkpoint")
    (tmp_path / "golden").mkdir()
    with np.load(ORACLE / "golden" / "f0.npz") as file:
        arrays = dict(file)
    arrays["f0_final"] = arrays["f0_final"] * (1 + 1e-5)
    np.savez(tmp_path / "golden" / "f0.npz", **arrays)
    assert main(["parity", str(tmp_path)]) == 1
    out = capsys.readouterr().out
    assert "FAIL (f0_final, relative)" in out
    assert "parity: 0 of 1" in out


def test_a_golden_file_without_a_check_does_not_pass(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(ORACLE / "checkpoint", tmp_path / "checkpoint")
    (tmp_path / "golden").mkdir()
    (tmp_path / "golden" / "something_new.npz").touch()
    assert main(["parity", str(tmp_path)]) == 1
    assert "nothing was compared" in capsys.readouterr().out
