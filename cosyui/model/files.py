"""The cheap checks of any file of a checkpoint, before something tries to parse it."""

from __future__ import annotations

from pathlib import Path

from cosyui.errors import CheckpointError

_LFS_MAGIC = b"version https://git-lfs"


def check_file(path: Path) -> bytes:
    """Return the first 64 bytes of ``path``: it exists, is readable and not empty, and is no Git LFS pointer.

    Raises CheckpointError ``checkpoint_missing_file`` or ``checkpoint_corrupt``.
    """
    if not path.is_file():
        raise CheckpointError(
            "checkpoint_missing_file",
            f"{path} is missing: the model folder is incomplete. Download the model again or point --model elsewhere.",
        )
    try:
        with path.open("rb") as stream:
            head = stream.read(64)
    except OSError as error:
        raise corrupt(path, f"not readable ({error.strerror or error})") from error
    if not head:
        raise corrupt(path, "empty (0 bytes)")
    if head.startswith(_LFS_MAGIC):
        raise corrupt(path, "only a Git LFS pointer, not the file itself (`git lfs pull` in that folder fetches it)")
    return head


def corrupt(path: Path, what: str) -> CheckpointError:
    """The error ``checkpoint_corrupt`` for ``path``."""
    return CheckpointError("checkpoint_corrupt", f"{path} is damaged: {what}. Delete this file and download it again.")
