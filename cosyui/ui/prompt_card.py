"""The card of the voice: how it is used, which it is, a clip with its transcript, and the instruction."""

from __future__ import annotations

from typing import Any

import gradio as gr

from cosyui.engine.request import Mode
from cosyui.service.history_file import PastTake
from cosyui.service.service import SynthesisService
from cosyui.ui.clip_fields import ClipFields
from cosyui.ui.controls import preset_rows, problem_place, quiet
from cosyui.ui.i18n import Dictionary, Words, both
from cosyui.ui.voice_choice import VoiceChoice
from cosyui.ui.voice_desk import VoiceDesk
from cosyui.ui.voice_saving import VoiceSaving


class PromptCard:
    """Lays itself out inside the current Blocks and wires its own fields.

    ``problems`` are the places of the fields' problems. ``examples`` are buttons that fill in clip and transcript.
    """

    def __init__(self, service: SynthesisService, desk: VoiceDesk, dictionary: Dictionary, i18n: gr.I18n) -> None:
        self._service = service
        self._dictionary = dictionary
        with gr.Column(elem_classes="card"):
            self._lay_mode(i18n)
            self.voice = VoiceChoice(desk, i18n)
            fields = self.fields = ClipFields(service, dictionary, i18n)
            self._lay_keeping(desk, i18n)
            self._lay_instruction(i18n)
        self.clip, self.transcript, self.examples = fields.clip, fields.transcript, fields.examples
        self.problems = {"voice": self.voice.problem, **fields.problems, "instruction": self._instruction_problem}
        self._wire()

    def filled(self, take: PastTake, clip: bytes | None, words: Words) -> dict[Any, Any]:
        """What puts the voice of a past take back into the fields."""
        return {
            self.mode: take.mode,
            self.voice.chosen: self.voice.of(take.voice, words),
            self.clip: clip,
            self.transcript: "" if take.voice else take.transcript,
            self.instruction: take.instruction,
            self.fields.note: "",
        }

    @property
    def filled_fields(self) -> list[Any]:
        """What `filled` gives values for."""
        return [self.mode, self.voice.chosen, self.clip, self.transcript, self.instruction, self.fields.note]

    def _lay_mode(self, t: gr.I18n) -> None:
        with gr.Column(elem_classes="field"):
            modes = [(t(f"mode_{mode.value}"), mode.value) for mode in Mode]
            self.mode = gr.Radio(
                modes, value=Mode.ZERO_SHOT.value, label=t("mode"), elem_id="mode", elem_classes="segmented"
            )
            self.mode_hint = gr.HTML(_mode_hint(Mode.ZERO_SHOT.value), elem_classes="hint", js_on_load=None)

    def _lay_keeping(self, desk: VoiceDesk, t: gr.I18n) -> None:
        with gr.Column(elem_classes="field keeping") as self.keeping_field:
            self.keep = gr.Checkbox(label=t("voice_keep"), elem_id="keep", container=False)
            with gr.Column(visible=False, elem_classes="keep-panel") as self.keep_panel:
                self.saving = VoiceSaving("keep", self.fields, desk, self._dictionary, t)

    def _lay_instruction(self, t: gr.I18n) -> None:
        with gr.Column(elem_classes="field", visible=False) as self.instruction_field:
            self.instruction = gr.Textbox(
                label=t("instruction"), placeholder=t("instruction_placeholder"), lines=2, elem_id="instruction"
            )
            self._instruction_problem = problem_place("instruction")
            self.instruct_note = gr.HTML("", elem_classes="note", js_on_load=None)
            preset_rows(t, self.instruction)

    def _wire(self) -> None:
        parts = [self.mode_hint, self.instruction_field, self.instruct_note, self.fields.clip_field]
        parts += [self.fields.transcript_field, self.keeping_field, self.keep_panel]
        parts += [self.voice.about, self.voice.problem]
        gr.on(
            [self.mode.change, self.voice.chosen.change, self.keep.change],
            self._show_parts,
            [self.mode, self.voice.chosen, self.keep],
            parts,
            **quiet(),
        )
        self.fields.wire_report(self.mode)
        self.instruction.input(None, None, self._instruction_problem, js="() => ''")
        self.saving.saved.then(self.voice.refresh, self.voice.chosen, self.voice.shown, **quiet())

    def _show_parts(self, mode: str, chosen: str | None, keep: bool, request: gr.Request) -> tuple[Any, ...]:
        """The fields that this mode and this voice need; who saves a voice sees all that is saved."""
        facts = self._service.client.facts
        unsupported = mode == Mode.INSTRUCT and facts is not None and not facts.instruct_supported
        own = not chosen
        return (
            _mode_hint(mode),
            gr.Column(visible=mode == Mode.INSTRUCT),
            f'<p class="note-line">{both("instruct_unsupported")}</p>' if unsupported else "",
            gr.Column(visible=own),
            gr.Column(visible=own and (keep or mode == Mode.ZERO_SHOT)),
            gr.Column(visible=own),
            gr.Column(visible=keep),
            *self.voice.tell(chosen, self._dictionary.of(request)),
        )


def _mode_hint(mode: str) -> str:
    return f"<p>{both(f'mode_{mode}_hint')}</p>"
