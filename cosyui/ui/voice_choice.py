"""The field in which a take's voice is chosen: the own clip, a built-in voice or a saved one."""

from __future__ import annotations

from html import escape
from typing import Any

import gradio as gr

from cosyui.errors import CosyuiError
from cosyui.service.voice_record import Voice
from cosyui.ui import render
from cosyui.ui.controls import problem_place
from cosyui.ui.i18n import Words
from cosyui.ui.voice_desk import VoiceDesk


class VoiceChoice:
    """Laid where it is made. Its value is an id or the name of a built-in voice; empty for the own clip."""

    def __init__(self, desk: VoiceDesk, t: gr.I18n) -> None:
        self._desk = desk
        with gr.Column(elem_classes="field"):
            self.chosen = gr.Dropdown([(t("voice_own"), "")], value="", label=t("voice_choice"), elem_id="voice")
            self.about = gr.HTML("", elem_id="voice-about", elem_classes="note", js_on_load=None)
            self.problem = problem_place("voice")
        self.shown = [self.chosen, self.about, self.problem]

    def refresh(self, chosen: str | None, request: gr.Request) -> tuple[Any, str, str]:
        """What can be chosen now; what was chosen stays, and is told if it is gone."""
        words = self._desk.words(request)
        return self.of(chosen or "", words), *self.tell(chosen, words)

    def of(self, chosen: str, words: Words) -> gr.Dropdown:
        """The dropdown with this voice chosen."""
        return gr.Dropdown(choices=self._desk.choices(words, chosen), value=chosen)

    def tell(self, chosen: str | None, words: Words) -> tuple[str, str]:
        """What the chosen voice is like, and what is wrong with it."""
        if not chosen:
            return "", ""
        try:
            voice = self._desk.look(chosen)
        except CosyuiError as error:
            return "", render.problem_of(error, words)
        facts = [words(f"language_{voice.language}")] if voice.language else []
        if isinstance(voice, Voice):
            facts.append(words("voice_seconds", seconds=voice.seconds))
        if voice.transcript:
            facts.append(words("voice_quote", text=voice.transcript))
        line = f'<p class="hint voice-line"><bdi>{escape(" · ".join(facts))}</bdi></p>'
        return line if voice.transcript else line + render.note(words("voice_without_words")), ""
