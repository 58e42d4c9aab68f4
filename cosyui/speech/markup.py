"""Marks and mark-up in a user's text: the model's own marks stay, everything else of that kind goes, with a warning.

The model's marks (``[breath]``, ``<strong>``..``</strong>``, ``[AA1]``, ``[h][ǎo]``) come from the tokenizer's list.
Mark-up that is never spoken: SSML and HTML tags, Markdown, unknown ``[tags]``, kaomoji.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from collections.abc import Set as AbstractSet

from cosyui.model.added_tokens import ADDED_TOKENS
from cosyui.notice import Notice

ALL_MARKS: frozenset[str] = frozenset(token for token in ADDED_TOKENS if not token.startswith("<|"))
"""Every mark a text may contain."""

MARK_PATTERN = re.compile("|".join(re.escape(mark) for mark in sorted(ALL_MARKS, key=len, reverse=True)))

_TAG = re.compile(r"""</?[A-Za-z][\w:-]*(?:\s+[\w:-]+\s*=\s*(?:"[^"<>]*"|'[^'<>]*'))*\s*/?>""")
_BREAK_TAG = re.compile(r"(?i)</?(?:break|br|p|s|pause)\b")
_BRACKET_TAG = re.compile(r"\[[A-Za-z0-9_][A-Za-z0-9_ -]{0,30}\]")
_NUMBERED = re.compile(r"(?m)^\s*(\d{1,3})[.)]\s+(?=\S)")
_LINK = re.compile(r"!?\[([^\[\]\n]*)\]\([^()\s]*\)")
_FENCE = re.compile(r"(?m)^\s*(?:```|~~~).*$")
_RULE = re.compile(r"(?m)^\s*(?:[-*_=]\s*){3,}$")
_TABLE_RULE = re.compile(r"(?m)^\s*\|?\s*:?-{2,}:?\s*(?:\|\s*:?-{2,}:?\s*)*\|?\s*$")
_HEADING = re.compile(r"(?m)^\s*#{1,6}\s+(.*?)\s*#*\s*$")
_BULLET = re.compile(r"(?m)^\s*(?:[-*+•·▪]\s+|>\s*)+")
_EMPHASIS = re.compile(r"(\*{1,3}|~~|(?<!\w)_{1,3}(?=\S))(\S(?:[^\n*]*?\S)??)\1(?!\w)|(\*{2,3})")
_CODE = re.compile(r"`+([^`\n]*)`+")
_KAOMOJI = re.compile(r"[(（]([^()（）\n]{2,14})[)）](?:[^\W\d_a-zA-Z\u3040-\u30ff\u3400-\u9fff]{1,2}(?!\w))?")
_COMMON = re.compile(
    r"[\sA-Za-z0-9\u00c0-\u024f\u0400-\u04ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7a3，。！？、；：,.!?;:'\"“”‘’%/+&-]"
)
_FACE_SIGNS = re.compile(r"[\^_><=;*~・´`ω∀дTtoO0uU.•|\\/-]")
_WORD = re.compile(r"[^\W\d_]{2}|[0-9]")
_CONTROL = re.compile(r"(?:\s*<\|[^<>|]*\|>)+[\s.。,，]*")


def strip_prefix(text: str, prefix: str, *, only_if_marked: bool = False) -> str:
    """``text`` without the model's prompt prefix that a client may have put before it, and without its end marker.

    With ``only_if_marked`` the prefix goes only if a control token follows it; a text that is nothing but the prefix
    stays.
    """
    head = text.lstrip()
    if head.startswith(prefix):
        rest = head[len(prefix) :]
        marker = _CONTROL.match(rest)
        if marker:
            return rest[marker.end() :]
        return rest.lstrip() if rest.strip() and not only_if_marked else text
    marker = _CONTROL.match(head)
    return head[marker.end() :] if marker else text


