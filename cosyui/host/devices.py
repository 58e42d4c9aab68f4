"""Which devices get an engine."""

from __future__ import annotations

import subprocess
import sys

from cosyui.errors import SetupError
from cosyui.settings import Settings

COUNT = "import torch; print(torch.cuda.device_count())"
COUNT_SECONDS = 120.0


def find_devices(settings: Settings) -> tuple[str, ...]:
    """``cuda:<number>`` for each GPU of ``settings.devices``, () where that is empty. May take some seconds.

    Raises:
        SetupError: ``setting_invalid``; the machine does not have these GPUs.
    """
    wanted = settings.devices
    if not wanted:
        return ()
    numbers = [] if wanted == "all" else [int(number) for number in wanted.split(",")]
    if settings.engine == "real" or not numbers:
        count = gpu_count()
        missing = [number for number in numbers if number >= count]
        if not count or missing:
            there = f"PyTorch finds {count} here" + (f", numbered from 0 to {count - 1}." if count else ".")
            raise SetupError("setting_invalid", f"COSYUI_DEVICES={wanted}: there are no such GPUs; {there}")
        numbers = numbers or list(range(count))
    return tuple(f"cuda:{number}" for number in numbers)


def gpu_count() -> int:
    """As PyTorch numbers them; asked in a process of its own, because the server keeps away from the driver."""
    try:
        answer = subprocess.run(  # noqa: S603  (our own interpreter)
            [sys.executable, "-P", "-c", COUNT], capture_output=True, text=True, timeout=COUNT_SECONDS, check=True
        )
        return int(answer.stdout)
    except (OSError, ValueError, subprocess.SubprocessError):
        return 0
