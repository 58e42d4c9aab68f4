"""The tab of past takes: a list to search, and the chosen take to be heard, used again, kept or deleted."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, NamedTuple

import gradio as gr

from cosyui.errors import CosyuiError
from cosyui.service.history import History, Shown
from cosyui.ui import history_list, render
from cosyui.ui.action_button import ActionButton
from cosyui.ui.controls import quiet, take_player
from cosyui.ui.history_list import OPEN, REUSE, STAR
from cosyui.ui.i18n import Dictionary, Words, both
from cosyui.ui.owner import owner_of
from cosyui.ui.picking import picker
from cosyui.ui.pieces import hint
from cosyui.ui.synthesis import SynthesisTab
from cosyui.ui.voice_desk import VoiceDesk

PAGE_ROWS = 20
Listener = Callable[..., Any]
Update = dict[Any, Any]


class Asked(NamedTuple):
    """What somebody looks at: whose takes, which, from where on; and the id of the one that is open."""

    owner: Any
    search: str
    starred: bool
    offset: int
    chosen: str


class HistoryTab:
    """Lays itself where it is made; `wire` tells it when the tab is opened. Each handler looks again who asks."""

    def __init__(
        self,
        history: History,
        synthesis: SynthesisTab,
        desk: VoiceDesk,
        dictionary: Dictionary,
        t: gr.I18n,
        owner: gr.BrowserState,
    ) -> None:
        self._history = history
        self._synthesis = synthesis
        self._desk = desk
        self._dictionary = dictionary
        self._chosen = gr.State("")
        self._offset = gr.State(0)
        with gr.Row(elem_classes="workspace past-workspace"):
            with gr.Column(scale=7, min_width=320, elem_classes="side"):
                self._lay_list(t)
            with gr.Column(scale=5, min_width=320, elem_classes="side outcome"):
                self._lay_detail(t)
        self._asked: list[Any] = [owner, self._search, self._starred, self._offset, self._chosen]
        self._listed: list[Any] = [self._list, self._rows, self._back, self._on, self._offset, self._told]
        detail = [self._chosen, self._empty, self._detail, self._head, self._sound, self._player, self._foot]
        self._whole: list[Any] = [*self._listed, *detail, self._star]

    def _lay_list(self, t: gr.I18n) -> None:
        with gr.Column(elem_classes="card", elem_id="past"):
            gr.HTML(f'<h2 class="card-title">{both("past_takes")}</h2>', js_on_load=None)
            with gr.Row(elem_classes="past-filters"):
                self._search = gr.Textbox(
                    show_label=False,
                    placeholder=t("past_search_placeholder"),
                    elem_id="past-search",
                    max_lines=1,
                    max_length=100,
                    min_width=160,
                )
                self._starred = gr.Checkbox(
                    label=t("past_starred"), container=False, elem_id="past-starred", min_width=120
                )
            self._told = gr.HTML("", elem_id="past-told", elem_classes="told", js_on_load=None)
            self._list = gr.HTML("", elem_id="past-list", js_on_load=None)
            with gr.Row(elem_classes="ops-actions past-pager"):
                self._back = gr.Button("‹", elem_id="past-back", size="sm", scale=0, min_width=44, visible=False)
                self._rows = gr.HTML("", elem_id="past-rows", js_on_load=None)
                self._on = gr.Button("›", elem_id="past-on", size="sm", scale=0, min_width=44, visible=False)
            gr.HTML(f'<p class="hint">{both("past_hint")}</p>', js_on_load=None)
            with gr.Row(elem_classes="ops-actions"):
                self._clear = ActionButton(t, "past_clear", asks=True)

    def _lay_detail(self, t: gr.I18n) -> None:
        self._empty = gr.HTML(f'<p class="empty past-choose">{both("past_choose")}</p>', js_on_load=None)
        with gr.Column(elem_classes="card", elem_id="past-detail", visible=False) as self._detail:
            self._head = gr.HTML("", elem_id="past-head", js_on_load=None)
            with gr.Column(elem_classes="field") as self._sound:
                self._player = take_player("past-player")
            self._foot = gr.HTML("", elem_id="past-foot", js_on_load=None)
            with gr.Row(elem_classes="ops-actions"):
                self._again = gr.Button(t("past_reuse"), variant="primary", elem_id="past-reuse", size="sm", scale=0)
                self._star = gr.Button("☆", elem_id="past-star", size="sm", scale=0)
                self._remove_button = gr.Button(t("past_remove"), elem_id="past-remove", size="sm", scale=0)

    def wire(self, opened: Listener, tabs: gr.Tabs) -> None:
        """``opened`` is the event of the tab, one of ``tabs``."""
        self._tabs = tabs
        opened(self.show, self._asked, self._listed, **quiet())
        found = [self._search.change, self._starred.input]
        gr.on(found, self.find, self._asked, self._listed, trigger_mode="always_last", **quiet())
        self._back.click(self.turn_back, self._asked, self._listed, **quiet())
        self._on.click(self.turn_on, self._asked, self._listed, **quiet())
        pick, take, js = picker(OPEN, last=True)
        shown = pick.click(self.open, [*self._asked, take], self._whole, js=js, **quiet())
        shown.then(None, None, None, js="() => cosyui.show('past-detail')")
        pick, take, js = picker(STAR, last=True)
        pick.click(self.star, [*self._asked, take], self._whole, js=js, **quiet())
        self._star.click(self.star, [*self._asked, self._chosen], self._whole, **quiet())
        self._remove_button.click(self.remove, [*self._asked, self._chosen], self._whole, **quiet())
        self._clear.go.click(self.clear, self._asked, self._whole, **quiet())
        filled = [tabs, self._told, *self._synthesis.fields]
        pick, take, js = picker(REUSE, last=True)
        pick.click(self.reuse, [*self._asked, take], filled, js=js, **quiet())
        self._again.click(self.reuse, [*self._asked, self._chosen], filled, **quiet())

    async def show(self, request: gr.Request, *given: Any) -> Update:
        """The list as it is now."""
        return await self._list_of(Asked(*given), request)

    async def find(self, request: gr.Request, *given: Any) -> Update:
        """The first page of what is looked for."""
        return await self._list_of(Asked(*given)._replace(offset=0), request)

    async def turn_back(self, request: gr.Request, *given: Any) -> Update:
        asked = Asked(*given)
        return await self._list_of(asked._replace(offset=asked.offset - PAGE_ROWS), request)

    async def turn_on(self, request: gr.Request, *given: Any) -> Update:
        asked = Asked(*given)
        return await self._list_of(asked._replace(offset=asked.offset + PAGE_ROWS), request)

    async def open(self, request: gr.Request, *given: Any) -> Update:
        """Put a take into the player. The last that is given is its id."""
        *before, take_id = given
        asked, words = Asked(*before), self._dictionary.of(request)
        try:
            shown = await asyncio.to_thread(self._history.find, owner_of(request, asked.owner), str(take_id))
        except CosyuiError as error:
            return await self._without(asked, render.problem_of(error, words), request)
        return self._opened(shown, words) | await self._list_of(asked._replace(chosen=shown.take.id), request)

    async def star(self, request: gr.Request, *given: Any) -> Update:
        """Make it a favourite, or none; the player goes on."""
        *before, take_id = given
        asked, words = Asked(*before), self._dictionary.of(request)
        try:
            shown = await asyncio.to_thread(self._turned, owner_of(request, asked.owner), str(take_id))
        except CosyuiError as error:
            return await self._list_of(asked, request) | {self._told: render.problem_of(error, words)}
        button = {self._star: _star(shown, words)} if shown.take.id == asked.chosen else {}
        return await self._list_of(asked, request) | button

    async def remove(self, request: gr.Request, *given: Any) -> Update:
        *before, take_id = given
        asked, words = Asked(*before), self._dictionary.of(request)
        try:
            await asyncio.to_thread(self._history.remove, owner_of(request, asked.owner), str(take_id))
            told = hint(words("past_removed"))
        except CosyuiError as error:
            told = render.problem_of(error, words)
        return await self._without(asked, told, request)

    async def clear(self, request: gr.Request, *given: Any) -> Update:
        """Delete all that this owner has."""
        asked, words = Asked(*given), self._dictionary.of(request)
        await self._history.settled()
        try:
            count = await asyncio.to_thread(self._history.remove_all, owner_of(request, asked.owner))
            told = hint(words("past_cleared", count=count))
        except CosyuiError as error:
            told = render.problem_of(error, words)
        return await self._without(asked, told, request)

    async def reuse(self, request: gr.Request, *given: Any) -> Update:
        """Back to the form, with all that the take was made of."""
        *before, take_id = given
        asked, words = Asked(*before), self._dictionary.of(request)
        try:
            shown = await asyncio.to_thread(self._history.find, owner_of(request, asked.owner), str(take_id))
        except CosyuiError as error:
            return {self._told: render.problem_of(error, words)}
        clip = await asyncio.to_thread(self._history.clip, shown.take)
        missing = clip is None and not shown.take.voice
        line = render.status("filled", words("past_no_clip" if missing else "past_refilled"))
        filled = self._synthesis.filled(shown.take, clip, words) | {self._synthesis.status: line}
        return filled | {self._tabs: gr.Tabs(selected="synthesis")}

    def _turned(self, owner: str, take_id: str) -> Shown:
        favourite = self._history.find(owner, take_id).take.favourite
        return self._history.favour(owner, take_id, not favourite)

    def _opened(self, shown: Shown, words: Words) -> Update:
        return {
            self._chosen: shown.take.id,
            self._empty: gr.HTML(visible=False),
            self._detail: gr.Column(visible=True),
            self._head: history_list.head(shown.take, words, self._desk.name),
            self._sound: gr.Column(visible=shown.file is not None),
            self._player: None if shown.file is None else str(shown.file),
            self._foot: history_list.foot(shown, words),
            self._star: _star(shown, words),
        }

    async def _without(self, asked: Asked, told: str, request: gr.Request) -> Update:
        """The list with no take chosen, and a sentence above it."""
        closed = {
            self._chosen: "",
            self._empty: gr.HTML(visible=True),
            self._detail: gr.Column(visible=False),
            self._player: None,
        }
        return closed | await self._list_of(asked._replace(chosen=""), request) | {self._told: told}

    async def _list_of(self, asked: Asked, request: gr.Request) -> Update:
        owner, search, starred, offset, chosen = asked
        words = self._dictionary.of(request)
        await self._history.settled()
        try:
            page = await asyncio.to_thread(
                self._history.page,
                owner_of(request, owner),
                search,
                favourites=starred,
                limit=PAGE_ROWS,
                offset=offset,
            )
        except CosyuiError as error:
            return {self._list: "", self._rows: "", self._told: render.problem_of(error, words)}
        many = page.total > PAGE_ROWS
        return {
            self._list: history_list.listed(
                page, chosen, words, self._desk.name, filtered=bool(search.strip()) or starred
            ),
            self._rows: history_list.rows(page, words),
            self._back: gr.Button(visible=many, interactive=page.offset > 0),
            self._on: gr.Button(visible=many, interactive=page.offset + len(page.takes) < page.total),
            self._offset: page.offset,
            self._told: "",
        }


def _star(shown: Shown, words: Words) -> Any:
    return gr.Button(words("past_unstar" if shown.take.favourite else "past_star"))
