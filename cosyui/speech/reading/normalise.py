"""Written text to spoken text: numbers, dates, units and signs become words in the language around them.

Chinese is read by `rules_zh`, English by `rules_en`; other languages are left as they are written. The language is
found for each stretch of text: an English clause within a Chinese sentence reads its numbers in English, single English
words in a Chinese sentence do not.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from cosyui.speech.reading import rules_en, rules_zh
from cosyui.speech.reading.rules_en_words import MONTH_OF
from cosyui.speech.text.language import detect_language, language_spans
from cosyui.speech.text.markup import join, map_between_marks

_CLOSERS = "\"'”’」』)）】》"
_PASSES = 3
"""One is enough for written language; among signs without sense, one sign gone may leave something to be read."""
_ENDS = "。！？；…!?;."
_LEADING = re.compile(r"^[\s，。！？；、：,.!?;:)）」』】》”’]+")
_HAN = re.compile(r"[\u3400-\u9fff\U00020000-\U0003ffff]")
_LATIN = re.compile(r"[A-Za-z]")

# A clause of English: at least three Latin words of which two are ordinary ones, not names such as iPhone 15 Pro Max.
_ENGLISH_RUN = re.compile(r"[A-Za-z0-9$£€#@\"'(“‘][\x20-\x7e‘’“”–—…°€£½]*")
_WORD = re.compile(r"(?<![A-Za-z0-9])(?:[A-Za-z]{2,}|[aI])(?![A-Za-z0-9])")
_ORDINARY = re.compile(r"(?<![A-Za-z0-9])[a-z]{2,}(?![A-Za-z0-9])")
_TRAILING_NUMBER = re.compile(r"[ \"'(]?[$#]?[0-9][0-9.,:/ -]*$")
_MONTH = "|".join(MONTH_OF)
_DAY = r"[0-9]{1,2}(?:st|nd|rd|th)?"
_DATE = re.compile(
    rf"(?<![A-Za-z0-9])(?:(?:{_MONTH})\.? {_DAY}(?:,? [12][0-9]{{3}})?|"
    rf"{_DAY}(?: of)? (?:{_MONTH})(?:,? [12][0-9]{{3}})?|"
    rf"(?:{_MONTH}),? [12][0-9]{{3}}|[0-9]{{1,4}}(?:st|nd|rd|th))(?![0-9A-Za-z])"
)
_NO_BLANK = re.compile(r"(?<=[\u2e80-\u9fff\uff00-\uffef]) +| +(?=[\u2e80-\u9fff\uff00-\uffef])")


def normalise(text: str, language: str | None = None) -> str:
    """The spoken form of a sanitised text, on one line; each line of the input ends with a sentence mark.

    ``language`` (``zh``, ``en``, ...) is that of the whole text, default by script; digits follow their stretch and,
    where that has no letters, the text. Marks of the model are kept as they are. Never raises for any text; applying
    it twice gives the same as once.
    """
    base = language or detect_language(text) or "zh"
    for _ in range(_PASSES):
        before, text = text, _pass(text, base)
        if text == before:
            break
    return text


def _pass(text: str, base: str) -> str:
    lines = [_line(re.sub(r"\s+", " ", line).strip(), base) for line in text.split("\n")]
    return join([line for line in lines if line])


def _line(line: str, base: str) -> str:
    stretches = language_spans(line, base, base)
    spoken = "".join(_READERS[language](text) if language in _READERS else text for text, language in stretches)
    text = _LEADING.sub("", spoken)
    return _end_mark(_NO_BLANK.sub("", text).strip() if base in _READERS else text, base)


def _padded(text: str, read: Callable[[str], str]) -> str:
    """The reading of ``text`` with a blank at either end where ``text`` has one."""
    core = text.strip(" ")
    if not core:
        return text[:1]
    return " " * (text[0] == " ") + read(core) + " " * (text[-1] == " ")


def _english(text: str) -> str:
    return map_between_marks(text, lambda part: _padded(part, rules_en.read))


def _chinese(text: str) -> str:
    return map_between_marks(text, lambda part: _padded(part, _mixed))


def _mixed(text: str) -> str:
    """Chinese with English words; a clause or a date of English in it is read as English."""
    text = rules_zh.prepare(text)
    pieces: list[str] = []
    start = 0
    for first, last in _english_parts(text):
        pieces += [_padded(text[start:first], rules_zh.read), _padded(text[first:last], rules_en.read)]
        start = last
    pieces.append(_padded(text[start:], rules_zh.read))
    return rules_zh.finish("".join(pieces))


def _english_parts(text: str) -> Iterator[tuple[int, int]]:
    """Where in a Chinese text English is spoken: clauses of several ordinary words, and dates of that form."""
    for match in _ENGLISH_RUN.finditer(text):
        run = match.group()
        if _HAN.match(text, match.end()):
            run = _TRAILING_NUMBER.sub("", run)
        if len(_WORD.findall(run)) >= 3 and len(_ORDINARY.findall(run)) >= 2:
            yield match.start(), match.start() + len(run)
        else:
            for date in _DATE.finditer(text, match.start(), match.end()):
                yield date.span()


_READERS: dict[str, Callable[[str], str]] = {"zh": _chinese, "en": _english}


def _end_mark(text: str, base: str) -> str:
    """``text`` with a sentence mark at its end; trailing commas and the like give way to it."""
    core = text.rstrip()
    if not core or core.rstrip(_CLOSERS)[-1:] in _ENDS:
        return core
    trimmed = core.rstrip("，,、：:—-~ ")
    if not trimmed:
        return ""
    wide = not trimmed.isascii() and bool(_HAN.search(trimmed) or base in ("zh", "ja"))
    return trimmed + ("。" if wide or (base == "zh" and not _LATIN.search(trimmed)) else ".")
