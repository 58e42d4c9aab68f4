"""The list of saved voices, and the search in it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from html import escape
from typing import Any

import gradio as gr

from cosyui.service.voice_record import Voice, name_key
from cosyui.ui.controls import quiet
from cosyui.ui.i18n import Words, both
from cosyui.ui.picking import picker
from cosyui.ui.voice_desk import VoiceDesk

PICK = "voice"
MANY = 8
"""So many voices have a field to search in."""


class VoiceList:
    """Laid where it is made; ``chosen`` is the id of the voice that is open. A press on a voice is ``picked``."""

    def __init__(self, desk: VoiceDesk, t: gr.I18n) -> None:
        self._desk = desk
        self.chosen = gr.State("")
        with gr.Column(elem_classes="card", elem_id="voice-list"):
            with gr.Row(elem_classes="list-head"):
                gr.HTML(f'<h2 class="card-title">{both("voice_list")}</h2>', js_on_load=None)
                self._count = gr.HTML("", elem_id="voice-count", js_on_load=None)
            self._query = gr.Textbox(
                label=t("voice_search"),
                placeholder=t("voice_search_placeholder"),
                show_label=False,
                max_lines=1,
                max_length=100,
                visible=False,
                elem_id="voice-search",
            )
            self._rows = gr.HTML("", elem_id="voice-rows", js_on_load=None)
            self.told = gr.HTML("", elem_id="voice-list-told", elem_classes="told", js_on_load=None)
        self.inputs: list[Any] = [self._query, self.chosen]
        self.shown: list[Any] = [self._count, self._query, self._rows]
        self.picked, self.value, self.js = picker(PICK, last=True)
        self._query.input(self.show, self.inputs, self.shown, trigger_mode="always_last", **quiet())

    def show(self, query: str | None, chosen: str, request: gr.Request) -> tuple[str, Any, str]:
        """As it is now, with the open voice marked."""
        words, voices = self._desk.words(request), self._desk.voices.all()
        count = f'<span class="hint">{escape(words("voice_count", count=len(voices)))}</span>' if voices else ""
        searches = len(voices) >= MANY or bool(query)
        return count, gr.Textbox(visible=searches), rows(voices, query or "", chosen, words)


def rows(voices: Sequence[Voice], query: str, chosen: str, words: Words) -> str:
    """Those that fit, by name."""
    wanted = name_key(query)
    found = [voice for voice in voices if wanted in name_key(f"{voice.name} {_language(voice, words)} {voice.consent}")]
    if not found:
        return f'<p class="empty">{escape(words("voices_no_match" if voices else "voices_none"))}</p>'
    ordered = sorted(found, key=lambda voice: name_key(voice.name))
    return f'<ul class="voices">{"".join(_row(voice, voice.id == chosen, words) for voice in ordered)}</ul>'


def facts(voice: Voice, words: Words) -> str:
    """Language, length and day, plain text."""
    told = [_language(voice, words), words("voice_seconds", seconds=voice.seconds)]
    told.append("" if voice.transcript else words("voice_mute"))
    told.append(f"{datetime.fromtimestamp(voice.created):%Y-%m-%d}")
    return " · ".join(filter(None, told))


def _language(voice: Voice, words: Words) -> str:
    return words(f"language_{voice.language}") if voice.language else ""


def _row(voice: Voice, chosen: bool, words: Words) -> str:
    return (
        f'<li><button type="button" data-pick="{PICK}" data-value="{voice.id}" aria-pressed="{str(chosen).lower()}">'
        f"<bdi>{escape(voice.name)}</bdi><span>{escape(facts(voice, words))}</span>"
        f"<small><bdi>{escape(voice.consent)}</bdi></small></button></li>"
    )
