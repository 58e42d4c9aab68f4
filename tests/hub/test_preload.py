from __future__ import annotations

import os
from pathlib import Path

import pytest
from fake_hubs import REPO, FakeHubs

import preload_model
from cosyui.bench.make_checkpoint import make_checkpoint


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("COSYUI_")]:
        monkeypatch.delenv(name)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "tiny"
    make_checkpoint(folder, "tiny")
    return folder


def test_report(tiny: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert preload_model.main(["--model", str(tiny), "--device", "cpu"]) == 0
    shown = capsys.readouterr().out
    for part in (
        str(tiny),
        "flow.pt",
        "device          cpu",
        "loaded in",
        "M parameters",
        "float32",
        "RTF",
        "MiB of main",
    ):
        assert part in shown
    assert shown.count("s of speech") == 2


def test_download_only(hubs: FakeHubs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.setenv("COSYUI_MODEL", f"modelscope:{REPO}")
    assert preload_model.main(["--download-only", "--no-progress"]) == 0
    shown = capsys.readouterr().out
    assert f"ModelScope {REPO}" in shown
    assert "11, 0 MiB, complete" in shown
    assert "loaded" not in shown
    assert preload_model.main(["--download-only", "--offline"]) == 0


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--model", "/no/such/folder"], "/no/such/folder"),
        (["--model", "hf:name"], "OWNER/NAME"),
        (["--precision", "int3"], "precision"),
        (["--llm-file", "llm.bin"], "llm_file"),
    ],
)
def test_one_sentence_and_exit_code(options: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert preload_model.main(options) == 2
    shown = capsys.readouterr()
    assert shown.err.startswith("error: ")
    assert shown.err.count("\n") == 1
    assert said in shown.err
    assert "Traceback" not in shown.err + shown.out


def test_damaged_weights(tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for file in tiny.rglob("*"):
        if file.is_file():
            copy = tmp_path / file.relative_to(tiny)
            copy.parent.mkdir(exist_ok=True)
            copy.write_bytes(file.read_bytes()[: 1000 if file.name == "hift.pt" else None])
    assert preload_model.main(["--model", str(tmp_path), "--device", "cpu"]) == 2
    assert "hift.pt is damaged" in capsys.readouterr().err
