"""Markdown, as language models write it, to plain lines: what is a heading, what a blank line, what only form."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from enum import Enum

from cosyui.speech.text.markup import ALL_MARKS

Kind = Enum("Kind", ["TEXT", "HEADING", "GAP"])

_FENCE = re.compile(r"\s*(?:`{3,}|~{3,})\s*([\w+#.-]{0,30})[^`]{0,200}")
_PROSE_FENCES = frozenset(("", "text", "txt", "plain", "plaintext", "markdown", "md", "quote", "poem"))
_CODE_SIGNS = re.compile(r"[={}\[\]<>$\\]|\(\)|;\s*$|^\s*(?:import|from|def|class|return|const|let|var|#include|//)\b")
_RULE = re.compile(r"[-*_=~─━═—·• ]{3,}")
_TABLE_RULE = re.compile(r"\|?\s*:?-{2,}:?\s*(?:\|\s*:?-{2,}:?\s*)*\|?")
_HEADING = re.compile(r"(?:#{1,6}\s+|#{2,6}(?=[^\s#]))(.*)")
_UNDERLINE = re.compile("=+|-{2,}")
_ITEM = re.compile(r"(?:[-*+•·‣⁃∙▪–—]\s+|[•‣⁃▪]|>\s*)+")
_CHECKBOX = re.compile(r"\[[ xX]\]\s+")
_NUMBERED = re.compile(r"(\d{1,3})(?:[.)]\s+(?=\S)|[.)](?=[\u3400-\u9fff]))")
_DEFINITION = re.compile(r"""\[([^\[\]^]{1,60})\]:\s*<?(?:[a-z]+:|www\.|[/#.])\S*(?:\s+["'(].*)?""")
_NOTE = re.compile(r"\[\^[^\[\]\s]{1,40}\]:?\s*")

_TARGET = r"\(\s*(<?[^\s()<>]{0,500}(?:\([^\s()<>]{0,200}\)[^\s()<>]{0,200})?>?)(?:\s+[\"'][^\n()]{0,200}[\"'])?\s*\)"
_LINK = re.compile(rf"!?\[([^\[\]\n]{{0,300}})\](?:{_TARGET}|\[([^\[\]\n]{{0,60}})\])")
_AUTOLINK = re.compile(r"<((?:https?://|mailto:)[^\s<>]{1,500}|[^\s<>@]{1,64}@[^\s<>@]{1,200})>")
_ESCAPE = re.compile(r"\\(?:[*_#`~|]|([\[\]()>!+.-]))")
_POWER = re.compile(r"(?<=\d)\*\*(?=\d)")
_STARS = re.compile(r"\*{2,}|~~+(?!\d)|`+")
_EMPHASIS = re.compile(
    r"(?<![A-Za-z0-9*])\*(?=[^\s*])([^*\n]{1,200})(?<=[^\s*])\*(?![A-Za-z0-9*])"
    r"|(?<![A-Za-z0-9_])_{1,3}(?=[^\s_])([^_\n]{1,200})(?<=[^\s_])_{1,3}(?![A-Za-z0-9_])"
    r"|==(?=[^\s=])([^=\n]{1,200})(?<=[^\s=])=="
)
_HAS_HAN = re.compile(r"[\u3400-\u9fff]")


@dataclass(frozen=True)
class Line:
    """One line of plain text; a GAP is a blank line or a rule and has none."""

    kind: Kind
    text: str = ""


def plain_lines(text: str) -> tuple[list[Line], int]:
    """The lines of a sanitised text without Markdown, and how many lines of program code were left out."""
    rows = [row.strip() for row in text.split("\n")]
    targets = frozenset(found.group(1).lower() for row in rows if (found := _DEFINITION.fullmatch(row)))
    closing = _closing_fences(rows)
    lines: list[Line] = []
    dropped = position = 0
    while position < len(rows):
        row = rows[position]
        fence = _FENCE.fullmatch(row)
        ends = closing[row[0]] if fence else []
        at = bisect_right(ends, position)
        if fence and at < len(ends):  # an opening fence that is never closed goes alone, what follows it is prose
            end = ends[at]
            block = rows[position + 1 : end]
            is_code = _is_code(fence.group(1).lower(), block)
            dropped += len(block) if is_code else 0
            lines += [Line(Kind.GAP)] if is_code else [_line(inner, targets) for inner in block]
            position = end
        elif _is_underline(row, lines):
            lines[-1] = Line(Kind.HEADING, lines[-1].text)
        elif not fence:
            lines.append(_line(row, targets))
        position += 1
    return lines, dropped


def _closing_fences(rows: list[str]) -> dict[str, list[int]]:
    """Where rows of nothing but three or more of one sign are, by sign."""
    found: dict[str, list[int]] = {"`": [], "~": []}
    for index, row in enumerate(rows):
        if row[:3] in ("```", "~~~") and not row.strip(row[0]):
            found[row[0]].append(index)
    return found


def _is_code(language: str, block: list[str]) -> bool:
    if language not in _PROSE_FENCES:
        return True
    return sum(bool(_CODE_SIGNS.search(row)) for row in block) * 2 > len(block)


def _is_underline(row: str, lines: list[Line]) -> bool:
    """Whether a row of ``=`` or ``-`` makes the line before it a heading: a short one that stands alone."""
    if not _UNDERLINE.fullmatch(row) or not lines or lines[-1].kind is not Kind.TEXT:
        return False
    above = lines[-1].text
    alone = len(lines) == 1 or lines[-2].kind is Kind.GAP
    return alone and 0 < len(above) <= 60 and above[-1] not in "。！？；，：.!?;,:"


def _line(row: str, targets: AbstractSet[str]) -> Line:
    """``row`` without its marks; ``targets`` are the names that the text gives to addresses of links."""
    if _DEFINITION.fullmatch(row) or (_TABLE_RULE.fullmatch(row) and "|" in row):
        return Line(Kind.TEXT)
    if not row or _RULE.fullmatch(row):
        return Line(Kind.GAP)
    heading = _HEADING.fullmatch(row)
    item = _ITEM.match(row)
    if heading:
        row = heading.group(1).rstrip("#")
    elif item:
        row = _CHECKBOX.sub("", row[item.end() :], count=1)
    if numbered := _NUMBERED.match(row):
        row = f"{numbered.group(1)}, {row[numbered.end() :]}"
    return Line(Kind.HEADING if heading else Kind.TEXT, _cells(_spans(row, targets)))


def _cells(row: str) -> str:
    """A row of a table, or words set apart by bars, with commas."""
    if not row.startswith("|") and " | " not in row:
        return row
    comma = "，" if _HAS_HAN.search(row) else ", "
    return comma.join(cell for part in re.split(r"\|", row) if (cell := part.strip()))


def _spans(text: str, targets: AbstractSet[str]) -> str:
    """Links, images, code and emphasis within a line as the words in them."""

    def link(match: re.Match[str]) -> str:
        words, address, name = match.groups()
        if address is None:
            is_link = (name or words).lower() in targets
        else:
            # [注](见下文) is a remark in brackets, and a mark of the model is never the text of a link.
            is_link = (address.isascii() or "/" in address) and f"[{words}]" not in ALL_MARKS
        return words if is_link else match.group()

    text = _NOTE.sub("", _LINK.sub(link, text))
    text = _AUTOLINK.sub(lambda match: match.group(1).removeprefix("mailto:"), text)
    text = _STARS.sub("", _POWER.sub("^", _ESCAPE.sub(lambda match: match.group(1) or "", text)))
    return _EMPHASIS.sub(lambda match: next(filter(None, match.groups())), text).strip()
