"""Gradio components made fit for this page, and small helpers for its events.

Methods are replaced on the instance: a subclass of a Gradio component writes a stub file beside its own source.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

import gradio as gr
from gradio.data_classes import FileData

from cosyui.ui.i18n import both
from cosyui.ui.presets import GROUPS

Upload = TypeVar("Upload", gr.Audio, gr.File)


def uploads_only(component: Upload) -> Upload:
    """The same, that takes uploads of this page only: an address sent in their place is never fetched."""
    keep = component.async_move_resource_to_block_cache

    async def keep_file(url_or_file_path: str | Path | None) -> str | None:
        if "://" in str(url_or_file_path):
            raise gr.Error("Upload it as a file.", print_exception=False)
        return await keep(url_or_file_path)

    component.async_move_resource_to_block_cache = keep_file  # type: ignore[method-assign]
    return component


def clip_input(label: Any, elem_id: str = "clip") -> gr.Audio:
    """Upload or microphone."""
    clip = gr.Audio(
        sources=["upload", "microphone"],
        type="filepath",
        label=label,
        elem_id=elem_id,
        elem_classes="sound",
        buttons=[],
        waveform_options=_waveform(),
    )
    return uploads_only(clip)


def take_player(elem_id: str = "take", *, download: bool = True, visible: bool = True) -> gr.Audio:
    """Plays a finished WAV where it lies: no copy of it, and no run of ffmpeg to look into it."""
    player = gr.Audio(
        type="filepath",
        interactive=False,
        elem_id=elem_id,
        elem_classes="sound",
        waveform_options=_waveform(),
        show_label=False,
        buttons=["download"] if download else [],
        visible=visible,
    )

    def as_it_is(value: Any) -> FileData | None:
        return None if value is None else FileData(path=str(value), orig_name=Path(value).name)

    player.postprocess = as_it_is  # type: ignore[method-assign]
    return player


def _waveform() -> gr.WaveformOptions:
    return gr.WaveformOptions(waveform_color="#9fb3c4", waveform_progress_color="#0d9488", skip_length=15)


def preset_rows(t: gr.I18n, instruction: gr.Textbox) -> None:
    """A row of buttons a group; each writes its instruction into the field, where it can be edited."""
    for group, presets in GROUPS.items():
        with gr.Row(elem_classes="chips preset"):
            gr.HTML(f'<span class="chips-label">{both(f"preset_{group}")}</span>', js_on_load=None)
            for preset in presets:
                button = gr.Button(t(preset.key), size="sm", elem_id=preset.key.replace("_", "-"))
                button.click(None, None, instruction, js=f"() => {preset.instruction!r}")


def problem_place(field: str) -> gr.HTML:
    """Where a field's problem is told; it follows the field it belongs to."""
    return gr.HTML("", elem_id=f"problem-{field}", elem_classes="problem", js_on_load=None)


def quiet() -> dict[str, Any]:
    """Options of a short event: straight to its handler, no progress animation, not part of any public interface."""
    return {"queue": False, "show_progress": "hidden", "api_visibility": "private"}
