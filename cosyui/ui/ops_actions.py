"""What an operator can do on the ops tab: a soft restart, asked for once more before it begins."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from html import escape
from typing import Any

import gradio as gr

from cosyui.service.service import SynthesisService
from cosyui.service.soft_restart import SoftRestart
from cosyui.ui.controls import quiet
from cosyui.ui.i18n import Dictionary, Words
from cosyui.ui.ops import size


class OpsActions:
    """Lays its buttons where it is made."""

    def __init__(self, service: SynthesisService, dictionary: Dictionary, t: gr.I18n) -> None:
        self._service = service
        self._dictionary = dictionary
        with gr.Row(elem_classes="ops-actions"):
            ask = gr.Button(t("soft_restart"), elem_id="soft-restart", size="sm", scale=0)
            sure = gr.Button(
                t("soft_restart_sure"), elem_id="soft-restart-sure", size="sm", scale=0, variant="stop", visible=False
            )
            leave = gr.Button(t("soft_restart_leave"), elem_id="soft-restart-leave", size="sm", scale=0, visible=False)
            told = gr.HTML("", elem_id="soft-restart-told", js_on_load=None)
        buttons = [ask, sure, leave]
        ask.click(lambda: _shown(asking=True), None, buttons, **quiet())
        leave.click(lambda: _shown(asking=False), None, buttons, **quiet())
        # Through the queue, unlike the others: it may take a minute.
        outputs = [*buttons, told]
        sure.click(
            self._restart, None, outputs, concurrency_limit=None, show_progress="hidden", api_visibility="private"
        )

    async def _restart(self, request: gr.Request) -> AsyncGenerator[tuple[Any, ...], None]:
        words, service = self._dictionary.of(request), self._service
        running = len(service.overview().running)
        yield *_shown(asking=False), _line(words("soft_restart_waits", count=running))
        yield *_shown(asking=False), _line(result(await service.soft_restarter.run(), words))


def result(done: SoftRestart, words: Words) -> str:
    """What came of it, as a sentence."""
    if not done.engines:
        return words("soft_restart_nobody")
    parts = ", ".join(f"{words(f'soft_restart_{part}')} {size(amount)}" for part, amount in done.freed.items())
    sentence = words(
        "soft_restart_done",
        freed=size(sum(done.freed.values())),
        parts=parts,
        seconds=done.cleared_seconds,
        waited=done.waited_seconds,
        held=done.held_back,
    )
    return sentence + (words("soft_restart_around", count=done.around) if done.around else "")


def _shown(*, asking: bool) -> tuple[Any, Any, Any]:
    """The button, or instead of it the question."""
    return gr.Button(visible=not asking), gr.Button(visible=asking), gr.Button(visible=asking)


def _line(sentence: str) -> str:
    return f'<p class="hint">{escape(sentence)}</p>'
