"""Both hubs keep the same promises, so each test runs against both imitations."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from fake_hubs import EXTRAS, REPO, FakeHubs

from cosyui.errors import CosyuiError
from cosyui.hub import needed_files, resolve

pytestmark = pytest.mark.parametrize("hub", ["hf", "modelscope"])


def fetch(hub: str, cache: Path, **options: bool | str) -> Path:
    return resolve(f"{hub}:{REPO}", cache_dir=cache, progress=False, **options)  # type: ignore[arg-type]


def code_of(hub: str, cache: Path, **options: bool | str) -> tuple[str, str]:
    with pytest.raises(CosyuiError) as caught:
        fetch(hub, cache, **options)
    return caught.value.code, caught.value.message


def test_fetches_exactly_the_needed_files(hubs: FakeHubs, hub: str, tmp_path: Path) -> None:
    folder = fetch(hub, tmp_path)
    assert {name: (folder / name).read_bytes() for name in needed_files()} == {
        name: hubs.files[name] for name in needed_files()
    }
    assert hubs.transferred() == set(needed_files())
    assert not any((folder / name).exists() for name in (*EXTRAS, "llm.rl.pt"))


def test_complete_cache_needs_no_network(hubs: FakeHubs, hub: str, tmp_path: Path) -> None:
    folder = fetch(hub, tmp_path)
    before = hubs.requests
    assert fetch(hub, tmp_path) == folder
    assert fetch(hub, tmp_path, offline=True) == folder
    assert hubs.requests == before


def test_other_llm_file_is_fetched_alone(hubs: FakeHubs, hub: str, tmp_path: Path) -> None:
    fetch(hub, tmp_path)
    hubs.transfers.clear()
    folder = fetch(hub, tmp_path, llm_file="llm.rl.pt")
    assert hubs.transferred() == {"llm.rl.pt"}
    assert (folder / "llm.rl.pt").read_bytes() == hubs.files["llm.rl.pt"]


def test_interrupted_transfer_goes_on_where_it_stopped(hubs: FakeHubs, hub: str, tmp_path: Path) -> None:
    hubs.cut = {"flow.pt": 15_000}
    folder = fetch(hub, tmp_path)
    assert (folder / "flow.pt").read_bytes() == hubs.files["flow.pt"]
    assert [wanted for wanted in hubs.ranges("flow.pt") if wanted] == ["bytes=15000-"]


def test_damaged_transfer_is_repeated_once(
    hubs: FakeHubs, hub: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    hubs.spoil = {"hift.pt": 1, "CosyVoice-BlankEN/vocab.json": 1}
    with caplog.at_level(logging.WARNING, logger="cosyui.hub"):
        folder = fetch(hub, tmp_path)
    for name in ("hift.pt", "CosyVoice-BlankEN/vocab.json"):
        assert (folder / name).read_bytes() == hubs.files[name]
        assert len(hubs.ranges(name)) == 2
        assert any(name in record.getMessage() for record in caplog.records)


def test_file_that_stays_bad_is_named_and_not_kept(hubs: FakeHubs, hub: str, tmp_path: Path) -> None:
    hubs.spoil = {"hift.pt": 2}
    code, message = code_of(hub, tmp_path)
    assert code == "download_failed"
    assert "hift.pt" in message
    assert len(hubs.ranges("hift.pt")) == 2
    folder = fetch(hub, tmp_path)
    assert (folder / "hift.pt").read_bytes() == hubs.files["hift.pt"]


def test_digest_that_the_hub_lists_is_decisive(hubs: FakeHubs, hub: str, tmp_path: Path) -> None:
    hubs.listed_digest = {"campplus.onnx": "ab" * 32}
    code, message = code_of(hub, tmp_path)
    assert (code, "campplus.onnx" in message) == ("download_failed", True)


def test_damaged_cache(hubs: FakeHubs, hub: str, tmp_path: Path) -> None:
    folder = fetch(hub, tmp_path)
    victim = (folder / "flow.pt").resolve()
    content = bytearray(victim.read_bytes())
    content[100] ^= 1
    victim.write_bytes(content)
    code, message = code_of(hub, tmp_path, offline=True)
    assert (code, "flow.pt" in message) == ("checkpoint_corrupt", True)
    hubs.transfers.clear()
    assert (fetch(hub, tmp_path) / "flow.pt").read_bytes() == hubs.files["flow.pt"]
    assert hubs.transferred() == {"flow.pt"}


def test_touched_but_equal_cache_is_accepted_offline(hubs: FakeHubs, hub: str, tmp_path: Path) -> None:
    folder = fetch(hub, tmp_path)
    victim = (folder / "flow.pt").resolve()
    victim.write_bytes(victim.read_bytes())
    assert fetch(hub, tmp_path, offline=True) == folder


@pytest.mark.parametrize("setting", ["argument", "environment"])
def test_offline_without_cache(
    hubs: FakeHubs, hub: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, setting: str
) -> None:
    if setting == "environment":
        monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    code, message = code_of(hub, tmp_path, offline=setting == "argument")
    assert (code, hubs.requests) == ("model_unreachable", 0)
    assert REPO in message
    assert "preload_model.py" in message


def test_unknown_repository(hubs: FakeHubs, hub: str, tmp_path: Path) -> None:
    with pytest.raises(CosyuiError) as caught:
        resolve(f"{hub}:nobody/nothing", cache_dir=tmp_path, progress=False)
    assert caught.value.code == "model_unknown"
    assert "nobody/nothing" in caught.value.message


def test_repository_of_another_kind(hubs: FakeHubs, hub: str, tmp_path: Path) -> None:
    del hubs.files["flow.pt"]
    code, message = code_of(hub, tmp_path)
    assert code == "checkpoint_missing_file"
    assert "flow.pt" in message
    assert not hubs.transfers


def test_missing_optional_file_is_no_fault(hubs: FakeHubs, hub: str, tmp_path: Path) -> None:
    del hubs.files["CosyVoice-BlankEN/generation_config.json"]
    folder = fetch(hub, tmp_path)
    before = hubs.requests
    assert fetch(hub, tmp_path) == folder
    assert hubs.requests == before


def test_server_fault(hubs: FakeHubs, hub: str, tmp_path: Path) -> None:
    hubs.broken = True
    code, message = code_of(hub, tmp_path)
    assert (code, "--model" in message) == ("model_unreachable", True)


def test_refresh_falls_back_to_the_cache(hubs: FakeHubs, hub: str, tmp_path: Path) -> None:
    folder = fetch(hub, tmp_path)
    hubs.broken = True
    assert fetch(hub, tmp_path, refresh=True) == folder


def test_refresh_fetches_what_has_changed(hubs: FakeHubs, hub: str, tmp_path: Path) -> None:
    fetch(hub, tmp_path)
    hubs.files["flow.pt"] = hubs.files["flow.pt"][::-1]
    hubs.transfers.clear()
    assert (fetch(hub, tmp_path) / "flow.pt").read_bytes() != hubs.files["flow.pt"]
    assert (fetch(hub, tmp_path, refresh=True) / "flow.pt").read_bytes() == hubs.files["flow.pt"]
    assert hubs.transferred() == {"flow.pt"}


def test_full_disk_is_said_before_the_download(
    hubs: FakeHubs, hub: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = type("Usage", (), {"free": 1000})
    monkeypatch.setattr("cosyui.hub.download.shutil.disk_usage", lambda _place: usage)
    code, _ = code_of(hub, tmp_path)
    assert (code, hubs.transfers) == ("disk_full", [])
