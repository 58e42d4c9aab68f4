"""Two engine processes side by side, and the figures that come of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cosyui.bench.__main__ import main
from cosyui.bench.make_checkpoint import make_checkpoint


def test_the_speech_of_all_engines_is_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_checkpoint(tmp_path / "model", "tiny", seed=3, tokens_per_text_id=5)
    file = tmp_path / "devices.json"
    options = ["--devices", "cpu,cpu", "--clients", "1", "--rounds", "2", "--words", "5", "--json", str(file)]
    assert main(["devices", str(tmp_path / "model"), *options]) == 0
    one, two = json.loads(file.read_text())["devices"]
    assert (one["devices"], two["devices"]) == (1, 2)
    assert (one["requests"], two["requests"]) == (2, 4)
    for row in (one, two):
        # Five words and a full stop are six or seven ids of 5 tokens, by which words they are; which requests are
        # among those that are timed depends on who ends first.
        assert 1.2 - 1e-6 <= row["speech_s"] / row["requests"] <= 1.4 + 1e-6
        assert row["speech_per_s"] == pytest.approx(row["speech_s"] / row["wall_s"])
    assert two["over_one"] == pytest.approx(two["speech_per_s"] / one["speech_per_s"])
    assert "engines side by side" in capsys.readouterr().out


def test_a_device_that_is_none_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["devices", str(tmp_path), "--devices", "gpu"])
    assert "numbers of GPUs" in capsys.readouterr().err
