"""Fields for what people say of a voice."""

from __future__ import annotations

from typing import Any

import gradio as gr

from cosyui.speech.text.language import KNOWN_LANGUAGES
from cosyui.ui.controls import problem_place, quiet
from cosyui.ui.i18n import Dictionary, both


class VoiceFields:
    """Name, language and note on consent, laid where it is made; ``prefix`` begins the ids of its elements."""

    def __init__(self, prefix: str, dictionary: Dictionary, t: gr.I18n) -> None:
        self._dictionary = dictionary
        self.problems: dict[str, gr.HTML] = {}
        with gr.Row(elem_classes="name-row"):
            with gr.Column(scale=3, min_width=200, elem_classes="field"):
                self.name = gr.Textbox(
                    label=t("voice_name"),
                    placeholder=t("voice_name_placeholder"),
                    max_lines=1,
                    elem_id=f"{prefix}-name",
                )
                self._problem(prefix, "name")
                gr.HTML(f'<p class="hint">{both("voice_name_hint")}</p>', js_on_load=None)
            with gr.Column(scale=2, min_width=150, elem_classes="field"):
                languages = [(t("language_any"), ""), *((t(f"language_{code}"), code) for code in KNOWN_LANGUAGES)]
                self.language = gr.Dropdown(
                    languages, value="", label=t("voice_language"), elem_id=f"{prefix}-language"
                )
                self._problem(prefix, "language")
        with gr.Column(elem_classes="field"):
            self.consent = gr.Textbox(
                label=t("voice_consent"),
                placeholder=t("voice_consent_placeholder"),
                lines=1,
                max_lines=4,
                elem_id=f"{prefix}-consent",
            )
            self._problem(prefix, "consent")
            gr.HTML(f'<p class="hint">{both("voice_consent_hint")}</p>', js_on_load=None)
            with gr.Row(elem_classes="chips"):
                own = gr.Button(t("voice_consent_own"), size="sm", elem_id=f"{prefix}-consent-own")
        own.click(self._own, None, [self.consent, self.problems["consent"]], **quiet())
        for field, problem in self.problems.items():
            component: Any = getattr(self, field)
            component.input(None, None, problem, js="() => ''")

    def _problem(self, prefix: str, field: str) -> None:
        self.problems[field] = problem_place(f"{prefix}-{field}")

    def _own(self, request: gr.Request) -> tuple[str, str]:
        return self._dictionary.of(request)("voice_consent_own_text"), ""
