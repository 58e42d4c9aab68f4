"""Fields for a clip with its report, and for what is said in it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import gradio as gr

from cosyui.engine.request import Mode
from cosyui.errors import CosyuiError
from cosyui.service.service import SynthesisService
from cosyui.service.voice_names import EXAMPLE_TRANSCRIPTS, EXAMPLES
from cosyui.speech.clip.report import GOOD_SECONDS
from cosyui.speech.clip.transcribe import INSTALL
from cosyui.ui import render
from cosyui.ui.controls import clip_input, problem_place, quiet
from cosyui.ui.i18n import Dictionary, Language, both


class ClipFields:
    """Lays itself where it is made. ``prefix`` begins the ids of its elements.

    ``problems`` are the places of the fields' problems. ``examples`` are buttons that fill in clip and transcript, if
    there shall be any.
    """

    def __init__(
        self,
        service: SynthesisService,
        dictionary: Dictionary,
        t: gr.I18n,
        prefix: str = "",
        hint: str = "transcript_placeholder",
        *,
        examples: bool = True,
    ) -> None:
        self._service = service
        self._dictionary = dictionary
        self._prefix = prefix
        self.problems: dict[str, gr.HTML] = {}
        self.examples: dict[Language, gr.Button] = {}
        self._lay_clip(t, examples=examples)
        self._lay_transcript(t, hint)
        self._wire_clip()
        self._wire_transcript()

    def _problem(self, field: str) -> None:
        self.problems[field] = problem_place(f"{self._prefix}{field}")

    def _lay_clip(self, t: gr.I18n, *, examples: bool) -> None:
        with gr.Column(elem_classes="field") as self.clip_field:
            self.clip = clip_input(t("clip"), f"{self._prefix}clip")
            far = f'<p class="hint">{both("microphone_far")}</p>'
            gr.HTML(far, elem_classes="microphone-far", js_on_load=None)
            self._report = gr.HTML(self._clip_hint(), elem_id=f"{self._prefix}clip-report", js_on_load=None)
            self._problem("clip")
            with gr.Row(elem_classes="chips", visible=False) as self._long_clip:
                self._best_part = gr.Button(t("best_part"), size="sm", elem_id=f"{self._prefix}best-part")
            if not examples:
                return
            with gr.Row(elem_classes="chips"):
                gr.HTML(f'<span class="chips-label">{both("clip_examples")}</span>', js_on_load=None)
                self.examples = {
                    name: gr.Button(t(f"clip_example_{name}"), size="sm", elem_id=f"example-{name}")
                    for name in EXAMPLE_TRANSCRIPTS
                }

    def _lay_transcript(self, t: gr.I18n, hint: str) -> None:
        able = self._service.transcriber is not None
        prefix = self._prefix
        with gr.Column(elem_classes="field") as self.transcript_field:
            self.transcript = gr.Textbox(
                label=t("transcript"), placeholder=t(hint), lines=2, elem_id=f"{prefix}transcript"
            )
            self._problem("transcript")
            self.note = gr.HTML("", elem_id=f"{prefix}transcript-note", elem_classes="note", js_on_load=None)
            with gr.Row(elem_classes="chips"):
                self._transcribe_button = gr.Button(
                    t("transcribe"), size="sm", elem_id=f"{prefix}transcribe", interactive=able
                )
            if not able:
                missing = both("transcribe_missing", command=INSTALL)
                gr.HTML(f'<p class="hint">{missing}</p>', elem_id=f"{prefix}transcribe-hint", js_on_load=None)

    def _wire_clip(self) -> None:
        self._best_part.click(
            self._cut,
            [self.clip, self.transcript],
            [self.clip, self.transcript, self.note, self.problems["clip"]],
            **quiet(),
        )
        for language, button in self.examples.items():
            button.click(
                lambda language=language: (str(EXAMPLES / f"{language}.wav"), EXAMPLE_TRANSCRIPTS[language], "", ""),
                None,
                [self.clip, self.transcript, self.note, self.problems["transcript"]],
                **quiet(),
            )

    def wire_report(self, mode: gr.Radio | None = None) -> None:
        """The report of the clip is for this mode; without one, for a clip with a transcript."""
        shown = [self._report, self.problems["clip"], self._long_clip]
        if mode is None:
            self.clip.change(self._tell, self.clip, shown, **quiet())
        else:
            gr.on([self.clip.change, mode.change], self._tell_for, [self.clip, mode], shown, **quiet())

    def _wire_transcript(self) -> None:
        self.transcript.input(None, None, self.problems["transcript"], js="() => ''")
        self.transcript.blur(self._check_transcript, [self.clip, self.transcript], self.note, **quiet())
        self._transcribe_button.click(
            self._transcribe,
            self.clip,
            [self.transcript, self.note, self._transcribe_button, self.problems["transcript"]],
            concurrency_limit=None,  # the service takes one at a time
            show_progress="hidden",
            api_visibility="private",
        )

    def _tell(self, clip: str | None, request: gr.Request) -> tuple[str, str, Any]:
        return self._tell_for(clip, Mode.ZERO_SHOT.value, request)

    def _tell_for(self, clip: str | None, mode: str, request: gr.Request) -> tuple[str, str, Any]:
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
