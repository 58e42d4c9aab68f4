"""What is particular to our own downloader."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest
from fake_hubs import REPO, FakeHubs

from cosyui.errors import CheckpointError
from cosyui.hub import resolve
from cosyui.hub.download import HubUnreachableError, RemoteFile
from cosyui.hub.modelscope import ModelScopeHub


def fetch(cache: Path) -> Path:
    return resolve(f"modelscope:{REPO}", cache_dir=cache, progress=False)


def test_part_of_an_earlier_run_is_continued(hubs: FakeHubs, tmp_path: Path) -> None:
    part = tmp_path / "modelscope" / REPO / "flow.pt.part"
    part.parent.mkdir(parents=True)
    part.write_bytes(hubs.files["flow.pt"][:1234])
    folder = fetch(tmp_path)
    assert hubs.ranges("flow.pt") == ["bytes=1234-"]
    assert (folder / "flow.pt").read_bytes() == hubs.files["flow.pt"]
    assert not part.exists()


@pytest.mark.parametrize("length", [10, 40_000, 50_000])
def test_wrong_part_of_an_earlier_run_is_dropped(hubs: FakeHubs, tmp_path: Path, length: int) -> None:
    part = tmp_path / "modelscope" / REPO / "flow.pt.part"
    part.parent.mkdir(parents=True)
    part.write_bytes(bytes(length))
    assert (fetch(tmp_path) / "flow.pt").read_bytes() == hubs.files["flow.pt"]


def test_server_without_ranges_sends_all_again(hubs: FakeHubs, tmp_path: Path) -> None:
    hubs.ignore_range = True
    hubs.cut = {"flow.pt": 15_000}
    assert (fetch(tmp_path) / "flow.pt").read_bytes() == hubs.files["flow.pt"]


def test_gives_up_after_attempts_that_bring_nothing(hubs: FakeHubs, tmp_path: Path) -> None:
    pauses: list[float] = []
    hubs.broken = True
    with (
        closing(ModelScopeHub(REPO, tmp_path, progress=False, pause=pauses.append)) as hub,
        pytest.raises(HubUnreachableError, match="500"),
    ):
        hub.download("flow.pt", RemoteFile(40_000, None), again=False)
    assert len(pauses) == 4
    assert pauses == sorted(pauses)


def test_default_cache_follows_xdg(hubs: FakeHubs, tmp_path: Path) -> None:
    folder = resolve(f"modelscope:{REPO}", progress=False)
    assert folder == tmp_path / "home-cache" / "cosyui" / "modelscope" / REPO


def test_unreachable_server_is_named(hubs: FakeHubs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MODELSCOPE_ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(CheckpointError) as caught:
        fetch(tmp_path)
    assert caught.value.code == "model_unreachable"
    assert "ModelScope" in caught.value.message


def test_progress_bar_counts_the_bytes(hubs: FakeHubs, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    resolve(f"modelscope:{REPO}", cache_dir=tmp_path, progress=True)
    shown = capfd.readouterr().err
    assert "flow.pt: 100%" in shown
    assert "40.0k/40.0k" in shown
