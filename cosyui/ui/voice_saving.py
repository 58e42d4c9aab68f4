"""Saving a voice from a clip and words that stand in fields."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gradio as gr

from cosyui.errors import CosyuiError
from cosyui.service.voice_record import VoiceForm
from cosyui.ui import render
from cosyui.ui.clip_fields import ClipFields
from cosyui.ui.controls import quiet
from cosyui.ui.i18n import Dictionary
from cosyui.ui.pieces import hint
from cosyui.ui.voice_desk import VoiceDesk
from cosyui.ui.voice_fields import VoiceFields


class VoiceSaving:
    """The fields about a voice and the button that saves it, laid where it is made.

    After an error all that was typed stays. After a success the fields are empty again, with ``whole`` those of the
    clip, too. ``saved`` is the event after either.
    """

    def __init__(
        self, prefix: str, clip: ClipFields, desk: VoiceDesk, dictionary: Dictionary, t: gr.I18n, *, whole: bool = False
    ) -> None:
        self._desk = desk
        fields = self.fields = VoiceFields(prefix, dictionary, t)
        with gr.Row(elem_classes="ops-actions"):
            button = gr.Button(
                t("voice_save"), variant="primary" if whole else "secondary", elem_id=f"{prefix}-save", scale=0
            )
        self.told = gr.HTML("", elem_id=f"{prefix}-told", elem_classes="told", js_on_load=None)
        self._emptied: dict[Any, Any] = {fields.name: "", fields.consent: "", fields.language: ""}
        if whole:
            self._emptied |= {clip.clip: None, clip.transcript: ""}
        self.problems = clip.problems | fields.problems
        inputs = [clip.clip, clip.transcript, fields.name, fields.language, fields.consent]
        outputs = [self.told, *self._emptied, *self.problems.values()]
        self.saved = button.click(self.save, inputs, outputs, **quiet())

    async def save(
        self,
        clip: str | None,
        transcript: str,
        name: str,
        language: str | None,
        consent: str,
        request: gr.Request,
    ) -> dict[Any, Any]:
        words = self._desk.words(request)
        source = Path(clip) if clip else None
        try:
            form = VoiceForm(name, source, transcript, language or None, consent, maker=self._desk.by)
            voice = await self._desk.save(form)
        except CosyuiError as error:
            beside, general = render.problems_by_field(error, self.problems, words)
            told = render.problem(" ".join(general))
            return {self.told: told} | {place: beside.get(field, "") for field, place in self.problems.items()}
        told = hint(words("voice_saved", name=voice.name))
        return {self.told: told} | self._emptied | dict.fromkeys(self.problems.values(), "")
