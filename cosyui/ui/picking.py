"""Buttons inside of HTML that the server draws: the page's script tells which one was pressed.

Such a button has ``data-pick`` (what for) and ``data-value``. It may be drawn anew while it is pressed (see first.js).
"""

from __future__ import annotations

import gradio as gr


def picker(name: str, *, last: bool = False) -> tuple[gr.Button, gr.Textbox, str]:
    """The button that the script presses for ``data-pick="<name>"``, the input that carries the value, and the ``js``
    that its click needs. The value is the only input, or the ``last`` of several, and the client's word: to be checked.
    """
    button = gr.Button(visible="hidden", elem_id=f"pick-{name}")
    value = gr.Textbox(visible=False)
    return button, value, "(...given) => [...given.slice(0, -1), cosyui.picked]" if last else "() => cosyui.picked"
