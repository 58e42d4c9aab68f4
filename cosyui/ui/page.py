"""The page: header, banner and tabs, and how it is mounted on the server."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any

import gradio as gr
from fastapi import FastAPI
from gradio.utils import get_upload_folder
from starlette.routing import Mount

from cosyui.service.service import SynthesisService
from cosyui.service.voice_names import EXAMPLES
from cosyui.ui import banner
from cosyui.ui.batch_tab import BatchTab
from cosyui.ui.controls import quiet
from cosyui.ui.history_tab import HistoryTab
from cosyui.ui.i18n import PAGE, Dictionary, both, translations
from cosyui.ui.listening import ROUTE
from cosyui.ui.login import LoginGate
from cosyui.ui.ops_tab import OpsTab
from cosyui.ui.output_files import OutputFiles
from cosyui.ui.owner import drawn, owner_state
from cosyui.ui.synthesis import SynthesisTab, session_of
from cosyui.ui.takes import Takes
from cosyui.ui.theme import STYLE_SHEETS, theme
from cosyui.ui.voice_copies import VoiceCopies
from cosyui.ui.voice_desk import VoiceDesk
from cosyui.ui.voice_detail import preview_of
from cosyui.ui.voices_tab import VoicesTab

SESSIONS = 300
"""Browser tabs whose small state is kept in memory; the oldest is dropped first."""
UPLOAD_LIFE = 24 * 3600
"""Seconds after which an uploaded clip is deleted; far longer than any take may wait."""
SLOW_TICK, FAST_TICK = 10.0, 1.0
"""Seconds between refreshes of the header, when all is well and when it is not."""

_LOGO = (
    '<svg viewBox="0 0 32 32" width="34" height="34" aria-hidden="true"><rect width="32" height="32" rx="9"/>'
    '<path d="M7 14v4M11.5 10v12M16 6.5v19M20.5 11v10M25 14v4" fill="none" stroke="#fff" stroke-width="2.4" '
    'stroke-linecap="round"/></svg>'
)


class Page:
    """Builds the Blocks of one service."""

    def __init__(self, service: SynthesisService) -> None:
        self._service = service
        self._takes = Takes(service)
        self._dictionary = Dictionary(service.settings)
        self.i18n = translations()
        self.blocks = gr.Blocks(
            title="CosyUI", analytics_enabled=False, fill_width=True, delete_cache=(3600, UPLOAD_LIFE)
        )
        # Before queue(): it makes the holder of the sessions.
        self.blocks.state_session_capacity = SESSIONS
        with self.blocks:
            self._lay()
        # Each take holds one of these while it waits, too: there must be more of them than takes can wait.
        self.blocks.max_threads = max(40, service.settings.queue_size + 20)
        self.blocks.queue(api_open=False)
        # Gradio looks a thousand times a second whether a button was pressed; this often is enough and costs nothing.
        self.blocks._queue.sleep_when_free = 0.02
        self.blocks._queue.progress_update_sleep_when_free = 0.25

    async def close(self, server: gr.routes.App) -> None:
        """End what pages listen to, so that the server need not cut them off."""
        await self._takes.close()
        server.stop_event.set()

    def _lay(self) -> None:
        t = self.i18n
        with gr.Row(elem_classes="top"):
            gr.HTML(_header(), js_on_load=None, elem_classes="brand-slot")
            self.badge = gr.HTML("", elem_id="badge", js_on_load=None)
            gr.HTML(_switches(), js_on_load=None, elem_classes="switch-slot")
        self.banner = gr.HTML("", elem_id="banner", js_on_load=None)
        self.owner = owner_state()
        settings, past = self._service.settings, self._service.history
        desk = VoiceDesk(self._service, self._dictionary, VoiceCopies(Path(get_upload_folder())))
        others: list[Any] = []
        with gr.Tabs(elem_id="tabs") as tabs:
            with gr.Tab(t("tab_synthesis"), id="synthesis") as speak:
                synthesis = SynthesisTab(self._service, self._takes, desk, self._dictionary, t, self.owner)
            with gr.Tab(t("tab_voices"), id="voices") as keep:
                voices = VoicesTab(self._service, self._takes, desk, self._dictionary, t)
            others.append(keep.select)
            if past is not None:
                with gr.Tab(t("tab_history"), id="history") as look:
                    history = HistoryTab(past, synthesis, desk, self._dictionary, t, self.owner)
                others.append(look.select)
            with gr.Tab(t("tab_batch"), id="batch", visible=settings.batch_lines > 0) as batch:
                lines = BatchTab(self._service, self._dictionary, t, self.owner)
            others.append(batch.select)
            if settings.ops != "off":
                with gr.Tab(t("tab_ops"), id="ops") as operate:
                    ops = OpsTab(self._service, self._dictionary, t)
        synthesis.wire(speak.select, self.blocks.load)
        voices.wire(keep.select)
        if past is not None:
            history.wire(look.select, tabs)
        lines.wire(batch.select)
        if settings.ops != "off":
            ops.wire(operate.select, speak.select, *others)
        gr.HTML(f'<p class="foot">{both("footer")}</p>', js_on_load=None)
        self.header_tick = gr.Timer(FAST_TICK)
        header = [self.badge, self.banner, self.header_tick]
        self.header_tick.tick(self._show_header, None, header, **quiet())
        self.blocks.load(self._show_header, None, header, **quiet())
        self.blocks.load(drawn, self.owner, self.owner, **quiet())
        wanted = "() => [cosyui.player.wanted()]"
        self.blocks.load(synthesis.live_at_first, synthesis.live, synthesis.live, js=wanted, **quiet())
        self.blocks.unload(self._leave)

    async def _show_header(self, request: gr.Request) -> tuple[str, str, Any]:
        """On the event loop, like everything of the service; slower ticks once the engine runs."""
        words = self._dictionary.of(request)
        tick = SLOW_TICK if self._service.client.state in ("ready", "unloaded") else FAST_TICK
        return banner.badge(self._service, words), banner.banner(self._service, words), gr.Timer(tick)

    def route(self, server: gr.routes.App) -> None:
        """Adds the page's own routes to its server, behind its login."""
        server.add_api_websocket_route(ROUTE, self._takes.live.route)

    async def _leave(self, request: gr.Request) -> None:
        """The browser tab is gone."""
        await self._takes.leave(session_of(request))
        await self._takes.leave(preview_of(request))


