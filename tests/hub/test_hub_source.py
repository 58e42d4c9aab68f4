from __future__ import annotations

from pathlib import Path

import pytest

from cosyui.errors import CosyuiError
from cosyui.hub import EMBEDDED_FOLDER, Source, needed_files, parse_source, resolve, verify_folder


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("", Source("embedded", str(EMBEDDED_FOLDER))),
        ("embedded", Source("embedded", str(EMBEDDED_FOLDER))),
        ("hf:owner/name", Source("hf", "owner/name")),
        ("owner/na.me-0.5B", Source("hf", "owner/na.me-0.5B")),
        (" modelscope:iic/Some_Model ", Source("modelscope", "iic/Some_Model")),
    ],
)
def test_specs(spec: str, expected: Source) -> None:
    assert parse_source(spec) == expected


@pytest.mark.parametrize(
    ("spec", "code"),
    [
        ("hf:", "setting_invalid"),
        ("hf:name", "setting_invalid"),
        ("hf:../secret", "setting_invalid"),
        ("modelscope:a/b/c", "setting_invalid"),
        ("hf:a/..", "setting_invalid"),
        ("/no/such/folder", "model_unknown"),
        ("./no-such-folder", "model_unknown"),
        ("just-a-name", "model_unknown"),
    ],
)
def test_bad_specs(spec: str, code: str) -> None:
    with pytest.raises(CosyuiError) as caught:
        parse_source(spec)
    assert caught.value.code == code


def test_existing_folder_wins_over_a_repository_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "models" / "voice").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert parse_source("models/voice") == Source("local", "models/voice")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in needed_files():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"content of " + name.encode())
    return tmp_path


def test_complete_folder(folder: Path) -> None:
    assert resolve(str(folder)) == folder
    assert verify_folder(folder)["flow.pt"] == len(b"content of flow.pt")


@pytest.mark.parametrize("name", [name for name in needed_files() if "generation_config" not in name])
def test_missing_file_is_named(folder: Path, name: str) -> None:
    (folder / name).unlink()
    with pytest.raises(CosyuiError) as caught:
        resolve(str(folder))
    assert caught.value.code == "checkpoint_missing_file"
    assert str(folder / name) in caught.value.message


def test_chosen_llm_file_is_the_one_that_counts(folder: Path) -> None:
    (folder / "llm.pt").rename(folder / "llm.rl.pt")
    assert resolve(str(folder), llm_file="llm.rl.pt") == folder
    with pytest.raises(CosyuiError, match=r"llm\.pt is missing"):
        resolve(str(folder))


@pytest.mark.parametrize(
    ("content", "said"),
    [(b"", "empty"), (b"version https://git-lfs.github.com/spec/v1\noid sha256:ab\nsize 3\n", "Git LFS pointer")],
)
def test_placeholder_instead_of_a_file(folder: Path, content: bytes, said: str) -> None:
    (folder / "hift.pt").write_bytes(content)
    with pytest.raises(CosyuiError) as caught:
        verify_folder(folder)
    assert caught.value.code == "checkpoint_corrupt"
    assert said in caught.value.message
    assert "hift.pt" in caught.value.message


@pytest.mark.parametrize("name", ["../llm.pt", "llm.bin", "", "sub/llm.pt", ".pt"])
def test_llm_file_is_a_plain_name(name: str) -> None:
    with pytest.raises(CosyuiError) as caught:
        needed_files(name)
    assert caught.value.code == "setting_invalid"
