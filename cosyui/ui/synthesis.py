"""The tab where a take is made: what to say, in whose voice, how, and what came out."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import gradio as gr

from cosyui.engine.request import Mode
from cosyui.errors import InputError
from cosyui.service.checks import FASTEST, SEED_LIMIT, SLOWEST
from cosyui.service.service import SynthesisService
from cosyui.service.types import TakeForm
from cosyui.ui import render
from cosyui.ui.controls import clip_input, preset_rows, quiet, take_player
from cosyui.ui.i18n import PAGE, Dictionary, Language, Words, both
from cosyui.ui.takes import FIELDS, Takes, View

EXAMPLES = Path(__file__).parents[1] / "assets" / "examples"
EXAMPLE_TRANSCRIPTS: dict[Language, str] = {
    "en": "Teaching was, of course, the first thing that suggested itself.",
    "zh": "当年就在沂州府和沂水县建立了分驻地。",
}


class SynthesisTab:
    """Lays the tab out inside the current Blocks and wires it to the service."""

    def __init__(self, service: SynthesisService, takes: Takes, dictionary: Dictionary, i18n: gr.I18n) -> None:
        self._service = service
        self._takes = takes
        self._dictionary = dictionary
        self._i18n = i18n
        self._problems: dict[str, gr.HTML] = {}
        with gr.Row(elem_classes="workspace"):
            with gr.Column(scale=7, min_width=320, elem_classes="side inputs"):
                self._lay_text()
                self._lay_voice()
            with gr.Column(scale=5, min_width=320, elem_classes="side outcome"):
                self._lay_settings()
                self._lay_result()
        self._wire_fields()
        self._wire_take()

    def _problem(self, field: str) -> None:
        """The place of a field's problem; it follows the field it belongs to."""
        self._problems[field] = gr.HTML("", elem_id=f"problem-{field}", elem_classes="problem", js_on_load=None)

    def _lay_text(self) -> None:
        t = self._i18n
        limit = self._service.settings.max_chars
        with gr.Column(elem_classes="card"), gr.Column(elem_classes="field"):
            self.text = gr.Textbox(
                label=t("text"), placeholder=t("text_placeholder"), lines=5, max_lines=14, elem_id="text"
            )
            self.counter = gr.HTML(f'<span class="counter">0 / {limit}</span>', elem_id="counter", js_on_load=None)
            self._problem("text")

    def _lay_voice(self) -> None:
        t = self._i18n
        limits = self._service.settings
        with gr.Column(elem_classes="card"):
            with gr.Column(elem_classes="field"):
                modes = [(t(f"mode_{mode.value}"), mode.value) for mode in Mode]
                self.mode = gr.Radio(
                    modes, value=Mode.ZERO_SHOT.value, label=t("mode"), elem_id="mode", elem_classes="segmented"
                )
                self.mode_hint = gr.HTML(_mode_hint(Mode.ZERO_SHOT.value), elem_classes="hint", js_on_load=None)
            with gr.Column(elem_classes="field"):
                self.clip = clip_input(t("clip"))
                hint = both("clip_hint", min=limits.clip_min_seconds, max=limits.clip_max_seconds)
                self.clip_report = gr.HTML(f'<p class="hint">{hint}</p>', elem_id="clip-report", js_on_load=None)
                self._problem("clip")
                with gr.Row(elem_classes="chips"):
                    gr.HTML(f'<span class="chips-label">{both("clip_examples")}</span>', js_on_load=None)
                    self.examples = {
                        name: gr.Button(t(f"clip_example_{name}"), size="sm", elem_id=f"example-{name}")
                        for name in EXAMPLE_TRANSCRIPTS
                    }
            with gr.Column(elem_classes="field") as self.transcript_field:
                self.transcript = gr.Textbox(
                    label=t("transcript"), placeholder=t("transcript_placeholder"), lines=2, elem_id="transcript"
                )
                self._problem("transcript")
            with gr.Column(elem_classes="field", visible=False) as self.instruction_field:
                self.instruction = gr.Textbox(
                    label=t("instruction"), placeholder=t("instruction_placeholder"), lines=2, elem_id="instruction"
                )
                self._problem("instruction")
                self.instruct_note = gr.HTML("", elem_classes="note", js_on_load=None)
                preset_rows(t, self.instruction)

    def _lay_settings(self) -> None:
        t = self._i18n
        with gr.Column(elem_classes="card"):
            with gr.Row(elem_classes="settings"):
                with gr.Column(scale=3, min_width=180, elem_classes="field"):
                    self.speed = gr.Slider(SLOWEST, FASTEST, value=1.0, step=0.05, label=t("speed"), elem_id="speed")
                    self._problem("speed")
                with gr.Column(scale=2, min_width=150, elem_classes="field"):
                    with gr.Row(elem_classes="seed-row"):
                        self.seed = gr.Textbox(
                            label=t("seed"),
                            placeholder=t("seed_placeholder"),
                            elem_id="seed",
                            min_width=90,
                            max_lines=1,
                        )
                        self.dice = gr.Button(t("seed_dice"), elem_id="dice", min_width=44, size="lg")
                    self._problem("seed")
            with gr.Row(elem_classes="actions"):
                self.generate = gr.Button(t("generate"), variant="primary", size="lg", elem_id="generate", scale=3)
                self.stop = gr.Button(t("stop"), size="lg", elem_id="stop", interactive=False, scale=1, min_width=90)
            self.status = gr.HTML("", elem_id="status", js_on_load=None)

    def _lay_result(self) -> None:
        t = self._i18n
        with gr.Column(elem_classes="card result"):
            gr.HTML(f'<h2 class="card-title">{both("take")}</h2>', js_on_load=None)
            self.empty = gr.HTML(f'<p class="empty">{both("take_empty")}</p>', elem_id="empty", js_on_load=None)
            with gr.Column(visible=False, elem_classes="field") as self.result_field:
                self.player = take_player()
                self.figures = gr.HTML("", elem_id="figures", js_on_load=None)
                self.used_seed = gr.State(None)
                self.reuse_seed = gr.Button(t("reuse_seed"), size="sm", elem_id="reuse-seed")

    def _wire_fields(self) -> None:
        limit = self._service.settings.max_chars
        self.text.change(None, self.text, self.counter, js=f"(text) => cosyui.counter(text, {limit})")
        for name in ("text", "transcript", "instruction", "speed", "seed"):
            component: Any = getattr(self, name)
            component.input(None, None, self._problems[name], js="() => ''")
        self.mode.change(
            self._show_mode,
            self.mode,
            [self.mode_hint, self.transcript_field, self.instruction_field, self.instruct_note],
            **quiet(),
        )
        self.clip.change(self._report_clip, self.clip, [self.clip_report, self._problems["clip"]], **quiet())
        for language, button in self.examples.items():
            button.click(
                lambda language=language: (str(EXAMPLES / f"{language}.wav"), EXAMPLE_TRANSCRIPTS[language], ""),
                None,
                [self.clip, self.transcript, self._problems["transcript"]],
                **quiet(),
            )
            example = PAGE[language]["text_example"]
            button.click(None, self.text, self.text, js=f"(text) => text.trim() ? text : {example!r}")
        self.dice.click(None, None, [self.seed, self._problems["seed"]], js="() => [cosyui.dice(), '']")
        self.reuse_seed.click(
            lambda seed: (str(seed), ""), self.used_seed, [self.seed, self._problems["seed"]], **quiet()
        )

    def _wire_take(self) -> None:
        outputs = [self.generate, self.stop, self.status, self.empty, self.result_field, self.player, self.figures]
        outputs += [self.used_seed, *self._problems.values()]
        inputs = [self.text, self.mode, self.clip, self.transcript, self.instruction, self.speed, self.seed]
        run = gr.on(
            [self.generate.click, self.text.submit],
            self._run,
            inputs,
            outputs,
            concurrency_limit=None,  # the service queues; Gradio must not queue in front of it
            show_progress="hidden",
            api_visibility="private",
        )
        run.failure(self._unexpected, None, [self.generate, self.stop, self.status], **quiet())
        self.stop.click(self._stop, None, [self.stop, self.status], **quiet())

    async def _run(
        self,
        text: str,
        mode: str,
        clip: str | None,
        transcript: str,
        instruction: str,
        speed: float,
        seed: str,
        request: gr.Request,
    ) -> AsyncIterator[dict[Any, Any]]:
        """One take; each view becomes an update of the components that it changes."""
        form = TakeForm(
            text=text,
            mode=Mode(mode),
            clip=Path(clip) if clip else None,
            transcript=transcript,
            instruction=instruction,
            speed=speed,
            seed=_whole(seed),
            client=session_of(request)[:8],
        )
        words = self._dictionary.of(request)
        async for view in self._takes.views(session_of(request), form, words):
            yield self._update(view, words)

    def _update(self, view: View, words: Words) -> dict[Any, Any]:
        busy = view.state == "busy"
        update: dict[Any, Any] = {
            self.generate: gr.Button(interactive=not busy),
            self.stop: gr.Button(interactive=busy),
            self.status: view.status,
        }
        update |= {self._problems[field]: view.problems.get(field, "") for field in FIELDS}
        if view.result is not None:
            update |= {
                self.empty: gr.HTML(visible=False),
                self.result_field: gr.Column(visible=True),
                self.player: str(view.result.path.resolve()),
                self.figures: render.figures(view.result, words),
                self.used_seed: view.result.seed,
            }
        return update

    async def _stop(self, request: gr.Request) -> tuple[Any, Any]:
        """Returns once the work has stopped; the take's own last view then says so."""
        if not await self._takes.stop(session_of(request)):
            return gr.Button(interactive=False), gr.skip()
        words = self._dictionary.of(request)
        return gr.Button(interactive=False), render.status("stopped", words("stopped"))

    def _unexpected(self, request: gr.Request) -> tuple[Any, Any, str]:
        """A fault of the page itself: say so and give the buttons back."""
        words = self._dictionary.of(request)
        line = render.status("failed", words("failed"), words("unexpected"))
        return gr.Button(interactive=True), gr.Button(interactive=False), line

    def _show_mode(self, mode: str, request: gr.Request) -> tuple[Any, ...]:
        facts = self._service.client.facts
        unsupported = mode == Mode.INSTRUCT and facts is not None and not facts.instruct_supported
        return (
            _mode_hint(mode),
            gr.Column(visible=mode == Mode.ZERO_SHOT),
            gr.Column(visible=mode == Mode.INSTRUCT),
            f'<p class="note-line">{both("instruct_unsupported")}</p>' if unsupported else "",
        )

    def _report_clip(self, clip: str | None, request: gr.Request) -> tuple[str, str]:
        """Runs in a thread: decoding takes some milliseconds."""
        words = self._dictionary.of(request)
        limits = self._service.settings
        hint = both("clip_hint", min=limits.clip_min_seconds, max=limits.clip_max_seconds)
        if clip is None:
            return f'<p class="hint">{hint}</p>', ""
        try:
            return render.clip_report(self._service.check_clip(Path(clip)), words), ""
        except InputError as error:
            return f'<p class="hint">{hint}</p>', render.problem_of(error, words)


def session_of(request: gr.Request) -> str:
    """Gradio's id of the browser tab."""
    return request.session_hash or "none"


def _mode_hint(mode: str) -> str:
    return f"<p>{both(f'mode_{mode}_hint')}</p>"


def _whole(seed: str) -> int | None:
    """None for an empty field; what is no whole number becomes one out of range, so that the service refuses it."""
    seed = seed.strip()
    if not seed:
        return None
    return int(seed) if re.fullmatch(r"[0-9]{1,18}", seed) else SEED_LIMIT
