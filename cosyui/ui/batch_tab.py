"""The tab for many lines at once: what to say on the left, what becomes of it on the right."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import gradio as gr

from cosyui.errors import CosyuiError, MissingError
from cosyui.service.batch_record import Batch
from cosyui.service.owners import owner_hash
from cosyui.service.service import SynthesisService
from cosyui.ui import batch_view, render
from cosyui.ui.action_button import ActionButton
from cosyui.ui.batch_input import BatchInput
from cosyui.ui.batch_view import PAGE_ROWS, PLAY
from cosyui.ui.controls import quiet, take_player
from cosyui.ui.i18n import Dictionary, Words, both
from cosyui.ui.owner import owner_of
from cosyui.ui.picking import picker
from cosyui.ui.synthesis import session_of

TICK = 1.0
Listener = Callable[..., Any]
_LATEST = "(file) => cosyui.download(file && {...file, url: file.url + '?' + Date.now()})"


@dataclass(frozen=True)
class View:
    """What somebody looks at; ``drawn``: the batch as it was drawn last, by its revision and language."""

    batch_id: str = ""
    offset: int = 0
    drawn: tuple[Any, ...] = ()


class BatchTab:
    """A page sees the batches of its owner (see `owner_of`); each handler looks again who asks."""

    def __init__(
        self, service: SynthesisService, dictionary: Dictionary, i18n: gr.I18n, owner: gr.BrowserState
    ) -> None:
        self._batches = service.batches
        self._dictionary = dictionary
        self._owner = owner
        with gr.Row(elem_classes="workspace"):
            with gr.Column(scale=5, min_width=320, elem_classes="side inputs"):
                self._input = BatchInput(service, dictionary, i18n)
            with gr.Column(scale=7, min_width=320, elem_classes="side"), gr.Column(elem_classes="card result"):
                self._lay_batch(i18n)
        self._view = gr.State(View())

    def _lay_batch(self, t: gr.I18n) -> None:
        self._empty = gr.HTML(f'<p class="empty">{both("batch_none")}</p>', elem_id="batch-empty", js_on_load=None)
        with gr.Column(visible=False, elem_classes="field") as self._field:
            self._chooser = gr.Dropdown(choices=[], label=t("batch_mine"), elem_id="batch-mine")
            self._status = gr.HTML("", elem_id="batch-status", js_on_load=None)
            with gr.Row(elem_classes="ops-actions"):
                self._stop = gr.Button(t("batch_stop"), size="sm", elem_id="batch-stop")
                self._resume = gr.Button(t("batch_resume"), size="sm", elem_id="batch-resume")
                self._download = gr.Button(t("batch_download"), size="sm", variant="primary", elem_id="batch-download")
                self._delete = ActionButton(t, "batch_delete", asks=True)
            self._told = gr.HTML("", elem_id="batch-told", elem_classes="told", js_on_load=None)
            with gr.Column(visible=False) as self._listen:
                self._player = take_player("batch-player")
            self._table = gr.HTML("", elem_id="batch-table", js_on_load=None)
            with gr.Row(elem_classes="ops-actions", visible=False) as self._pages:
                self._back = gr.Button("‹", size="sm", scale=0, min_width=44, elem_id="batch-back")
                self._on = gr.Button("›", size="sm", scale=0, min_width=44, elem_id="batch-on")
                self._pager = gr.HTML("", elem_id="batch-pager", js_on_load=None)
        self._file = gr.DownloadButton(visible="hidden", elem_id="batch-zip")
        self._tick = gr.Timer(TICK, active=False)

    def wire(self, opened: Listener) -> None:
        """``opened``: the event of the tab."""
        self._shown: list[Any] = [self._view, self._empty, self._field, self._chooser, self._status, self._table]
        self._shown += [self._pages, self._pager, self._back, self._on]
        self._shown += [self._stop, self._resume, self._download, self._tick, self._told]
        given, who = [self._view, self._owner], [self._owner]
        opened(self._input.choices, None, self._input.voices, **quiet())
        opened(self._look, given, self._shown, **quiet())
        self._tick.tick(self._look, given, self._shown, **quiet())
        self._chooser.input(self._choose, [self._chooser, *who], [*self._shown, self._listen], **quiet())
        self._back.click(self._turn_back, given, self._shown, **quiet())
        self._on.click(self._turn_on, given, self._shown, **quiet())
        slow: dict[str, Any] = {"concurrency_limit": None, "show_progress": "hidden", "api_visibility": "private"}
        start = [*who, self._input.voice, self._input.pause, *self._input.inputs]
        self._input.start.click(self._start, start, [self._input.problems, *self._shown, self._listen], **slow)
        self._stop.click(self._act_stop, given, self._shown, **slow)
        self._resume.click(self._act_resume, given, self._shown, **slow)
        self._delete.go.click(self._act_delete, given, [*self._shown, self._listen], **slow)
        packed = self._download.click(self._pack, given, [self._told, self._file], **slow)
        packed.then(None, self._file, None, js=_LATEST)
        pick, index, js = picker(PLAY, last=True)
        pick.click(self._play, [*given, index], [self._listen, self._player], js=js, **quiet())

    async def _start(
        self, request: gr.Request, browser: Any, voice: str | None, pause: float, *given: Any
    ) -> tuple[Any, ...]:
        words = self._dictionary.of(request)
        try:
            owner = _owner(request, browser)
            read = await self._input.read(*given)
            batch = await self._batches.add(
                owner,
                session_of(request)[:8],
                read.parsed,
                cast=read.cast,
                voice=voice or "",
                pause=pause,
                script=read.script,
            )
        except CosyuiError as error:
            return batch_view.problems(error, words), *self._nothing, gr.skip()
        return "", *self._draw(View(batch.id), owner, words), gr.Column(visible=False)

    async def _look(self, view: View, browser: Any, request: gr.Request) -> tuple[Any, ...]:
        return self._draw(view, _owner(request, browser), self._dictionary.of(request))

    async def _choose(self, batch_id: str | None, browser: Any, request: gr.Request) -> tuple[Any, ...]:
        owner = _owner(request, browser)
        return *self._draw(View(batch_id or ""), owner, self._dictionary.of(request)), gr.Column(visible=False)

    async def _turn_back(self, view: View, browser: Any, request: gr.Request) -> tuple[Any, ...]:
        return await self._look(View(view.batch_id, max(0, view.offset - PAGE_ROWS)), browser, request)

    async def _turn_on(self, view: View, browser: Any, request: gr.Request) -> tuple[Any, ...]:
        return await self._look(View(view.batch_id, view.offset + PAGE_ROWS), browser, request)

    async def _act_stop(self, view: View, browser: Any, request: gr.Request) -> tuple[Any, ...]:
        return await self._act(self._batches.stop, view, browser, request)

    async def _act_resume(self, view: View, browser: Any, request: gr.Request) -> tuple[Any, ...]:
        return await self._act(self._batches.resume, view, browser, request)

    async def _act_delete(self, view: View, browser: Any, request: gr.Request) -> tuple[Any, ...]:
        return *await self._act(self._batches.remove, view, browser, request), gr.Column(visible=False)

    async def _act(
        self, do: Callable[[Batch], Awaitable[None]], view: View, browser: Any, request: gr.Request
    ) -> tuple[Any, ...]:
        owner, words = _owner(request, browser), self._dictionary.of(request)
        try:
            await do(self._batches.find(view.batch_id, owner))
        except CosyuiError as error:
            return *self._draw(View(view.batch_id, view.offset), owner, words)[:-1], render.problem_of(error, words)
        return self._draw(View(view.batch_id, view.offset), owner, words)

    async def _play(self, view: View, browser: Any, index: str, request: gr.Request) -> tuple[Any, Any]:
        try:
            batch = self._batches.find(view.batch_id, _owner(request, browser))
        except MissingError:
            return gr.skip(), gr.skip()
        if not index.isdecimal() or int(index) not in range(len(batch.order.lines)):
            return gr.skip(), gr.skip()
        if batch.progress.lines[int(index)].status != "done":
            return gr.skip(), gr.skip()
        path = self._batches.files.sound(batch.id, int(index)).resolve()
        return gr.Column(visible=True), gr.Audio(str(path), autoplay=True)

    async def _pack(self, view: View, browser: Any, request: gr.Request) -> AsyncGenerator[tuple[str, Any], None]:
        words = self._dictionary.of(request)
        yield render.note(words("batch_packing")), None
        try:
            batch = self._batches.find(view.batch_id, _owner(request, browser))
            path = await self._batches.result(batch)
        except CosyuiError as error:
            yield render.problem_of(error, words), None
            return
        yield "", str(await asyncio.to_thread(path.resolve))

    @property
    def _nothing(self) -> tuple[Any, ...]:
        return (gr.skip(),) * len(self._shown)

    def _draw(self, view: View, owner: str, words: Words) -> tuple[Any, ...]:
        """What `_shown` is to be: the batch of the view, or the newest one; nothing new if nothing has changed."""
        mine = self._batches.of(owner)
        batch = next((one for one in mine if one.id == view.batch_id), mine[0] if mine else None)
        if batch is None:
            hidden = (View(), gr.HTML(visible=True), gr.Column(visible=False))
            return *hidden, *self._nothing[len(hidden) : -2], gr.Timer(active=False), ""
        work = self._batches.work(batch)
        drawn = (batch.id, batch.revision, work is None, len(mine), view.offset, words.language)
        if view.drawn == drawn:
            return self._nothing
        offset = min(view.offset, (len(batch.order.lines) - 1) // PAGE_ROWS * PAGE_ROWS)
        pager = batch_view.pager(batch, offset, words)
        return (
            View(batch.id, offset, drawn),
            gr.HTML(visible=False),
            gr.Column(visible=True),
            gr.Dropdown(choices=[(batch_view.entry(one, words), one.id) for one in mine], value=batch.id),
            batch_view.status(batch, work, words),
            batch_view.table(batch, work.busy if work is not None else frozenset(), offset, words),
            gr.Row(visible=bool(pager)),
            pager,
            gr.Button(interactive=offset > 0),
            gr.Button(interactive=offset + PAGE_ROWS < len(batch.order.lines)),
            gr.Button(visible=work is not None),
            gr.Button(visible=work is None and bool(batch.left())),
            gr.Button(interactive=work is None and batch.counts()["done"] > 0),
            gr.Timer(active=work is not None),
            "",
        )


def _owner(request: gr.Request, browser: Any) -> str:
    return owner_hash("page", owner_of(request, browser))
