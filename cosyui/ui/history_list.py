"""Past takes as HTML: the list, and what stands around the player of the chosen one. All text escaped."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime
from html import escape

from cosyui.notice import Notice
from cosyui.service.history import HistoryPage, Shown
from cosyui.service.history_file import PastTake
from cosyui.ui.i18n import Words
from cosyui.ui.pieces import hint
from cosyui.ui.render import note, notes

OPEN, STAR, REUSE = "past-open", "past-star", "past-reuse"
"""What the page's script picks buttons for (see `cosyui.ui.picking`)."""
Name = Callable[[str, Words], str]
"""Of a voice, by what stands in the row; of the own clip for none."""
SHORT = 180
"""Characters of a text in the list."""


def listed(page: HistoryPage, chosen: str, words: Words, name: Name, *, filtered: bool) -> str:
    """The takes of a page, each with a button to open it; ``chosen`` is the id of the open one."""
    if not page.takes:
        return f'<p class="empty">{escape(words("past_nothing_found" if filtered else "past_none"))}</p>'
    return f'<ul class="past">{"".join(_row(shown, chosen, words, name) for shown in page.takes)}</ul>'


def rows(page: HistoryPage, words: Words) -> str:
    """Which of how many."""
    if not page.takes:
        return ""
    return hint(words("past_rows", first=page.offset + 1, last=page.offset + len(page.takes), total=page.total))


def head(take: PastTake, words: Words, name: Name) -> str:
    """Above the player: when, how, and the whole text."""
    lines = [f'<p class="past-text"><bdi>{escape(take.text.strip())}</bdi></p>']
    if take.mode == "zero_shot" and take.transcript.strip():
        lines.append(_quoted("past_transcript", take.transcript, words))
    if take.mode == "instruct":
        lines.append(_quoted("past_instruction", take.instruction, words))
    return f'<h2 class="card-title">{_facts(take, words, name)}</h2>{"".join(lines)}'


def foot(shown: Shown, words: Words) -> str:
    """Below the player: figures and remarks, or that the file is gone."""
    take = shown.take
    figures = [
        words("past_seconds", seconds=take.seconds),
        words("past_first", seconds=take.first_chunk),
        words("past_rtf", rtf=take.rtf),
        words("past_speed", speed=take.speed),
        words("past_seed", seed=take.seed),
    ]
    gone = "" if shown.file is not None else note(words("past_expired_note"))
    return gone + hint(" · ".join(figures)) + notes(_notices(take), words)


def _row(shown: Shown, chosen: str, words: Words, name: Name) -> str:
    take = shown.take
    value = f'data-value="{escape(take.id)}"'
    text = " ".join(take.text.split())
    short = text if len(text) <= SHORT else f"{text[:SHORT].rstrip()}…"
    expired = "" if shown.file is not None else f'<i class="expired">{escape(words("past_expired"))}</i>'
    star = escape(words("past_unstar" if take.favourite else "past_star"))
    classes = "chosen" if take.id == chosen else ""
    return (
        f'<li class="{classes}" data-take="{escape(take.id)}">'
        f'<button type="button" class="past-open" data-pick="{OPEN}" {value} title="{escape(words("past_open"))}" '
        f'aria-pressed="{str(take.id == chosen).lower()}"><bdi class="past-short">{escape(short)}</bdi>'
        f'<span class="past-facts">{_facts(take, words, name)}{expired}</span></button>'
        f'<button type="button" class="past-again" data-pick="{REUSE}" {value}>{escape(words("past_reuse"))}</button>'
        f'<button type="button" class="past-star" data-pick="{STAR}" {value} title="{star}" aria-label="{star}" '
        f'aria-pressed="{str(take.favourite).lower()}">{"★" if take.favourite else "☆"}</button></li>'
    )


def _facts(take: PastTake, words: Words, name: Name) -> str:
    """HTML: when, how long, how, and whose voice."""
    made = f"{datetime.fromtimestamp(take.made).astimezone():%Y-%m-%d %H:%M}"
    told = [made, words("past_seconds", seconds=take.seconds), words(f"mode_{take.mode}")]
    told.append(name(take.voice, words))
    return "".join(f"<span>{escape(one)}</span>" for one in told)


def _quoted(label: str, text: str, words: Words) -> str:
    return f'<p class="hint past-quote"><b>{escape(words(label))}</b> <bdi>{escape(text.strip())}</bdi></p>'


def _notices(take: PastTake) -> list[Notice]:
    kept = json.loads(take.notices)
    return [Notice(one["code"], one["message"], tuple((key, value) for key, value in one["values"])) for one in kept]
