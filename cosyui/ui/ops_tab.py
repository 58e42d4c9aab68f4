"""The operator's tab: laid out, and kept up to date while somebody looks at it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import gradio as gr

from cosyui.ops.history import SPANS, Span
from cosyui.service.service import SynthesisService
from cosyui.ui.controls import quiet
from cosyui.ui.guard import Guard
from cosyui.ui.i18n import Dictionary, Words
from cosyui.ui.ops import panel
from cosyui.ui.ops_actions import OpsActions
from cosyui.ui.ops_gate import OpsGate
from cosyui.ui.ops_history import history
from cosyui.ui.ops_journal import OpsJournal
from cosyui.ui.ops_purge import OpsPurge
from cosyui.ui.ops_queue import CANCEL
from cosyui.ui.picking import picker

TICK = 2.0
"""Seconds between refreshes."""
Listener = Callable[..., Any]


class OpsTab:
    """Lays itself where it is made; `wire` tells it when the tab is opened and left."""

    def __init__(self, service: SynthesisService, dictionary: Dictionary, t: gr.I18n) -> None:
        self._service = service
        self._guard = guard = Guard(service, dictionary)
        has_password = guard.password_set
        self._gate = OpsGate(guard, t, has_password=has_password)
        with gr.Column(visible=False, elem_id="ops-body") as self._body:
            with gr.Column(visible=False, elem_classes="ops-tools") as tools:
                OpsActions(service, guard, t)
                OpsPurge(service.operations, guard, t)
                lock = gr.Button(t("admin_lock"), elem_id="ops-lock", size="sm", scale=0, visible=has_password)
            self._told = gr.HTML("", elem_id="cancel-told", elem_classes="told", js_on_load=None)
            self._panel = gr.HTML("", elem_id="ops-panel", js_on_load=None)
            spans = [(t(f"span_{span}"), span) for span in SPANS]
            self._span = gr.Radio(spans, value="quarter", show_label=False, elem_id="ops-span", elem_classes="spans")
            self._charts = gr.HTML("", elem_id="ops-charts", js_on_load=None)
            self._journal = OpsJournal(service.operations.journal, guard, t)
        self._lock_event = lock.click
        self._tools: list[Any] = [tools, *self._journal.tools]
        self._tick = gr.Timer(TICK, active=False)
        self._shown = [self._panel, self._charts]
        self._whole = [*self._gate.parts, self._body, *self._tools, *self._shown, self._tick]
        # The page's script presses these when the browser's own tab is shown or hidden.
        self._wake = gr.Button(visible="hidden", elem_id="ops-wake")
        self._sleep = gr.Button(visible="hidden", elem_id="ops-sleep")

    def wire(self, opened: Listener, *left: Listener) -> None:
        """``opened`` and ``left`` are events of tabs."""
        opened(self._open, self._span, self._whole, **quiet())
        self._wake.click(self._look_again, self._span, [*self._shown, self._tick], **quiet())
        gr.on([*left, self._sleep.click], lambda: gr.Timer(active=False), None, self._tick, **quiet())
        opened(self._journal.show, self._journal.filters, self._journal.shown, **quiet())
        self._tick.tick(self._show, self._span, self._shown, **quiet())
        self._span.change(self._show, self._span, self._shown, **quiet())
        given = [self._gate.password, self._span]
        gr.on(self._gate.unlock_events, self._unlock, given, self._whole, **quiet())
        self._lock_event(self._lock, self._span, self._whole, **quiet())
        pick, take, js = picker(CANCEL)
        pick.click(
            self._guard.action(self._cancel),
            take,
            self._told,
            js=js,
            concurrency_limit=None,
            show_progress="hidden",
            api_visibility="private",
        )

    async def _show(self, span: Span, request: gr.Request) -> tuple[Any, Any]:
        """On the event loop, like everything of the service."""
        if not self._guard.sees(request):
            return "", ""
        words, service = self._guard.words(request), self._service
        charts = history(service.operations.sampler, span if span in SPANS else "quarter", words)
        return panel(service.overview(), words, self._guard.is_admin(request)), charts

    async def _open(self, span: Span, request: gr.Request, told: str = "") -> tuple[Any, ...]:
        admin, sees = self._guard.is_admin(request), self._guard.sees(request)
        return (
            *self._gate.view(request, told),
            gr.Column(visible=sees),
            *(type(tool)(visible=admin) for tool in self._tools),
            *await self._show(span, request),
            gr.Timer(active=sees),
        )

    async def _look_again(self, span: Span, request: gr.Request) -> tuple[Any, ...]:
        return *await self._show(span, request), gr.Timer(active=self._guard.sees(request))

    async def _unlock(self, password: str, span: Span, request: gr.Request) -> tuple[Any, ...]:
        return await self._open(span, request, self._gate.unlock(password, request))

    async def _lock(self, span: Span, request: gr.Request) -> tuple[Any, ...]:
        self._guard.lock(request)
        return await self._open(span, request)

    async def _cancel(self, words: Words, take: str) -> AsyncIterator[str]:
        """Whoever waits for the take sees it stopped."""
        ticket = self._service.ticket(str(take))
        if ticket is None:
            yield words("cancel_gone")
            return
        await ticket.cancel()
        yield words("cancel_done", take=ticket.id)
