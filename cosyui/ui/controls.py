"""Gradio components made fit for this page, and small helpers for its events.

Subclasses keep the parent's constructor: Gradio reads its signature to know what to send to the browser.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gradio as gr
from gradio.data_classes import FileData
from gradio_client.utils import is_http_url_like

from cosyui.ui.i18n import both
from cosyui.ui.presets import GROUPS


class ClipInput(gr.Audio):
    """Upload or microphone. Takes files of this page only: an address sent in their place is never fetched."""

    def get_block_name(self) -> str:
        return "audio"

    async def async_move_resource_to_block_cache(self, url_or_file_path: Any) -> str | None:
        if url_or_file_path is not None and is_http_url_like(str(url_or_file_path)):
            raise gr.Error("Upload the clip as a file.", print_exception=False)
        return await super().async_move_resource_to_block_cache(url_or_file_path)


class TakePlayer(gr.Audio):
    """Plays a finished WAV where it lies: no copy, no probing by ffmpeg."""

    def get_block_name(self) -> str:
        return "audio"

    def postprocess(self, value: Any) -> FileData | None:
        return None if value is None else FileData(path=str(value), orig_name=Path(value).name)


def clip_input(label: Any) -> ClipInput:
    return ClipInput(
        sources=["upload", "microphone"],
        type="filepath",
        label=label,
        elem_id="clip",
        buttons=[],
        waveform_options=_waveform(),
    )


def take_player() -> TakePlayer:
    return TakePlayer(
        type="filepath",
        interactive=False,
        show_label=False,
        elem_id="take",
        buttons=["download"],
        waveform_options=_waveform(),
    )


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


def quiet() -> dict[str, Any]:
    """Options of a short event: straight to its handler, no progress animation, not part of any public interface."""
    return {"queue": False, "show_progress": "hidden", "api_visibility": "private"}