def mount(app: FastAPI, service: SynthesisService) -> Callable[[], Coroutine[Any, Any, None]]:
    """Put the page on ``app`` at ``/``; returns what to await when the server is told to stop.

    Files are served from the output folder and the examples, and uploads to those who know their random path.
    """
    page = Page(service)
    gr.set_static_paths([service.outputs.root.resolve(), EXAMPLES])
    settings, rights = service.settings, service.rights
    gr.mount_gradio_app(
        app,
        page.blocks,
        path="/",
        auth=rights.login if rights.login_needed else None,
        auth_message=both("login_hint"),
        footer_links=[],
        run_history=False,
        show_error=False,
        # Above the service's own limit, so that a somewhat too large clip gets its message beside the field.
        max_file_size=4 * settings.clip_max_bytes,
        ssr_mode=False,
        enable_monitoring=False,
        pwa=False,
        mcp_server=False,
        i18n=page.i18n,
        theme=theme(),
        css_paths=STYLE_SHEETS,
    )
    mounted = [route.app for route in app.routes if isinstance(route, Mount)]
    server = next(part for part in mounted if isinstance(part, gr.routes.App))
    server.add_middleware(OutputFiles, outputs=service.outputs)
    page.route(server)
    if rights.login_needed:
        server.add_middleware(LoginGate, server=server, rights=rights)
    return partial(page.close, server)


def _header() -> str:
    return f'<div class="brand">{_LOGO}<div><h1>CosyUI</h1><p>{both("tagline")}</p></div></div>'


def _switches() -> str:
    title = " / ".join(PAGE[name]["theme_switch"] for name in PAGE)
    return (
        '<div class="switches">'
        f'<button type="button" id="language" onclick="cosyui.switchLanguage()">{both("language_switch")}</button>'
        f'<button type="button" id="theme" title="{title}" aria-label="{title}" onclick="cosyui.switchTheme()">'
        "◐</button></div>"
    )
