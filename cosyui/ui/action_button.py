"""A button whose work ends in a sentence; one that takes something from somebody asks once more before."""

from __future__ import annotations

from typing import Any

import gradio as gr

from cosyui.ui.controls import quiet
from cosyui.ui.guard import Handler


class ActionButton:
    """Laid where it is made. ``name``: its label's key; with ``asks`` there is also ``<name>_sure``.

    ``go`` is what a press means it by; ``buttons`` are what `shown` is about.
    """

    def __init__(self, t: gr.I18n, name: str, *, asks: bool = False) -> None:
        self._id = name.replace("_", "-")
        button = self.go = gr.Button(t(name), elem_id=self._id, size="sm", scale=0)
        self.buttons = [button]
        if not asks:
            return
        sure = gr.Button(
            t(f"{name}_sure"), elem_id=f"{self._id}-sure", size="sm", scale=0, variant="stop", visible=False
        )
        leave = gr.Button(t("leave_it"), elem_id=f"{self._id}-leave", size="sm", scale=0, visible=False)
        buttons = [button, sure, leave]
        self.buttons = buttons
        button.click(lambda: shown(asking=True), None, buttons, **quiet())
        gr.on([sure.click, leave.click], lambda: shown(asking=False), None, buttons, **quiet())
        self.go = sure

    def does(self, handler: Handler) -> None:
        """What a press does; how it went is told here. Through Gradio's queue: it may take a minute."""
        told = gr.HTML("", elem_id=f"{self._id}-told", elem_classes="told", js_on_load=None)
        self.go.click(handler, None, told, concurrency_limit=None, show_progress="hidden", api_visibility="private")


def shown(*, asking: bool) -> tuple[Any, Any, Any]:
    """The button, or instead of it the question."""
    return gr.Button(visible=not asking), gr.Button(visible=asking), gr.Button(visible=asking)
