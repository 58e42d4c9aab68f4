"""Bytes of a folder."""

import os

import pytest

from cosyui.ops.disk import disk_use


def test_all_files_below_count_and_links_only_as_links(tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "big").write_bytes(b"x" * 5000)
    root = tmp_path / "outputs"
    (root / "a" / "b").mkdir(parents=True)
    (root / "one").write_bytes(b"x" * 10)
    (root / "a" / "b" / "two").write_bytes(b"x" * 100)
    (root / "link").symlink_to(outside)
    use = disk_use(root)
    assert use.used == 110 + len(os.fspath(outside))
    assert 0 < use.free <= use.total
    with pytest.raises(FileNotFoundError):
        disk_use(tmp_path / "missing")
