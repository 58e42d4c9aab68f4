"""Reading rules for English sentences: the order of the kinds, arithmetic, the numbers that are left, and signs."""

from __future__ import annotations

import re

from cosyui.speech.reading.numbers_en import cardinal, digits, ordinal
from cosyui.speech.reading.rules import (
    CIRCLED,
    CIRCLED_CLASS,
    FILE,
    LONG_URL,
    MAIL,
    START,
    URL,
    Rule,
    apply,
    fold,
    lower_titles,
    table,
)  # fmt: skip
from cosyui.speech.reading.rules_en_amounts import FRACTIONS, MONEY, PERCENT, RANGES, UNIT_RULES, N, spoken
from cosyui.speech.reading.rules_en_codes import CODES, NAMES
from cosyui.speech.reading.rules_en_math import FORMULAS, MATH
from cosyui.speech.reading.rules_en_times import CLOCKS, DATES, YEARS
from cosyui.speech.reading.rules_en_words import ABBREVIATIONS, ROMANS

_ADDRESS_SIGNS = {
    ".": "dot", "/": "slash", "\\": "backslash", "?": "question mark", "=": "equals", "&": "and", "@": "at",
    "-": "dash", "_": "underscore", ":": "colon", "#": "hash", "%": "percent", "~": "tilde", "+": "plus",
    "!": "exclamation mark", "$": "dollar", "*": "star", ";": "semicolon",
}  # fmt: skip


def _address(match: re.Match[str]) -> str:
    """An address as it is read out; a long link is only named."""
    text = re.sub(r"^(?:https?|ftp)://", "", match[0])
    if len(text) > LONG_URL and "@" not in text:
        return "the link"
    text = text.rstrip("/") if "://" in match[0] else text
    words = "".join(f" {_ADDRESS_SIGNS[char]} " if char in _ADDRESS_SIGNS else char for char in text)
    return re.sub(" +", " ", re.sub("[0-9]+", lambda run: f" {digits(run[0])} ", words)).strip()


_ADDRESSES: tuple[Rule, ...] = ((MAIL, _address), (URL, _address), (FILE, _address))
_PREPARED = table(
    (r"(?<![0-9A-Za-z.])\.(?=[0-9])", "0."),
    (r"(?<![0-9A-Za-z])1-([0-9]{3})-(?=[A-Z]{4})", lambda m: f"one, {digits(m[1])}, "),
    (r"(?<![0-9A-Za-z.])(100|1000)s\b", lambda m: {"100": "hundreds", "1000": "thousands"}[m[1]]),
    (rf"(^|[.:;!?,]) ?({CIRCLED_CLASS}) ?(?=[A-Za-z])", lambda m: f"{m[1]} {CIRCLED[m[2]]}, "),
    (rf"({CIRCLED_CLASS})(?={CIRCLED_CLASS}|[0-9])", lambda m: f"{CIRCLED[m[1]]}, "),
    (CIRCLED_CLASS, lambda m: CIRCLED[m[0]]),
    (r"№ ?(?=[0-9])|(?<![A-Za-z])N[Oo]\. ?#?(?=[0-9])", "number "),
    (r"(?<![A-Za-z0-9&])# ?(?=[0-9]{1,9}(?![0-9A-Za-z]))", "number "),
    (r"(?<![A-Za-z0-9.])\.(?=[A-Z]{2})", "dot "),
    (r"#([A-Za-z0-9]\w*)", lambda m: "hashtag " + re.sub("(?<=[a-z0-9])(?=[A-Z])", " ", m[1])),
    (r"(?<![A-Za-z0-9])([A-G])#(?![A-Za-z0-9])", r"\1 sharp"),
    (r"@(?=\w)", " at "),
    (r"(?<![A-Za-z0-9])w/o(?![A-Za-z0-9])", "without"),
    (r"(?<![A-Za-z0-9])w/ ?(?=[A-Za-z0-9])", "with "),
    (r"\band/or\b", "and or"),
)  # fmt: skip

_ORDINALS = table(
    (rf"{START}([0-9]{{1,6}})(?:st|nd|rd|th)\b", lambda m: ordinal(m[1])),
)
_NUMBERS = table(
    (r"(?<![0-9A-Za-z)]) ?[-–](?=[0-9])", " minus "),
    (r"[0-9]{7,}(?!\.[0-9])", lambda m: cardinal(m[0]) if m[0][4:].strip("0") == "" else digits(m[0])),
    (N, lambda m: spoken(m[0])),
)  # fmt: skip
_FINISH = table(
    (r"[‘’]", "'"),
    (r"(?<![A-Za-z])'(?!(?:s|d|m|t|ll|re|ve|em|til|cause|tis|twas|n)\b)|'(?![A-Za-z])(?<!s')", ""),
    (r"[\"“”„«»]", ""),
    (r" ?[(（【\[{]+ ?", ", "),
    (r" ?[)）】\]}]+(?= ?(?:$|[,.!?;:]))", ""),
    (r" ?[)）】\]}]+ ?", ", "),
    (r" ?(?:—+|–+|--+|…+|\.{2,}) ?(?=[\w'])| - ", ", "),
    (r" ?(?:—+|–+|--+|…+|\.{2,})", ". "),
    (r"(?<=[a-z])/(?=[a-z])", " or "),
    (r"[/|_\\]", " "),
    (r"，|、", ", "),
    (r"[^\w,.!?;:'’ 。！？；：-]|(?<![A-Za-z])-|-(?![A-Za-z])", ""),
    (r" +", " "),
    (r" +(?=[,.!?;:])", ""),
    (r"[,;:]+(?=[,.!?;:])", ""),
    (r"(?<=[.!?])[,;:]+", ""),
)  # fmt: skip


_PLAIN = re.compile("[a-z ]*")
"""What no rule changes."""
_ORDER = (
    _ADDRESSES, ABBREVIATIONS, _PREPARED, DATES, CODES, CLOCKS, FORMULAS, YEARS, RANGES, MONEY, PERCENT, FRACTIONS,
    UNIT_RULES, MATH, ROMANS, _ORDINALS, NAMES, _NUMBERS, _FINISH,
)  # fmt: skip


def read(text: str) -> str:
    """An English stretch of text in spoken form."""
    if _PLAIN.fullmatch(text):
        return text
    text = lower_titles(fold(text))
    for rules in _ORDER:
        text = apply(text, rules)
    return lower_titles(text)
