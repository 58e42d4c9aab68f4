"""The tab where a take is made: what to say, in whose voice, how, and what came out."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import gradio as gr

from cosyui.engine.request import Mode
from cosyui.errors import CosyuiError
from cosyui.service.checks import FASTEST, SEED_LIMIT, SLOWEST
from cosyui.service.history_file import PastTake
from cosyui.service.job import SEGMENT_SECONDS
from cosyui.service.service import SynthesisService
from cosyui.service.types import TakeForm
from cosyui.settings import Settings
from cosyui.speech.estimate import CJK_CHARS_PER_SECOND, WORDS_PER_SECOND
from cosyui.ui import render
from cosyui.ui.controls import problem_place, quiet, take_player
from cosyui.ui.i18n import PAGE, Dictionary, Words, both
from cosyui.ui.owner import owner_of
from cosyui.ui.prompt_card import PromptCard
from cosyui.ui.takes import FIELDS, Takes, View, problems
from cosyui.ui.voice_desk import VoiceDesk


class SynthesisTab:
    """Lays the tab out inside the current Blocks and wires it to the service."""

    def __init__(
        self,
        service: SynthesisService,
        takes: Takes,
        desk: VoiceDesk,
        dictionary: Dictionary,
        i18n: gr.I18n,
        owner: gr.BrowserState,
    ) -> None:
        self._service = service
        self._owner = owner
        self._takes = takes
        self._desk = desk
        self._dictionary = dictionary
        self._i18n = i18n
        self._problems: dict[str, gr.HTML] = {}
        with gr.Row(elem_classes="workspace"):
            with gr.Column(scale=7, min_width=320, elem_classes="side inputs"):
                self._lay_text()
                self.prompt = PromptCard(service, desk, dictionary, i18n)
            with gr.Column(scale=5, min_width=320, elem_classes="side outcome"):
                self._lay_settings()
                self._lay_result()
        self._problems |= self.prompt.problems
        self._wire_fields()
        self._wire_take()

    def filled(self, take: PastTake, clip: bytes | None, words: Words) -> dict[Any, Any]:
        """What puts a past take back into the fields: made again, it is the same."""
        fields = {self.text: take.text, self.speed: take.speed, self.seed: str(take.seed), self.status: ""}
        return fields | self.prompt.filled(take, clip, words) | dict.fromkeys(self._problems.values(), "")

    @property
    def fields(self) -> list[Any]:
        """What `filled` gives values for."""
        own = [self.text, self.speed, self.seed, self.status]
        return [*own, *self.prompt.filled_fields, *self._problems.values()]

    def wire(self, *opened: Callable[..., Any]) -> None:
        """``opened`` are events upon which the tab is looked at: other tabs and people may have changed the voices."""
        choice = self.prompt.voice
        for event in opened:
            event(choice.refresh, choice.chosen, choice.shown, **quiet())

    def _problem(self, field: str) -> None:
        """The place of a field's problem; it follows the field it belongs to."""
        self._problems[field] = problem_place(field)

    def _lay_text(self) -> None:
        t = self._i18n
        limit = self._service.settings.max_chars
        with gr.Column(elem_classes="card"), gr.Column(elem_classes="field"):
            self.text = gr.Textbox(
                label=t("text"), placeholder=t("text_placeholder"), lines=5, max_lines=14, elem_id="text"
            )
            self.counter = gr.HTML(f'<span class="counter">0 / {limit}</span>', elem_id="counter", js_on_load=None)
            self._problem("text")

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
            with gr.Row(elem_classes="take-head"):
                gr.HTML(f'<h2 class="card-title">{both("take")}</h2>', js_on_load=None)
                self.live = gr.Checkbox(False, label=t("live"), elem_id="live", container=False, min_width=0)
            self.listen = gr.HTML("", elem_id="listen", js_on_load=None)
            self.empty = gr.HTML(f'<p class="empty">{both("take_empty")}</p>', elem_id="empty", js_on_load=None)
            with gr.Column(visible=False, elem_classes="field") as self.result_field:
                self.player = take_player()
                self.figures = gr.HTML("", elem_id="figures", js_on_load=None)
                self.used_seed = gr.State(None)
                self.reuse_seed = gr.Button(t("reuse_seed"), size="sm", elem_id="reuse-seed")
            gr.HTML(_heard(), elem_id="heard", js_on_load=None)

    def _wire_fields(self) -> None:
        about = json.dumps(_about_texts(self._service.settings))
        self.text.change(None, self.text, self.counter, js=f"(text) => cosyui.counter(text, {about})")
        for name in ("text", "speed", "seed"):
            component: Any = getattr(self, name)
            component.input(None, None, self._problems[name], js="() => ''")
        for language, button in self.prompt.examples.items():
            example = PAGE[language]["text_example"]
            button.click(None, self.text, self.text, js=f"(text) => text.trim() ? text : {example!r}")
        self.dice.click(None, None, [self.seed, self._problems["seed"]], js="() => [cosyui.dice(), '']")
        self.reuse_seed.click(
            lambda seed: (str(seed), ""), self.used_seed, [self.seed, self._problems["seed"]], **quiet()
        )

    def _wire_take(self) -> None:
        outputs = [self.generate, self.stop, self.status, self.empty, self.result_field, self.player, self.figures]
        outputs += [self.used_seed, self.listen, *self._problems.values()]
        prompt = self.prompt
        voice = [prompt.mode, prompt.voice.chosen, prompt.clip, prompt.transcript, prompt.instruction]
        # player.js looks at the last.
        inputs = [self.text, *voice, self.speed, self.seed, self._owner, self.live]
        run = gr.on(
            [self.generate.click, self.text.submit],
            self._run,
            inputs,
            outputs,
            js="(...inputs) => cosyui.player.begin(inputs)",
            concurrency_limit=None,  # the service queues; Gradio must not queue in front of it
            show_progress="hidden",
            api_visibility="private",
        )
        run.failure(self._unexpected, None, [self.generate, self.stop, self.status], **quiet())
        stopped = [self.stop, self.status]
        self.stop.click(self._stop, None, stopped, js="() => cosyui.player.stop()", **quiet())
        self.listen.change(None, self.listen, None, js="(key) => cosyui.player.listen(key)")
        self.live.input(None, self.live, None, js="(on) => cosyui.player.want(on)")

    def live_at_first(self, wanted: bool | None) -> bool:
        """As the browser remembers it. Else on where a GPU makes takes: a processor may be too slow for it, and of what

        was heard already no part is made again, should it come out badly.
        """
        if wanted is not None:
            return wanted
        machine = self._service.overview().machine
        return machine is not None and bool(machine.gpus) and self._service.settings.device != "cpu"

    async def _run(
        self,
        text: str,
        mode: str,
        voice: str | None,
        clip: str | None,
        transcript: str,
        instruction: str,
        speed: float,
        seed: str,
        owner: Any,
        live: bool,
        request: gr.Request,
    ) -> AsyncIterator[dict[Any, Any]]:
        """One take; each view becomes an update of the components that it changes."""
        form = TakeForm(
            text=text,
            mode=Mode(mode),
            clip=Path(clip) if clip else None,
            transcript=transcript or "",  # a field that was never shown has None
            instruction=instruction or "",
            speed=speed,
            seed=_whole(seed),
            stream=live and speed == 1,  # at another speed the engine gives whole segments
            client=session_of(request)[:8],
        )
        words = self._dictionary.of(request)
        if voice:
            try:
                found = await self._desk.source(voice)
            except CosyuiError as error:
                yield self._update(problems(error, words), words)
                return
            form = replace(form, clip=found.clip, transcript=found.transcript)
        mine = owner_of(request, owner)
        async for view in self._takes.views(session_of(request), form, words, mine, voice or "", listen=live):
            yield self._update(_of_voice(view) if voice else view, words)

    def _update(self, view: View, words: Words) -> dict[Any, Any]:
        busy = view.state == "busy"
        update: dict[Any, Any] = {
            self.generate: gr.Button(interactive=not busy),
            self.stop: gr.Button(interactive=busy),
            self.status: view.status,
        }
        if view.listen:
            update[self.listen] = view.listen
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


