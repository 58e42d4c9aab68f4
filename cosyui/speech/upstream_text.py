"""The text rules of the reference implementation, faults included. For parity checks only: synthesis uses `text.py`.

Kept as they are: a text of blanks raises IndexError, line breaks glue words together, `.` in a number ends a sentence,
an English comma in a number splits it, commas never split, and a text with `<|` and `|>` is left alone altogether.
Needs inflect, and wetext unless a call says otherwise; both are imported when first used.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from functools import lru_cache
from itertools import groupby
from typing import Any

Spell = Callable[[str], str]

_MARKS_ZH = frozenset("。？！；：、.?!;")
_MARKS_EN = frozenset(".?!;:")
_QUOTES = frozenset('"”')
_CORNER = {"²": "平方", "³": "立方"}
_BRACKETS = str.maketrans({"（": "", "）": "", "【": "", "】": "", "`": ""})


@lru_cache(maxsize=1)
def _inflect() -> Any:
    import inflect

    return inflect.engine()


@lru_cache(maxsize=1)
def _wetext() -> Any:
    import wetext

    return wetext.Normalizer(remove_erhua=False)


def contains_chinese(text: str) -> bool:
    """Whether any character lies in U+4E00 .. U+9FFF."""
    return any("\u4e00" <= char <= "\u9fff" for char in text)


def is_only_punctuation(text: str) -> bool:
    """Whether every character is Unicode punctuation or a symbol (also true of the empty text)."""
    return all(unicodedata.category(char)[0] in "PS" for char in text)


def spell_out_number(text: str) -> str:
    """Each maximal run of digits as English words; anything between digits (comma, point) is left as it is."""
    pieces = []
    for is_digit, run in groupby(text, key=str.isdigit):
        piece = "".join(run)
        pieces.append(str(_inflect().number_to_words(piece)) if is_digit else piece)
    return "".join(pieces)


def replace_blank(text: str) -> str:
    """Drop each space that has not an ASCII non-space character on both sides. IndexError for a space at the end.

    A space at the start looks at the last character, as Python's index -1 does.
    """
    kept = []
    for index, char in enumerate(text):
        if char == " ":
            after, before = text[index + 1], text[index - 1]
            if not (after.isascii() and after != " " and before.isascii() and before != " "):
                continue
        kept.append(char)
    return "".join(kept)


def remove_bracket(text: str) -> str:
    """Drop full-width round and square brackets and backticks; a double dash becomes a space."""
    return text.translate(_BRACKETS).replace("——", " ")


def replace_corner_mark(text: str) -> str:
    """Superscript two and three as Chinese words."""
    for mark, word in _CORNER.items():
        text = text.replace(mark, word)
    return text


def wetext_normalise(text: str) -> str:
    """wetext as the reference calls it: the language is guessed from the text, erhua is kept."""
    return str(_wetext().normalize(text))


def split_paragraph(
    text: str,
    count: Callable[[str], int],
    language: str = "zh",
    *,
    max_n: int = 80,
    min_n: int = 60,
    merge_len: int = 20,
    comma_split: bool = False,
) -> list[str]:
    """The reference's splitter. Length is characters for ``zh``, ``count`` (tokens) otherwise.

    Raises IndexError for an empty text, and for a text that begins with a mark and a quote.
    """
    length = len if language == "zh" else count
    marks = set(_MARKS_ZH if language == "zh" else _MARKS_EN)
    if comma_split:
        marks |= {"，", ","}
    if text[-1] not in marks:
        text += "。" if language == "zh" else "."
    sentences = _cut(text, marks)
    pieces: list[str] = []
    current = ""
    for sentence in sentences:
        if length(current + sentence) > max_n and length(current) > min_n:
            pieces.append(current)
            current = ""
        current += sentence
    if current:
        if length(current) < merge_len and pieces:
            pieces[-1] += current
        else:
            pieces.append(current)
    return pieces


def _cut(text: str, marks: set[str]) -> list[str]:
    """Sentences with their marks; a mark that follows a mark directly is dropped, a quote joins the sentence before."""
    sentences: list[str] = []
    start = 0
    for index, char in enumerate(text):
        if char not in marks:
            continue
        if index > start:
            sentences.append(text[start : index + 1])
        start = index + 1
        if start < len(text) and text[start] in _QUOTES:
            sentences[-1] += text[start]
            start += 1
    return sentences


def text_normalize(
    text: str, count: Callable[[str], int], *, split: bool = True, frontend: bool = True, wetext: bool = True
) -> str | list[str]:
    """The reference's text frontend: segments, or with ``split`` False the whole normalised text.

    Raises IndexError for a text of blanks, as the reference does.
    """
    if ("<|" in text and "|>" in text) or not frontend or not text:
        return [text] if split else text
    text = text.strip()
    chinese = contains_chinese(text)
    if wetext:
        text = wetext_normalise(text)
    text = _after_chinese(text) if chinese else spell_out_number(text)
    pieces = split_paragraph(text, count, "zh" if chinese else "en")
    return [piece for piece in pieces if not is_only_punctuation(piece)] if split else text


def _after_chinese(text: str) -> str:
    text = replace_blank(text.replace("\n", ""))
    text = replace_corner_mark(text).replace(".", "。").replace(" - ", "，")
    text = remove_bracket(text)
    trailing = text.rstrip("，,、")
    return trailing + "。" if trailing != text else text
