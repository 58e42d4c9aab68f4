"""Written text to spoken text: numbers, dates, units and signs become words in the language of their sentence.

wetext does most of it. Before it, our own rules (`rules_zh`, `rules_en`) take what it is known to read wrongly: phone
numbers, scores, ranges, versions, addresses, money; protected spans (addresses, names with digits such as ``A4`` or
``iOS17``, the model's own marks) never reach it. Other languages than Chinese and English are left as written.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

from cosyui.speech import rules_en, rules_zh
from cosyui.speech.markup import MARK_PATTERN
from cosyui.speech.sanitise import detect_language

_CLOSERS = "\"'”’」』）)】》"
# An ASCII mark ends a sentence only before a blank, the end or a non-ASCII character: addresses stay whole.
_SENTENCE = re.compile(rf"(?:[。！？；;…]|[.!?]+(?=[{_CLOSERS}]*(?:\s|$|[^\x00-\x7f])))[{_CLOSERS}]*\s*")
_ENDS = "。！？；…!?;."
_LEADING = re.compile(r"^[\s，。！？；、：,.!?;:)）」』】》”’]+")
_HAS_HAN = re.compile(r"[\u3400-\u9fff\U00020000-\U0003ffff]")
_HAS_LATIN = re.compile(r"[A-Za-z]")
_NEEDS_WETEXT = {
    "zh": re.compile(r"[0-9①-⑳½¼¾℃℉°%‰]"),
    "en": re.compile(r"[0-9$€£%&@=+]|\b[A-Z][a-z]{0,3}\.|[ap]\.m\."),
}


def normalise(text: str, language: str | None = None) -> str:
    """The spoken form of a sanitised text, on one line; each line of the input ends with a sentence mark.

    ``language`` (``zh``, ``en``, ...) is that of the whole text, default by script; digits follow their sentence and,
    where that has no letters, the text. Marks of the model are kept as they are. Never raises for any text.
    """
    base = language or detect_language(text) or "zh"
    lines = [_line(line.strip(), base) for line in text.split("\n")]
    return _join([line for line in lines if line])


def _join(lines: list[str]) -> str:
    """Lines on one line, with a blank where both neighbours are of a script that writes blanks."""
    result = ""
    for line in lines:
        gap = " " if result and result[-1].isascii() and line[0].isascii() else ""
        result += gap + line
    return result


def _line(line: str, base: str) -> str:
    spoken: list[str] = []
    for sentence in _sentences(line):
        language = _sentence_language(sentence, base)
        words = _sentence(sentence, language)
        if words and spoken and not spoken[-1][-1:].isspace() and words[0].isascii() and spoken[-1][-1:] in ".!?;":
            words = " " + words
        spoken.append(words)
    text = "".join(spoken).strip()
    return _end_mark(text, base)


def _sentences(line: str) -> list[str]:
    pieces: list[str] = []
    start = 0
    for match in _SENTENCE.finditer(line):
        pieces.append(line[start : match.end()])
        start = match.end()
    if start < len(line):
        pieces.append(line[start:])
    return pieces


def _sentence_language(sentence: str, base: str) -> str:
    if base not in ("zh", "en"):
        return base
    if _HAS_HAN.search(sentence):
        return "zh"
    return "en" if _HAS_LATIN.search(MARK_PATTERN.sub("", sentence)) else base


def _end_mark(text: str, base: str) -> str:
    """``text`` with a sentence mark at its end; trailing commas and the like give way to it."""
    core = text.rstrip()
    if not core or core.rstrip(_CLOSERS)[-1:] in _ENDS:
        return core
    trimmed = core.rstrip("，,、：:—-~ ")
    if not trimmed:
        return ""
    wide = not trimmed.isascii() and bool(_HAS_HAN.search(trimmed) or base in ("zh", "ja"))
    return trimmed + ("。" if wide or (base == "zh" and not _HAS_LATIN.search(trimmed)) else ".")


def _sentence(text: str, language: str) -> str:
    if language not in ("zh", "en"):
        return re.sub(r"\s+", " ", text)
    pieces: list[str] = []
    start = 0
    for match in MARK_PATTERN.finditer(text):
        pieces += [_speak(text[start : match.start()], language), match.group()]
        start = match.end()
    pieces.append(_speak(text[start:], language))
    joined = _LEADING.sub("", "".join(pieces))
    return rules_zh.blanks(joined) if language == "zh" else re.sub(r"\s+", " ", joined)


def _speak(text: str, language: str) -> str:
    """One stretch without marks: our rules, then wetext on what they do not protect, then the signs still left."""
    if not text.strip():
        return text
    rules: Any = rules_zh if language == "zh" else rules_en
    prepared: str = rules.prepare(text)
    pieces: list[str] = []
    start = 0
    for match in rules.PROTECTED.finditer(prepared):
        if rules.is_plain(match.group()):
            continue
        pieces += [_wetext(prepared[start : match.start()], language), rules.protected(match.group())]
        start = match.end()
    pieces.append(_wetext(prepared[start:], language))
    finished: str = rules.finish("".join(pieces))
    return finished


def _wetext(text: str, language: str) -> str:
    """wetext on one stretch, keeping the blanks around it, which it would strip."""
    core = text.strip()
    if not core or not _NEEDS_WETEXT[language].search(core):
        return text
    lead = text[: len(text) - len(text.lstrip())]
    tail = text[len(text.rstrip()) :]
    spoken = _run_wetext(core, language)
    if spoken is None:
        # Its grammars have no path for some neighbours (0À): then each number is read for itself.
        spoken = re.sub(r"[0-9]+", lambda run: _run_wetext(run.group(), language) or " ".join(run.group()), core)
    return f"{lead}{spoken}{tail}"


def _run_wetext(text: str, language: str) -> str | None:
    """wetext's reading, None where its grammar has none."""
    try:
        return str(_normaliser(language).normalize(text)).replace('\\"', '"')
    except (AssertionError, IndexError, RuntimeError):
        return None


@lru_cache(maxsize=2)
def _normaliser(language: str) -> Any:
    import wetext

    return wetext.Normalizer(lang=language, operator="tn", remove_erhua=False)
