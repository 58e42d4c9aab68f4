"""The folder of finished takes: <root>/<yyyy-mm-dd>/<id>.wav, written beside and renamed, read only from inside."""

from __future__ import annotations

import errno
import os
import tempfile
from datetime import datetime
from pathlib import Path

from cosyui.errors import CosyuiError, SetupError


class OutputStore:
    """Blocking; call it from a thread when an event loop is running."""

    def __init__(self, root: Path) -> None:
        self.root = Path(root).expanduser().absolute()

    def check(self) -> None:
        """Make the folder and prove that it can be written.

        Raises:
            SetupError: ``outputs_not_writable`` or ``disk_full``.
        """
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=self.root) as probe:
                probe.write(b"cosyui")
        except OSError as error:
            problem = self.problem(error)
            raise SetupError(problem.code, problem.message) from error

    def path(self, take_id: str) -> Path:
        """Where a take that is asked for now belongs."""
        return self.root / f"{datetime.now().astimezone():%Y-%m-%d}" / f"{take_id}.wav"

    def discard(self, path: Path) -> None:
        """Delete a take that nobody will fetch; one that is already gone is fine.

        Raises:
            CosyuiError: ``outputs_not_writable``.
        """
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise self.problem(error) from error

    def find(self, name: str) -> Path | None:
        """The take at ``name``, relative to the root; None if there is none or it lies outside (``..``, links)."""
        root = self.root.resolve()
        path = (root / name).resolve()
        return path if path.is_relative_to(root) and path.is_file() else None

    def problem(self, error: OSError) -> CosyuiError:
        """The sentence for a failed write."""
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            return CosyuiError("disk_full", f"The disk with {self.root} is full. Free some space and try again.")
        reason = os.strerror(error.errno) if error.errno else str(error)
        message = (
            f"The output folder {self.root} cannot be written ({reason}). "
            "Change its permissions or choose another one with COSYUI_OUTPUTS_DIR."
        )
        return CosyuiError("outputs_not_writable", message)
