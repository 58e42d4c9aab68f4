"""Who is no operator is told so on the ops tab, and can become one by a password, where there is one."""

from __future__ import annotations

from typing import Any

import gradio as gr

from cosyui.errors import CosyuiError
from cosyui.ui.guard import Guard
from cosyui.ui.pieces import hint
from cosyui.ui.render import problem, problem_of


class OpsGate:
    """Lays itself where it is made; after ``unlock_events`` the tab is to be shown anew."""

    def __init__(self, guard: Guard, t: gr.I18n, *, has_password: bool) -> None:
        self._guard = guard
        self._has_password = has_password
        with gr.Row(elem_classes="ops-actions ops-gate", visible=False) as self._row:
            self._line = gr.HTML("", elem_id="ops-gate-line", js_on_load=None)
            self.password = gr.Textbox(
                type="password",
                show_label=False,
                container=False,
                placeholder=t("admin_password"),
                elem_id="ops-password",
                max_lines=1,
                max_length=200,
                min_width=150,
                scale=0,
                visible=has_password,
            )
            unlock = gr.Button(t("admin_unlock"), elem_id="ops-unlock", size="sm", scale=0, visible=has_password)
            self._told = gr.HTML("", elem_id="ops-gate-told", elem_classes="told", js_on_load=None)
        self.parts = [self._row, self._line, self.password, self._told]
        self.unlock_events = [unlock.click, self.password.submit]

    def view(self, request: gr.Request, told: str = "") -> tuple[Any, ...]:
        """For ``parts``."""
        admin, words = self._guard.is_admin(request), self._guard.words(request)
        line = "" if admin else hint(words("admin_locked") if self._has_password else words.error(self._guard.refusal))
        return gr.Row(visible=not admin), line, "", told

    def unlock(self, password: str, request: gr.Request) -> str:
        """What to tell: nothing when it went well."""
        words = self._guard.words(request)
        try:
            return "" if self._guard.unlock(request, password) else problem(words("admin_wrong"))
        except CosyuiError as error:
            return problem_of(error, words)
