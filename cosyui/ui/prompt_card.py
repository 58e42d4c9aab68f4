"""The card of the voice: how it is used, the clip with its report, its transcript, and the instruction."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import gradio as gr

from cosyui.engine.request import Mode
from cosyui.errors import CosyuiError
from cosyui.service.history_file import PastTake
from cosyui.service.service import SynthesisService
from cosyui.service.voice_names import EXAMPLE_TRANSCRIPTS, EXAMPLES
from cosyui.speech.clip.report import GOOD_SECONDS
from cosyui.speech.clip.transcribe import INSTALL
from cosyui.ui import render
from cosyui.ui.controls import clip_input, preset_rows, quiet
from cosyui.ui.i18n import Dictionary, both


class PromptCard:
    """Lays itself out inside the current Blocks and wires its own fields.

    ``problems`` are the places of the fields' problems. ``examples`` are buttons that fill in clip and transcript.
    """

    def __init__(self, service: SynthesisService, dictionary: Dictionary, i18n: gr.I18n) -> None:
        self._service = service
        self._dictionary = dictionary
        self.problems: dict[str, gr.HTML] = {}
        with gr.Column(elem_classes="card"):
            self._lay_mode(i18n)
            self._lay_clip(i18n)
            self._lay_transcript(i18n)
            self._lay_instruction(i18n)
        self._wire_clip()
        self._wire_transcript()

    def filled(self, take: PastTake, clip: bytes | None) -> dict[Any, Any]:
        """What puts the voice of a past take back into the fields."""
        return {
            self.mode: take.mode,
            self.clip: clip,
            self.transcript: take.transcript,
            self.instruction: take.instruction,
            self.transcript_note: "",
        }

    def _problem(self, field: str) -> None:
        self.problems[field] = gr.HTML("", elem_id=f"problem-{field}", elem_classes="problem", js_on_load=None)

    def _lay_mode(self, t: gr.I18n) -> None:
        with gr.Column(elem_classes="field"):
            modes = [(t(f"mode_{mode.value}"), mode.value) for mode in Mode]
            self.mode = gr.Radio(
                modes, value=Mode.ZERO_SHOT.value, label=t("mode"), elem_id="mode", elem_classes="segmented"
            )
            self.mode_hint = gr.HTML(_mode_hint(Mode.ZERO_SHOT.value), elem_classes="hint", js_on_load=None)

    def _lay_clip(self, t: gr.I18n) -> None:
        with gr.Column(elem_classes="field"):
            self.clip = clip_input(t("clip"))
            self.clip_report = gr.HTML(self._clip_hint(), elem_id="clip-report", js_on_load=None)
            self._problem("clip")
            with gr.Row(elem_classes="chips", visible=False) as self.long_clip:
                self.best_part = gr.Button(t("best_part"), size="sm", elem_id="best-part")
            with gr.Row(elem_classes="chips"):
                gr.HTML(f'<span class="chips-label">{both("clip_examples")}</span>', js_on_load=None)
                self.examples = {
                    name: gr.Button(t(f"clip_example_{name}"), size="sm", elem_id=f"example-{name}")
                    for name in EXAMPLE_TRANSCRIPTS
                }

    def _lay_transcript(self, t: gr.I18n) -> None:
        able = self._service.transcriber is not None
        with gr.Column(elem_classes="field") as self.transcript_field:
            self.transcript = gr.Textbox(
                label=t("transcript"), placeholder=t("transcript_placeholder"), lines=2, elem_id="transcript"
            )
            self._problem("transcript")
            self.transcript_note = gr.HTML("", elem_id="transcript-note", elem_classes="note", js_on_load=None)
            with gr.Row(elem_classes="chips"):
                self.transcribe = gr.Button(t("transcribe"), size="sm", elem_id="transcribe", interactive=able)
            if not able:
                hint = both("transcribe_missing", command=INSTALL)
                gr.HTML(f'<p class="hint">{hint}</p>', elem_id="transcribe-hint", js_on_load=None)

    def _lay_instruction(self, t: gr.I18n) -> None:
        with gr.Column(elem_classes="field", visible=False) as self.instruction_field:
            self.instruction = gr.Textbox(
                label=t("instruction"), placeholder=t("instruction_placeholder"), lines=2, elem_id="instruction"
            )
            self._problem("instruction")
            self.instruct_note = gr.HTML("", elem_classes="note", js_on_load=None)
            preset_rows(t, self.instruction)

    def _wire_clip(self) -> None:
        reported = [self.clip_report, self.problems["clip"], self.long_clip]
        self.mode.change(
            self._show_mode,
            self.mode,
            [self.mode_hint, self.transcript_field, self.instruction_field, self.instruct_note],
            **quiet(),
        )
        gr.on([self.clip.change, self.mode.change], self._report, [self.clip, self.mode], reported, **quiet())
        self.best_part.click(
            self._cut,
            [self.clip, self.transcript],
            [self.clip, self.transcript, self.transcript_note, self.problems["clip"]],
            **quiet(),
        )
        for language, button in self.examples.items():
            button.click(
                lambda language=language: (str(EXAMPLES / f"{language}.wav"), EXAMPLE_TRANSCRIPTS[language], "", ""),
                None,
                [self.clip, self.transcript, self.transcript_note, self.problems["transcript"]],
                **quiet(),
            )

    def _wire_transcript(self) -> None:
        for name in ("transcript", "instruction"):
            component: Any = getattr(self, name)
            component.input(None, None, self.problems[name], js="() => ''")
        self.transcript.blur(self._check_transcript, [self.clip, self.transcript], self.transcript_note, **quiet())
        self.transcribe.click(
            self._transcribe,
            self.clip,
            [self.transcript, self.transcript_note, self.transcribe, self.problems["transcript"]],
            concurrency_limit=None,  # the service takes one at a time
            show_progress="hidden",
            api_visibility="private",
        )

    def _show_mode(self, mode: str) -> tuple[Any, ...]:
        facts = self._service.client.facts
        unsupported = mode == Mode.INSTRUCT and facts is not None and not facts.instruct_supported
        return (
            _mode_hint(mode),
            gr.Column(visible=mode == Mode.ZERO_SHOT),
            gr.Column(visible=mode == Mode.INSTRUCT),
            f'<p class="note-line">{both("instruct_unsupported")}</p>' if unsupported else "",
        )

    def _report(self, clip: str | None, mode: str, request: gr.Request) -> tuple[str, str, Any]:
        """Runs in a thread: decoding takes some milliseconds. A long clip gets the button that cuts it."""
        words = self._dictionary.of(request)
        if clip is None:
            return self._clip_hint(), "", gr.Row(visible=False)
        try:
            report = self._service.check_clip(Path(clip), Mode(mode))
        except CosyuiError as error:
            too_long = gr.Row(visible=error.code == "clip_too_long")
            return self._clip_hint(), render.problem_of(error, words), too_long
        long = report.cut or report.kept_seconds > GOOD_SECONDS[1]
        return render.clip_report(report, words), "", gr.Row(visible=long)

    def _cut(self, clip: str | None, transcript: str, request: gr.Request) -> tuple[Any, Any, str, str]:
        """The cut clip takes the place of the long one; what was said in that is no longer true."""
        words = self._dictionary.of(request)
        try:
            part = self._service.best_part(Path(clip) if clip else None, transcript)
        except CosyuiError as error:
            return gr.skip(), gr.skip(), "", render.problem_of(error, words)
        return part, "", render.note(words("transcript_cut")), ""

    def _check_transcript(self, clip: str | None, transcript: str, request: gr.Request) -> str:
        """A remark only: problems of the clip are told beside the clip."""
        if not clip or not transcript.strip():
            return ""
        try:
            notice = self._service.check_transcript(Path(clip), transcript)
        except CosyuiError:
            return ""
        return "" if notice is None else render.note(self._dictionary.of(request).notice(notice))

    async def _transcribe(self, clip: str | None, request: gr.Request) -> AsyncIterator[tuple[Any, str, Any, str]]:
        words = self._dictionary.of(request)
        yield gr.skip(), render.note(words("transcribing")), gr.Button(interactive=False), ""
        try:
            heard = await self._service.transcribe(Path(clip) if clip else None)
        except CosyuiError as error:
            yield gr.skip(), "", gr.Button(interactive=True), render.problem_of(error, words)
        else:
            yield heard.text, render.note(words("transcribed")), gr.Button(interactive=True), ""

    def _clip_hint(self) -> str:
        limits = self._service.settings
        hint = both("clip_hint", min=limits.clip_min_seconds, max=limits.clip_max_seconds)
        return f'<p class="hint">{hint}</p>'


def _mode_hint(mode: str) -> str:
    return f"<p>{both(f'mode_{mode}_hint')}</p>"
