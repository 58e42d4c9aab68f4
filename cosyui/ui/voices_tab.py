"""The tab of the saved voices: a new one, one from a file, and those that there are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gradio as gr

from cosyui.errors import CosyuiError
from cosyui.service.service import SynthesisService
from cosyui.ui import render
from cosyui.ui.clip_fields import ClipFields
from cosyui.ui.controls import problem_place, quiet, uploads_only
from cosyui.ui.i18n import Dictionary, both
from cosyui.ui.pieces import hint
from cosyui.ui.takes import Takes
from cosyui.ui.voice_desk import VoiceDesk
from cosyui.ui.voice_detail import VoiceDetail
from cosyui.ui.voice_list import VoiceList
from cosyui.ui.voice_saving import VoiceSaving


class VoicesTab:
    """Lays itself where it is made; `wire` tells it when the tab is opened."""

    def __init__(
        self, service: SynthesisService, takes: Takes, desk: VoiceDesk, dictionary: Dictionary, t: gr.I18n
    ) -> None:
        self._desk = desk
        with gr.Row(elem_classes="workspace"):
            with gr.Column(scale=7, min_width=320, elem_classes="side"):
                with gr.Column(elem_classes="card", elem_id="voice-new"):
                    gr.HTML(f'<h2 class="card-title">{both("voice_new")}</h2>', js_on_load=None)
                    clip = ClipFields(service, dictionary, t, "voice-", "voice_transcript_hint", examples=False)
                    self.saving = VoiceSaving("voice", clip, desk, dictionary, t, whole=True)
                with gr.Column(elem_classes="card", elem_id="voice-import"):
                    self._lay_import(t)
            with gr.Column(scale=5, min_width=320, elem_classes="side"):
                self.list = VoiceList(desk, t)
                self.detail = VoiceDetail(desk, self.list, takes, dictionary, t)
        clip.wire_report()
        inputs = [self._files, self._name]
        outputs = [self._told, self._files, self._name, *self._problems.values()]
        imported = self._import_button.click(self.take_in, inputs, outputs, **quiet())
        for event in (self.saving.saved.then, imported.then):
            event(self.list.show, self.list.inputs, self.list.shown, **quiet())

    def _lay_import(self, t: gr.I18n) -> None:
        gr.HTML(f'<h2 class="card-title">{both("voice_import")}</h2>', js_on_load=None)
        with gr.Column(elem_classes="field"):
            files = gr.File(
                label=t("voice_file"), file_count="multiple", type="binary", height=110, elem_id="voice-file"
            )
            self._files = uploads_only(files)
            file_problem = problem_place("voice-file")
            gr.HTML(f'<p class="hint">{both("voice_file_hint")}</p>', js_on_load=None)
        with gr.Column(elem_classes="field"):
            self._name = gr.Textbox(
                label=t("voice_import_name"),
                placeholder=t("voice_import_name_placeholder"),
                max_lines=1,
                elem_id="import-name",
            )
            self._problems = {"file": file_problem, "name": problem_place("import-name")}
        with gr.Row(elem_classes="ops-actions"):
            self._import_button = gr.Button(t("voice_import_go"), elem_id="voice-import-go", scale=0)
        self._told = gr.HTML("", elem_id="import-told", elem_classes="told", js_on_load=None)
        self._name.input(None, None, self._problems["name"], js="() => ''")
        files.change(None, None, self._problems["file"], js="() => ''")

    def wire(self, *opened: Callable[..., Any]) -> None:
        """``opened`` are events upon which the tab is looked at."""
        for event in opened:
            event(self.list.show, self.list.inputs, self.list.shown, **quiet())

    async def take_in(self, files: list[bytes] | None, name: str, request: gr.Request) -> dict[Any, Any]:
        """What was given stays there after an error."""
        words = self._desk.words(request)
        try:
            voice = await self._desk.import_(files or [], name)
        except CosyuiError as error:
            beside, general = render.problems_by_field(error, self._problems, words)
            places = {place: beside.get(field, "") for field, place in self._problems.items()}
            return {self._told: render.problem(" ".join(general))} | places
        emptied: dict[Any, Any] = {self._files: None, self._name: ""}
        told = hint(words("voice_saved", name=voice.name))
        return {self._told: told} | emptied | dict.fromkeys(self._problems.values(), "")
