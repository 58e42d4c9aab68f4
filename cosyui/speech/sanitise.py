"""The first pass over any text from outside: what is left is printable, one line break a line, and free of control
tokens. Also the guess of its language by script.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter

_LINE_BREAKS = re.compile(r"\r\n?|[\v\f\x1c-\x1e\x85\u2028\u2029]")
_CONTROL_TOKEN = re.compile(r"<\|[\w.:/-]{0,64}\|>")
_BLANK_LINES = re.compile(r" *\n[ \n]*")

# Symbols of category So that are read or matter to the rules; the rest of So is emoji and ornaments.
_KEPT_SYMBOLS = frozenset("°℃℉№©®™ⓐⓑⓒ")
_SQUARED_UNITS = {"㎡": "m²", "㎥": "m³", "㎢": "km²", "㎤": "cm³", "㎠": "cm²", "㎟": "mm²", "㎞": "km", "㎝": "cm",
                  "㎜": "mm", "㎏": "kg", "㎎": "mg", "㏄": "cc", "㎐": "Hz", "㎾": "kW", "㏒": "log"}  # fmt: skip
_FULL_WIDTH = {code: code - 0xFEE0 for code in (*range(0xFF10, 0xFF1A), *range(0xFF21, 0xFF3B), *range(0xFF41, 0xFF5B))}
_FULL_WIDTH |= {ord(char): ord(char) - 0xFEE0 for char in "＠＃＄％＆＊＋－／＜＝＞［］＿｀｛｜｝＾＼"}
_DROPPED_CATEGORIES = frozenset(("Cc", "Cf", "Co", "Cn", "Cs"))


def sanitise(text: str) -> str:
    """``text`` in NFC without anything that cannot be spoken or that could be taken for a command.

    Gone: control, zero-width, bidi, private-use and unassigned characters, emoji and ornaments, ``<|...|>`` tokens.
    Full-width letters and digits become ASCII, all blanks one space, line breaks ``\\n`` (they end sentences). Never
    raises; applying it twice gives the same as once.
    """
    text = _LINE_BREAKS.sub("\n", unicodedata.normalize("NFC", text.replace("\t", " ")))
    text = "".join(map(_clean_char, text)).translate(_FULL_WIDTH)
    while (shorter := _CONTROL_TOKEN.sub("", text)) != text:
        text = shorter  # what closes up around a removed token may be one again
    # What could still look like half a control token is broken up; a blank cannot join into a new one.
    text = text.replace("<|", " ").replace("|>", " ")
    text = re.sub(" +", " ", unicodedata.normalize("NFC", text))
    return _BLANK_LINES.sub("\n", text).strip()


def _clean_char(char: str) -> str:
    if char.isascii():
        return char if char.isprintable() or char == "\n" else ""
    category = unicodedata.category(char)
    if category == "Zs":
        return " "
    if category in _DROPPED_CATEGORIES:
        return ""
    if category == "So":
        return char if char in _KEPT_SYMBOLS else _SQUARED_UNITS.get(char, "")
    if category in ("Sk", "Me") or "\ufe00" <= char <= "\ufe0f" or "\U000e0100" <= char <= "\U000e01ef":
        return ""
    return char


_SCRIPTS = (
    ("ja", re.compile(r"[\u3041-\u3096\u30a1-\u30fa\u31f0-\u31ff\uff66-\uff9d]")),
    ("zh", re.compile(r"[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]")),
    ("ko", re.compile(r"[\u1100-\u11ff\u3131-\u318e\uac00-\ud7a3]")),
    ("ru", re.compile(r"[\u0400-\u052f]")),
    ("ar", re.compile(r"[\u0600-\u06ff\u0750-\u077f]")),
    ("he", re.compile(r"[\u0590-\u05ff]")),
    ("el", re.compile(r"[\u0370-\u03ff]")),
    ("hi", re.compile(r"[\u0900-\u097f]")),
    ("th", re.compile(r"[\u0e00-\u0e7f]")),
    ("en", re.compile(r"[A-Za-z\u00c0-\u024f]")),
)
LANGUAGE_NAMES = {
    "zh": "Chinese", "en": "English", "ja": "Japanese", "ko": "Korean", "ru": "Russian", "ar": "Arabic",
    "he": "Hebrew", "el": "Greek", "hi": "Hindi", "th": "Thai", "de": "German", "fr": "French", "es": "Spanish",
    "it": "Italian",
}  # fmt: skip


def detect_language(text: str) -> str:
    """The language of ``text`` by its script: ``zh en ja ko ru ar he el hi th``, or ``""`` if it has no letters.

    Chinese with foreign words in it is ``zh``; Han with a fair share of kana is ``ja``. Latin script counts as ``en``.
    """
    counts = Counter({name: len(pattern.findall(text)) for name, pattern in _SCRIPTS})
    if counts["ja"] and counts["ja"] * 6 >= counts["zh"]:
        return "ja"
    # A Greek letter in a formula does not make the text Greek; the same for the odd letter of any other script.
    if counts["zh"] and counts["zh"] * 3 >= max(counts["ko"], counts["ru"], counts["ar"], counts["he"]):
        return "zh"
    name, number = counts.most_common(1)[0]
    return name if number else ""
