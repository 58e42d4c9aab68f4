from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_hubs import FakeHubs, serve


@pytest.fixture
def hubs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[FakeHubs]:
    """Both hubs on 127.0.0.1; the environment points at them, and default caches at an empty folder."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home-cache"))
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    with serve() as server:
        monkeypatch.setenv("HF_ENDPOINT", server.url)
        monkeypatch.setenv("MODELSCOPE_ENDPOINT", server.url)
        for hub in ("huggingface", "modelscope"):
            monkeypatch.setattr(f"cosyui.hub.{hub}._PAUSE", 0.0)
        # The library goes on from whole blocks of 10 MB; the files here are smaller.
        monkeypatch.setattr("huggingface_hub.constants.DOWNLOAD_CHUNK_SIZE", 1000)
        yield server