def clean_markup(text: str, marks: AbstractSet[str] = ALL_MARKS) -> tuple[str, tuple[Notice, ...]]:
    """A sanitised text without mark-up, and warnings that say what was left out.

    Only the marks in ``marks`` stay; an opening mark without its closing one (or the reverse) is dropped.
    """
    removed: list[str] = []
    text = _strip_markdown(text)
    text = _map_between_marks(text, lambda piece: _strip_tags(piece, removed))
    text = _keep_known(text, marks, removed)
    text = _balance(text, removed)
    text = re.sub(r"[ \t]+", " ", text)
    if not removed:
        return text, ()
    names = ", ".join(dict.fromkeys(removed[:8]))
    sentence = "Left out, because they are no marks of this model or lack their partner: {marks}."
    return text, (Notice.of("marks_left_out", sentence, marks=names),)


def _map_between_marks(text: str, change: Callable[[str], str]) -> str:
    pieces: list[str] = []
    start = 0
    for match in MARK_PATTERN.finditer(text):
        pieces += [change(text[start : match.start()]), match.group()]
        start = match.end()
    return "".join([*pieces, change(text[start:])])


def _strip_markdown(text: str) -> str:
    """Headings, lists, tables, links, code and emphasis as plain lines; order matters: blocks first, then spans."""
    for pattern in (_FENCE, _TABLE_RULE, _RULE):
        text = pattern.sub("", text)
    text = _HEADING.sub(r"\1", text)
    text = _BULLET.sub("", text)
    text = _NUMBERED.sub(r"\1, ", text)
    text = _LINK.sub(r"\1", text)
    text = _CODE.sub(r"\1", text)
    text = _EMPHASIS.sub(lambda match: match.group(2) or "", text)
    lines = [_table_row(line) if line.strip().startswith("|") else line for line in text.split("\n")]
    return "\n".join(line.strip() for line in lines if line.strip())


def _table_row(line: str) -> str:
    cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
    return "，".join(cell for cell in cells if cell)


def _strip_tags(text: str, removed: list[str]) -> str:
    def tag(match: re.Match[str]) -> str:
        removed.append(match.group().split()[0].rstrip("/>") + ">")
        return ", " if _BREAK_TAG.match(match.group()) else ""

    def bracket(match: re.Match[str]) -> str:
        removed.append(match.group())
        return ""

    def face(match: re.Match[str]) -> str:
        return "" if _is_face(match.group(1)) else match.group()

    return _KAOMOJI.sub(face, _BRACKET_TAG.sub(bracket, _TAG.sub(tag, text)))


def _is_face(inner: str) -> bool:
    """Whether what stands in brackets is a drawn face and not words: signs or rare letters, no word, no number."""
    if _WORD.search(inner):
        return False
    rare = [char for char in inner if not _COMMON.match(char)]
    return len(rare) >= 2 or (len(_FACE_SIGNS.findall(inner)) == len(inner) and len(inner) >= 3)


def _keep_known(text: str, marks: AbstractSet[str], removed: list[str]) -> str:
    def known(match: re.Match[str]) -> str:
        if match.group() in marks:
            return match.group()
        removed.append(match.group())
        return ""

    return MARK_PATTERN.sub(known, text)


def _balance(text: str, removed: list[str]) -> str:
    """Drop each ``<x>`` or ``</x>`` mark that has no partner."""
    open_at: dict[str, re.Match[str]] = {}
    lonely: list[re.Match[str]] = []
    for match in MARK_PATTERN.finditer(text):
        mark = match.group()
        if mark.startswith("</"):
            if open_at.pop("<" + mark[2:], None) is None:
                lonely.append(match)
        elif mark.startswith("<"):
            if mark in open_at:
                lonely.append(match)
            else:
                open_at[mark] = match
    for match in sorted([*lonely, *open_at.values()], key=lambda match: match.start(), reverse=True):
        removed.append(match.group())
        text = text[: match.start()] + text[match.end() :]
    return text
