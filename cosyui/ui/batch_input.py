"""The left side of the batch tab: a file or a dialogue, and who has which voice."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gradio as gr

from cosyui.errors import InputError
from cosyui.service.batch_input import decode, kind_of, parse
from cosyui.service.batch_lines import BatchError, Parsed
from cosyui.service.batch_script import speakers
from cosyui.service.service import SynthesisService
from cosyui.service.voice_names import EXAMPLE_TRANSCRIPTS
from cosyui.ui import batch_view
from cosyui.ui.controls import quiet, uploads_only
from cosyui.ui.i18n import Dictionary, Words, both

CAST = 12
"""So many people have a place on the page."""
ENDINGS = [".csv", ".tsv", ".jsonl", ".ndjson", ".txt"]


@dataclass(frozen=True)
class Given:
    """What is to be made; ``script``: it is a dialogue, and whoever speaks must be in the ``cast``."""

    parsed: Parsed
    cast: dict[str, str]
    script: bool


class BatchInput:
    """Lays the card out. ``inputs`` are what `read` is given."""

    def __init__(self, service: SynthesisService, dictionary: Dictionary, t: gr.I18n) -> None:
        self._service = service
        self._dictionary = dictionary
        choices = [(name, name) for name in EXAMPLE_TRANSCRIPTS]
        with gr.Column(elem_classes="card"):
            with gr.Column(elem_classes="field"):
                self.file = uploads_only(gr.File(label=t("batch_file"), file_types=ENDINGS, elem_id="batch-file"))
                gr.HTML(f'<p class="hint">{both("batch_file_hint")}</p>', js_on_load=None)
            with gr.Column(elem_classes="field") as self._written:
                self.script = gr.Textbox(
                    label=t("batch_script"),
                    placeholder=t("batch_script_placeholder"),
                    lines=7,
                    max_lines=18,
                    elem_id="batch-script",
                )
                gr.HTML(f'<p class="hint">{both("batch_script_hint")}</p>', js_on_load=None)
            with gr.Column(visible=False, elem_classes="field", elem_id="batch-cast") as self._cast:
                gr.HTML(f'<h2 class="card-title">{both("batch_cast")}</h2>', js_on_load=None)
                with gr.Row(elem_classes="cast"):
                    self._roles = [
                        gr.Dropdown(choices=choices, value=None, visible=False, elem_id=f"batch-role-{number}")
                        for number in range(CAST)
                    ]
            with gr.Row(elem_classes="settings"):
                with gr.Column(min_width=150, elem_classes="field"):
                    self.voice = gr.Dropdown(choices=choices, value="en", label=t("batch_voice"), elem_id="batch-voice")
                with gr.Column(min_width=150, elem_classes="field"):
                    pause = service.settings.batch_pause
                    self.pause = gr.Slider(
                        0, max(3, pause), value=pause, step=0.1, label=t("batch_pause"), elem_id="batch-pause"
                    )
            with gr.Row(elem_classes="actions"):
                self.start = gr.Button(t("batch_start"), variant="primary", size="lg", elem_id="batch-start")
            self.problems = gr.HTML("", elem_id="batch-problems", js_on_load=None)
        self._names: gr.State = gr.State([])
        self.inputs: list[Any] = [self.script, self.file, self._names, *self._roles]
        cast = [self._names, self._cast, *self._roles]
        given = [self.script, self.file, self._names, *self._roles]
        self.script.change(self._find, given, cast, trigger_mode="always_last", **quiet())
        shown = [self.script, self.file, self._written, self.problems]
        gr.on([self.file.upload, self.file.clear], self._opened, [self.script, self.file], shown, **quiet()).then(
            self._find, given, cast, **quiet()
        )

    @property
    def voices(self) -> list[Any]:
        """Every list of voices, for `choices`."""
        return [self.voice, *self._roles]

    async def choices(self, request: gr.Request) -> list[Any]:
        """The voices that there are by now."""
        named = self._choices(self._dictionary.of(request))
        return [gr.Dropdown(choices=named)] * (1 + CAST)

    async def read(self, script: str, file: str | None, names: list[str], *roles: str | None) -> Given:
        """Raises InputError for what cannot be read at all."""
        cast = {name: voice for name, voice in zip(names, roles, strict=False) if voice}
        if file:
            return Given(await asyncio.to_thread(self._parsed, Path(file)), cast, script=False)
        self._check_size(len(script.encode("utf-8", "replace")))
        if len(speakers(script)) > CAST:
            message = f"More than {CAST} people speak. Use a CSV file with a column voice."
            raise InputError("cast_too_large", message, "cast")
        return Given(await asyncio.to_thread(parse, script, "txt"), cast, script=True)

    async def _opened(self, request: gr.Request, script: str, file: str | None) -> tuple[Any, ...]:
        """A dialogue goes into the field, where it can be edited; of another file the lines are looked at."""
        if not file:
            return gr.skip(), gr.skip(), gr.Column(visible=True), ""
        try:
            if kind_of(file) == "txt":
                return await asyncio.to_thread(self._text, Path(file)), None, gr.Column(visible=True), ""
            parsed = await asyncio.to_thread(self._parsed, Path(file))
            if parsed.problems:
                raise BatchError(parsed.problems)
        except InputError as error:
            told = batch_view.problems(error, self._dictionary.of(request))
            return gr.skip(), gr.skip(), gr.Column(visible=False), told
        return gr.skip(), gr.skip(), gr.Column(visible=False), ""

    async def _find(
        self, request: gr.Request, script: str, file: str | None, names: list[str], *roles: str | None
    ) -> tuple[Any, ...]:
        """A list of voices for everybody who speaks; who has one keeps it."""
        most = self._service.settings.body_max_bytes
        found = (await self._named(Path(file)) if file else speakers(script[:most]))[:CAST]
        if found == names:
            return (gr.skip(),) * (2 + CAST)
        choices = self._choices(self._dictionary.of(request))
        had = dict(choices) | dict(zip(names, roles, strict=False))
        shown = [gr.Dropdown(choices=choices, visible=True, label=name, value=had.get(name)) for name in found]
        hidden = [gr.Dropdown(visible=False, value=None)] * (CAST - len(found))
        return found, gr.Column(visible=bool(found)), *shown, *hidden

    async def _named(self, file: Path) -> list[str]:
        """Names in a file whose lines have no voice of their own."""
        try:
            parsed = await asyncio.to_thread(self._parsed, file)
        except InputError:
            return []  # its problems are told already
        return list(dict.fromkeys(line.name for line in parsed.lines if line.name and not line.voice))

    def _choices(self, words: Words) -> list[tuple[str, str]]:
        built_in = [(words(f"batch_voice_{name}"), name) for name in EXAMPLE_TRANSCRIPTS]
        return built_in + [(voice.name, voice.id) for voice in self._service.voices.all()]

    def _parsed(self, file: Path) -> Parsed:
        kind = kind_of(file.name)
        if kind is None:
            message = "The kind of the file is not known. Choose one that ends in .csv, .tsv, .jsonl or .txt."
            raise InputError("batch_file_unknown", message, "file")
        return parse(self._data(file), kind)

    def _text(self, file: Path) -> str:
        return decode(self._data(file))

    def _data(self, file: Path) -> bytes:
        most = self._service.settings.body_max_bytes
        with file.open("rb") as source:
            data = source.read(most + 1)
        self._check_size(len(data))
        return data

    def _check_size(self, size: int) -> None:
        most = self._service.settings.body_max_bytes
        if size > most:
            message = f"The lines are larger than {most / 2**20:.1f} MB. Split them."
            raise InputError("body_too_large", message, "file")
