"""The journal on the ops tab: pages of the last requests, filtered and sorted, and the filtered rows as a CSV file."""

from __future__ import annotations

import asyncio
import logging
import secrets
import sqlite3
from collections.abc import AsyncGenerator
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import gradio as gr

from cosyui.errors import CosyuiError
from cosyui.ops.journal import Journal, Page
from cosyui.ops.journal_file import Filter
from cosyui.ops.leaks import find_trends
from cosyui.service import remarks
from cosyui.ui.controls import quiet
from cosyui.ui.guard import Guard
from cosyui.ui.i18n import both
from cosyui.ui.journal_table import OUTCOMES, PAGE_ROWS, SORT, View, journal_table, pager, trends
from cosyui.ui.picking import picker
from cosyui.ui.pieces import hint
from cosyui.ui.render import note, problem_of

logger = logging.getLogger(__name__)


class OpsJournal:
    """Lays itself where it is made. Rows are read when somebody asks for them, in a thread."""

    def __init__(self, journal: Journal, guard: Guard, t: gr.I18n) -> None:
        self._journal = journal
        self._guard = guard
        with gr.Column(elem_classes="card", elem_id="ops-journal"):
            gr.HTML(f'<h2 class="card-title">{both("journal")}</h2>', js_on_load=None)
            with gr.Row(elem_classes="ops-actions"):
                choices = [(t("outcome_all"), ""), *((t(f"outcome_{name}"), name) for name in OUTCOMES)]
                self._outcome = gr.Dropdown(
                    choices, value="", label=t("journal_outcome"), elem_id="journal-outcome", min_width=130
                )
                self._code = gr.Dropdown(
                    [(t("code_all"), "")],
                    value="",
                    label=t("journal_code"),
                    elem_id="journal-code",
                    min_width=150,
                    allow_custom_value=True,
                )
                self._text = gr.Textbox(
                    label=t("journal_text"), elem_id="journal-text", max_lines=1, min_width=150, max_length=100
                )
            with gr.Row(elem_classes="ops-actions"):
                refresh = gr.Button(t("journal_refresh"), elem_id="journal-refresh", size="sm", scale=0)
                self._export = gr.Button(t("journal_export"), elem_id="journal-export", size="sm", scale=0)
                self._told = gr.HTML("", elem_id="journal-told", elem_classes="told", js_on_load=None)
            self._table = gr.HTML("", elem_id="journal-table", js_on_load=None)
            with gr.Row(elem_classes="ops-actions"):
                self._back = gr.Button("‹", elem_id="journal-back", size="sm", scale=0, min_width=44, interactive=False)
                self._on = gr.Button("›", elem_id="journal-on", size="sm", scale=0, min_width=44, interactive=False)
                self._pager = gr.HTML("", elem_id="journal-pager", js_on_load=None)
            self._trends = gr.HTML("", elem_id="journal-trends", js_on_load=None)
        self._view = gr.State(View())
        self._file = gr.DownloadButton(visible="hidden", elem_id="journal-file")
        self._wire(refresh)
        self.tools = [self._export]
        """For operators only."""

    def _wire(self, refresh: gr.Button) -> None:
        self.filters: list[Any] = [self._view, self._outcome, self._code, self._text]
        self.shown: list[Any] = [
            self._view, self._table, self._pager, self._back, self._on, self._code, self._trends
        ]  # fmt: skip
        asked = [self._outcome.input, self._code.input, self._text.submit, refresh.click]
        gr.on(asked, self.show, self.filters, self.shown, **quiet())
        self._back.click(self._turn_back, self.filters, self.shown, **quiet())
        self._on.click(self._turn_on, self.filters, self.shown, **quiet())
        pick, column, js = picker(SORT, last=True)
        pick.click(self._sort, [*self.filters, column], self.shown, js=js, **quiet())
        done = self._export.click(
            self._write,
            self.filters,
            [self._told, self._file],
            concurrency_limit=1,
            show_progress="hidden",
            api_visibility="private",
        )
        done.then(None, self._file, None, js="(file) => cosyui.download(file)")

    async def show(self, view: View, outcome: str, code: str, text: str, request: gr.Request) -> tuple[Any, ...]:
        """The first page of what the filters let pass."""
        return await self._read(replace(view, chosen=_filter(outcome, code, text), offset=0), request)

    async def _turn_back(self, view: View, outcome: str, code: str, text: str, request: gr.Request) -> tuple[Any, ...]:
        return await self._read(replace(view, chosen=_filter(outcome, code, text)).turned(-1), request)

    async def _turn_on(self, view: View, outcome: str, code: str, text: str, request: gr.Request) -> tuple[Any, ...]:
        return await self._read(replace(view, chosen=_filter(outcome, code, text)).turned(1), request)

    async def _sort(
        self, view: View, outcome: str, code: str, text: str, column: str, request: gr.Request
    ) -> tuple[Any, ...]:
        return await self._read(replace(view, chosen=_filter(outcome, code, text)).sorted_by(column), request)

    async def _read(self, view: View, request: gr.Request) -> tuple[Any, ...]:
        if not self._guard.sees(request):
            return (gr.skip(),) * len(self.shown)
        words = self._guard.words(request)
        page, found = await asyncio.gather(
            asyncio.to_thread(self._page, view), asyncio.to_thread(find_trends, self._journal.recent)
        )
        codes = [(words("code_all"), ""), *((code, code) for code in page.codes)]
        return (
            view,
            journal_table(page, view, words),
            pager(page, view, words),
            gr.Button(interactive=view.offset > 0),
            gr.Button(interactive=view.offset + len(page.rows) < page.total),
            gr.Dropdown(choices=codes),
            trends(found, words),
        )

    def _page(self, view: View) -> Page:
        return self._journal.page(view.chosen, view.sort, view.descending, PAGE_ROWS, view.offset)

    async def _write(
        self, view: View, outcome: str, code: str, text: str, request: gr.Request
    ) -> AsyncGenerator[tuple[str, Any], None]:
        """The filtered rows as a file in the server's folder of temporary files, under a path that nobody guesses."""
        words = self._guard.words(request)
        yield "", None
        try:
            self._guard.check(request)
            path = Path(self._file.GRADIO_CACHE, secrets.token_hex(16), f"journal-{datetime.now():%Y%m%d-%H%M%S}.csv")
            await asyncio.to_thread(self._save, path, replace(view, chosen=_filter(outcome, code, text)))
            yield hint(words("journal_exported", name=path.name)), str(path)
        except CosyuiError as error:
            yield problem_of(error, words), None
        except (sqlite3.Error, OSError) as error:
            logger.exception("journal_not_exported")
            yield note(words.notice(remarks.journal_unread(str(error)))), None

    def _save(self, path: Path, view: View) -> None:
        path.parent.mkdir(parents=True)
        with path.open("w", encoding="utf-8", newline="") as file:
            file.writelines(self._journal.csv(view.chosen, view.sort, view.descending))


def _filter(outcome: str | None, code: str | None, text: str | None) -> Filter:
    return Filter(outcome=outcome or None, code=(code or "").strip() or None, text=(text or "").strip())
