"""A whole service to be measured, whose files are all in a folder of its own."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cosyui.service.service import SynthesisService


def own_service(model: str, folder: Path, **options: Any) -> SynthesisService:
    """``model``: a folder, embedded, or fake for the service alone; ``options`` are settings."""
    from cosyui.host.config import HostConfig
    from cosyui.host.pool import EnginePool
    from cosyui.service.clips import ClipStore
    from cosyui.service.outputs import OutputStore
    from cosyui.service.service import SynthesisService
    from cosyui.settings import Settings

    fake = model == "fake"
    own = {
        "engine": "fake" if fake else "real",
        "model": "embedded" if fake else model,
        "outputs_dir": folder / "outputs",
        "clips_dir": folder / "clips",
        "journal": folder / "journal.sqlite",
        "log_level": "error",
    }
    settings = Settings.load(own | options, {})
    pool = EnginePool(HostConfig.from_settings(settings).on_devices(()))
    return SynthesisService(settings, pool, OutputStore(settings.outputs_dir), ClipStore.from_settings(settings))
