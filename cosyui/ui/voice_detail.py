"""One saved voice: to be heard, changed, exported and deleted."""

from __future__ import annotations

from collections.abc import AsyncIterator
from html import escape
from typing import Any

import gradio as gr

from cosyui.errors import CosyuiError
from cosyui.service.voice_record import Voice
from cosyui.ui import render
from cosyui.ui.action_button import ActionButton, shown
from cosyui.ui.controls import problem_place, quiet, take_player
from cosyui.ui.i18n import Dictionary, Words, both
from cosyui.ui.pieces import hint
from cosyui.ui.synthesis import session_of
from cosyui.ui.takes import Takes
from cosyui.ui.voice_desk import VoiceDesk
from cosyui.ui.voice_fields import VoiceFields
from cosyui.ui.voice_list import VoiceList, facts


class VoiceDetail:
    """The card of the voice that is chosen in the list, laid where it is made; hidden while there is none."""

    def __init__(self, desk: VoiceDesk, listed: VoiceList, takes: Takes, dictionary: Dictionary, t: gr.I18n) -> None:
        self._desk = desk
        self._list = listed
        self._takes = takes
        with gr.Column(elem_classes="card", elem_id="voice-detail", visible=False) as self.card:
            self.head = gr.HTML("", elem_id="voice-head", js_on_load=None)
            with gr.Column(elem_classes="field"):
                gr.HTML(f'<span class="field-label">{both("voice_clip")}</span>', js_on_load=None)
                self.clip = take_player("voice-player", download=False)
            with gr.Column(elem_classes="field"):
                with gr.Row(elem_classes="ops-actions"):
                    self._preview_button = gr.Button(t("voice_preview"), elem_id="voice-preview", size="sm", scale=0)
                    self._export_button = gr.Button(t("voice_export"), elem_id="voice-export", size="sm", scale=0)
                    self._delete = ActionButton(t, "voice_delete", asks=True)
                self.status = gr.HTML("", elem_id="voice-status", elem_classes="voice-status", js_on_load=None)
                self.spoken = take_player("voice-spoken", visible=False)
            self.fields = VoiceFields("edit", dictionary, t)
            with gr.Column(elem_classes="field"):
                self.transcript = gr.Textbox(
                    label=t("transcript"), placeholder=t("voice_transcript_hint"), lines=2, elem_id="edit-transcript"
                )
                self.problems = {**self.fields.problems, "transcript": problem_place("edit-transcript")}
            with gr.Row(elem_classes="ops-actions"):
                self._save_button = gr.Button(t("voice_change"), variant="primary", elem_id="voice-change", scale=0)
            self.told = gr.HTML("", elem_id="edit-told", elem_classes="told", js_on_load=None)
        self._file = gr.DownloadButton(visible="hidden", elem_id="voice-file-out")
        self._wire()

    def _wire(self) -> None:
        fields, chosen = self.fields, self._list.chosen
        values: list[Any] = [fields.name, fields.language, self.transcript, fields.consent]
        self._values = values
        whole = [chosen, self.card, self.head, self.clip, self.status, self.spoken, *values, *self.problems.values()]
        whole += [self.told, self._list.told, *self._delete.buttons, self._save_button, *self._list.shown]
        self.transcript.input(None, None, self.problems["transcript"], js="() => ''")
        opened = self._list.picked.click(
            self.open, [self._list.inputs[0], self._list.value], whole, js=self._list.js, **quiet()
        )
        opened.then(None, None, None, js="() => cosyui.show('voice-detail')")
        told = [self.head, self.told, *self.problems.values(), *self._list.shown]
        self._save_button.click(self.change, [chosen, *values, self._list.inputs[0]], told, **quiet())
        self._delete.go.click(
            self.remove,
            self._list.inputs,
            [chosen, self.card, self.told, self._list.told, *self._list.shown],
            **quiet(),
        )
        exported = self._export_button.click(self.export, chosen, [self.status, self._file], **quiet())
        exported.then(None, self._file, None, js="(file) => cosyui.download(file)")
        self._preview_button.click(
            self.preview,
            chosen,
            [self.status, self.spoken, self._preview_button],
            concurrency_limit=None,  # the service queues
            show_progress="hidden",
            api_visibility="private",
        )

    async def open(self, query: str, voice_id: str, request: gr.Request) -> dict[Any, Any]:
        """Show a voice as it is now, and nothing of the one before."""
        await self._takes.stop(preview_of(request))
        words = self._desk.words(request)
        try:
            voice = self._desk.voices.get(str(voice_id))
        except CosyuiError as error:
            return self._closed(query, render.problem_of(error, words), request)
        try:
            clip, problem = str(await self._desk.clip_file(voice.id)), ""
        except CosyuiError as error:
            clip, problem = None, render.problem_of(error, words)
        locked = self._desk.locked(voice)
        return {
            self._list.chosen: voice.id,
            self.card: gr.Column(visible=True),
            self.head: self._head(voice, words),
            self.clip: clip,
            self.status: "",
            self.spoken: gr.Audio(value=None, visible=False),
            self.fields.name: voice.name,
            self.fields.language: voice.language or "",
            self.transcript: voice.transcript,
            self.fields.consent: voice.consent,
            self.told: problem,
            self._list.told: "",
            self._save_button: gr.Button(interactive=not locked),
            **dict.fromkeys(self.problems.values(), ""),
            **dict(zip(self._delete.buttons, shown(asking=False), strict=True)),
            self._delete.buttons[0]: gr.Button(visible=True, interactive=not locked),
            **self._listed(query, voice.id, request),
        }

    async def change(
        self,
        voice_id: str,
        name: str,
        language: str | None,
        transcript: str,
        consent: str,
        query: str,
        request: gr.Request,
    ) -> dict[Any, Any]:
        """What was typed stays, whatever comes of it."""
        words = self._desk.words(request)
        try:
            voice = await self._desk.change(voice_id, name, transcript, language or "", consent)
        except CosyuiError as error:
            beside, general = render.problems_by_field(error, self.problems, words)
            places = {place: beside.get(field, "") for field, place in self.problems.items()}
            return {self.told: render.problem(" ".join(general))} | places
        told = {self.told: hint(words("voice_changed")), self.head: self._head(voice, words)}
        return told | dict.fromkeys(self.problems.values(), "") | self._listed(query, voice.id, request)

    async def remove(self, query: str, voice_id: str, request: gr.Request) -> dict[Any, Any]:
        """Says what was deleted; what is gone already is told, too."""
        words = self._desk.words(request)
        await self._takes.stop(preview_of(request))
        try:
            voice = await self._desk.remove(voice_id)
        except CosyuiError as error:
            if error.code == "voice_not_found":
                return self._closed(query, render.problem_of(error, words), request)
            return {self.told: render.problem_of(error, words)}
        return self._closed(query, hint(words("voice_deleted", name=voice.name)), request)

    async def export(self, voice_id: str, request: gr.Request) -> tuple[str, str | None]:
        words = self._desk.words(request)
        try:
            path = await self._desk.export_file(voice_id)
        except CosyuiError as error:
            return render.problem_of(error, words), None
        return hint(words("voice_exported", name=path.name)), str(path)

    async def preview(self, voice_id: str, request: gr.Request) -> AsyncIterator[dict[Any, Any]]:
        """A take like any other; one at a time on a page, beside the one of the other tab."""
        words, session = self._desk.words(request), preview_of(request)
        try:
            form = await self._desk.preview_form(voice_id, words, session[:8])
        except CosyuiError as error:
            yield {self.status: render.problem_of(error, words)}
            return
        async for view in self._takes.views(session, form, words):
            update = {
                self.status: view.status + "".join(view.problems.values()),
                self._preview_button: gr.Button(interactive=view.state == "idle"),
            }
            if view.result is not None:
                update[self.spoken] = gr.Audio(value=str(view.result.path.resolve()), visible=True)
            yield update

    def _head(self, voice: Voice, words: Words) -> str:
        locked = hint(words("voice_locked")) if self._desk.locked(voice) else ""
        title = f'<h2 class="card-title"><bdi>{escape(voice.name)}</bdi></h2>'
        return f'{title}<p class="hint">{escape(facts(voice, words))}</p>{locked}'

    def _closed(self, query: str, told: str, request: gr.Request) -> dict[Any, Any]:
        closed = {self._list.chosen: "", self.card: gr.Column(visible=False), self._list.told: told}
        return closed | self._listed(query, "", request)

    def _listed(self, query: str, chosen: str, request: gr.Request) -> dict[Any, Any]:
        return dict(zip(self._list.shown, self._list.show(query, chosen, request), strict=True))


def preview_of(request: gr.Request) -> str:
    """The browser tab's name in which voices are heard: it does not stop the take of the other tab."""
    return f"{session_of(request)}-voice"