def _about_texts(settings: Settings) -> dict[str, object]:
    """What the counter under the text needs: limits, rates of speech, and the sentence for a long text."""
    return {
        "limit": settings.max_chars,
        "longest": settings.longest_text,
        "characters": CJK_CHARS_PER_SECOND,
        "words": WORDS_PER_SECOND,
        "segment": SEGMENT_SECONDS,
        "sentence": both("long_text", segments="{segments}", minutes="{minutes}"),
    }


def _of_voice(view: View) -> View:
    """What is wrong with clip or transcript of a chosen voice is told where it was chosen: it has no such fields."""
    beside = {"voice" if field in ("clip", "transcript") else field: text for field, text in view.problems.items()}
    return replace(view, problems=beside)


def _heard() -> str:
    """How a take was heard while it was made, each way in both languages; player.js chooses, the style sheet shows."""
    ways = ("playing", "whole", "dry_once", "dry", "file")
    count = "<b data-count></b>"
    told = (f'<span class="{way}">{both(f"heard_{way}", count="{count}")}</span>' for way in ways)
    return f'<p class="heard" role="status">{"".join(told).replace("{count}", count)}</p>'


def session_of(request: gr.Request) -> str:
    """Gradio's id of the browser tab."""
    return request.session_hash or "none"


def _whole(seed: str) -> int | None:
    """None for an empty field; what is no whole number becomes one out of range, so that the service refuses it."""
    seed = seed.strip()
    if not seed:
        return None
    return int(seed) if re.fullmatch(r"[0-9]{1,18}", seed) else SEED_LIMIT
