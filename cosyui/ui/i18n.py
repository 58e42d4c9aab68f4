"""Which language a person reads, and the words in it.

Labels of components are translated in the browser (`gr.I18n`); fixed HTML carries both languages and the style sheet
shows one; what the server says while it works is chosen by the language of the request. All three agree: a choice made
on the page (the cookie ``cosyui_lang``) comes first, then the browser's own first language.
"""

from __future__ import annotations

import html
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import gradio as gr

from cosyui.errors import CosyuiError
from cosyui.notice import Notice
from cosyui.settings import Settings
from cosyui.speech.clip.decode import formats
from cosyui.speech.clip.mix import DECODE_SECONDS
from cosyui.ui import presets
from cosyui.ui.locales import en, zh

Language = Literal["en", "zh"]
COOKIE = "cosyui_lang"
PAGE: Mapping[Language, Mapping[str, str]] = {"en": en.PAGE, "zh": zh.PAGE}
_LIVE: Mapping[Language, Mapping[str, str]] = {
    "en": en.PAGE | en.LIVE | en.OPS,
    "zh": zh.PAGE | zh.LIVE | zh.OPS,
}
_ERRORS: Mapping[Language, Mapping[str, str]] = {"en": en.ERRORS, "zh": zh.ERRORS}
_NOTICES: Mapping[Language, Mapping[str, str]] = {"en": {}, "zh": zh.NOTICES}


def translations() -> gr.I18n:
    """The label tables, under the three locale names that the page's script ever sets."""
    english, chinese = en.PAGE | presets.labels("en"), zh.PAGE | presets.labels("zh")
    return gr.I18n(**{"en": english, "zh-CN": chinese, "zh-TW": chinese})


def language_of(cookies: Mapping[str, str], accept_language: str) -> Language:
    """The language of a request: the cookie's, else Chinese if the first accepted language is, else English."""
    chosen = cookies.get(COOKIE)
    if chosen == "en":
        return "en"
    if chosen == "zh":
        return "zh"
    return "zh" if accept_language.strip().lower().startswith("zh") else "en"


def both(key: str, **values: object) -> str:
    """HTML of a fixed text in both languages; the style sheet hides the one that is not wanted."""
    spans = (
        f'<span class="t-{name}" lang="{name}">{html.escape(PAGE[name][key].format(**values))}</span>' for name in PAGE
    )
    return "".join(spans)


@dataclass(frozen=True)
class Words:
    """The server's words in one language; ``limits`` fill the placeholders of error sentences."""

    language: Language
    limits: Mapping[str, Any]

    def __call__(self, key: str, **values: object) -> str:
        """The text at ``key``; KeyError for one that is not in the tables."""
        return _LIVE[self.language][key].format(**values)

    def error(self, problem: CosyuiError) -> str:
        """The sentence for a problem, plain text; English when its code has no translation."""
        sentence = _ERRORS[self.language].get(problem.code)
        return problem.message if sentence is None else sentence.format(message=problem.message, **self.limits)

    def notice(self, notice: Notice) -> str:
        """The sentence of a remark, plain text; English when its code has no translation."""
        sentence = _NOTICES[self.language].get(notice.code)
        return notice.message if sentence is None else sentence.format(**dict(notice.values))


class Dictionary:
    """Finds the `Words` of a request."""

    def __init__(self, settings: Settings) -> None:
        limits = {
            "longest_text": settings.longest_text,
            "max_transcript_chars": settings.max_transcript_chars,
            "max_instruction_chars": settings.max_instruction_chars,
            "clip_min": settings.clip_min_seconds,
            "clip_max": settings.clip_max_seconds,
            "clip_mb": settings.clip_max_bytes / (1 << 20),
            "clip_decode": DECODE_SECONDS,
            "formats": formats(),
            "batch_lines": settings.batch_lines,
        }
        self._words = {name: Words(name, limits) for name in PAGE}

    def of(self, request: gr.Request) -> Words:
        """By cookie, then by Accept-Language."""
        return self._words[language_of(request.cookies, request.headers.get("accept-language", ""))]
