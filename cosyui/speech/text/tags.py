"""SSML and HTML tags: those that stand for a pause, a line or a heading become one, every other one goes.

A pause is written into the text as one private-use character, which no text from outside can hold after `sanitise`.
"""

from __future__ import annotations

import re

MAX_PAUSE = 10.0
"""Seconds; a longer ``<break>`` is shortened to this."""

_PAUSE_BASE = 0xF0000
PAUSE = re.compile(f"[{chr(_PAUSE_BASE)}-{chr(_PAUSE_BASE + round(MAX_PAUSE * 1000))}]")
"""Matches the character of one pause."""

_STRENGTHS = {"none": 0.0, "x-weak": 0.1, "weak": 0.2, "medium": 0.4, "strong": 0.7, "x-strong": 1.0}
_DEFAULT_PAUSE = 0.4

_SSML = "speak break prosody emphasis voice phoneme say-as sub audio mark lang lexicon metadata desc p s"
_HTML = ("html head body title div span br hr p b i u em small big font center a img ul ol li dl dt dd table thead "
         "tbody tr td th h1 h2 h3 h4 h5 h6 blockquote q pre code kbd samp var cite del ins sup sub section article "
         "header footer nav main aside figure figcaption details summary label button form input textarea select "
         "option iframe video source")  # fmt: skip
_NAMES = "|".join(sorted((name for name in {*_SSML.split(), *_HTML.split()} if len(name) > 1), key=len, reverse=True))
_ATTRIBUTES = r"""(?:\s+[\w:.-]{1,40}(?:\s*=\s*(?:"[^"<>]{0,300}"|'[^'<>]{0,300}'|[^\s"'<>]{1,300})))"""
# A known name may carry anything; one letter or another word needs to look like a tag in full (a <b and c> d does not).
_TAG = re.compile(
    rf"<(?P<close>/?)(?P<name>(?:{_NAMES})(?=[\s/>])|[A-Za-z][\w:.-]{{0,40}}(?={_ATTRIBUTES}{{0,20}}\s*/?>))"
    r"(?P<rest>[^<>]{0,2000})>"
    rf"|<(?P<open_name>speak|break|prosody|voice|emphasis|say-as|phoneme)(?P<open_rest>{_ATTRIBUTES}{{1,20}})\s*/?",
    re.IGNORECASE,
)
_SUBSTITUTE = re.compile(r"""(?i)<sub\s+alias\s*=\s*["']([^"'<>]{0,200})["']\s*>[^<>]{0,200}</sub\s*>""")
_KEPT = frozenset(("strong", "laughter"))  # the model's own marks look like tags
_PARAGRAPHS = frozenset(
    str.split("p div table ul ol dl blockquote pre section article header footer main aside figure hr speak")
)
_LINES = frozenset(str.split("s br li dt dd tr h1 h2 h3 h4 h5 h6 title figcaption summary option"))
_CELLS = frozenset(("td", "th"))
# Formatting that has no sound of its own: nobody misses it.
_SILENT = frozenset(
    str.split("html head body span b i u em small big font center a thead tbody q code kbd samp var cite label")
)
_HEADING = re.compile("(?i)h([1-6])|title")
_UNSEEN = (
    (re.compile("<!--"), re.compile("-->")),
    (re.compile(r"<!\[CDATA\["), re.compile(r"\]\]>")),
    (re.compile(r"<[!?][A-Za-z]"), re.compile(">")),
    (re.compile(r"(?i)<script\b[^<>]{0,500}>"), re.compile(r"(?i)</script\s*>")),
    (re.compile(r"(?i)<style\b[^<>]{0,500}>"), re.compile(r"(?i)</style\s*>")),
)  # fmt: skip


def pause_of(char: str) -> float:
    """Seconds that a character matched by `PAUSE` stands for."""
    return (ord(char) - _PAUSE_BASE) / 1000


def strip_tags(text: str, removed: list[str]) -> str:
    """A sanitised text without tags; the names of those that had a meaning which is lost are added to ``removed``."""
    if "<" not in text:
        return text
    for opening, closing in _UNSEEN:
        text = _drop_between(text, opening, closing, keep="CDATA" in opening.pattern)
    text = _SUBSTITUTE.sub(r"\1", text)
    return _TAG.sub(lambda match: _replacement(match, removed), text)


def _replacement(match: re.Match[str], removed: list[str]) -> str:
    name = (match["name"] or match["open_name"]).lower()
    rest = match["rest"] or match["open_rest"] or ""
    closing = bool(match["close"])
    if name in _KEPT and not rest.strip():
        return match.group().lower()
    if name == "break":
        return "" if closing else chr(_PAUSE_BASE + round(_seconds(rest) * 1000))
    if _HEADING.fullmatch(name):
        return "\n\n" if closing else "\n\n# "
    if name in _PARAGRAPHS:
        return "\n\n"
    if name in _LINES:
        return "\n"
    if name in _CELLS:
        return ", " if closing else ""
    if name not in _SILENT:
        removed.append(f"<{match['close'] or ''}{name}>")
    return " " if rest.rstrip().endswith("/") else ""


def _seconds(attributes: str) -> float:
    """The length that a ``<break>`` asks for by ``time`` or ``strength``, at most `MAX_PAUSE`."""
    time = re.search(r"""(?i)\btime\s*=\s*["']?\s*\+?(\d{1,9}(?:\.\d{1,9})?|\.\d{1,9})\s*(ms|s)\b""", attributes)
    if time:
        return min(MAX_PAUSE, float(time.group(1)) / (1000 if time.group(2).lower() == "ms" else 1))
    strength = re.search(r"""(?i)\bstrength\s*=\s*["']?\s*([a-z-]{1,10})""", attributes)
    return _STRENGTHS.get(strength.group(1).lower(), _DEFAULT_PAUSE) if strength else _DEFAULT_PAUSE


def _drop_between(text: str, opening: re.Pattern[str], closing: re.Pattern[str], *, keep: bool) -> str:
    """``text`` without what lies between ``opening`` and ``closing`` (or, with ``keep``, without these two alone)."""
    pieces: list[str] = []
    start = 0
    while found := opening.search(text, start):
        end = closing.search(text, found.end())
        if end is None:
            break
        pieces += [text[start : found.start()], text[found.end() : end.start()] if keep else " "]
        start = end.end()
    return "".join([*pieces, text[start:]])
