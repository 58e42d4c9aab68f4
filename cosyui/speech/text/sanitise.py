"""The first pass over any text from outside: what is left is printable, in plain letters, and no command."""

from __future__ import annotations

import re
import unicodedata

from cosyui.speech.text.faces import strip_faces

_LINE_BREAKS = re.compile(r"\r\n?|[\v\f\x1c-\x1e\x85\u2028\u2029]")
_CONTROL_TOKEN = re.compile(r"<\|[\w.:/-]{0,64}\|>")
_TOKEN_PASSES = 4
_KEYCAP = re.compile("([1-9])\ufe0f?\u20e3")
_BLANK_LINES = re.compile(r" *\n[ \n]*")

_DROPPED_CATEGORIES = frozenset(("Cc", "Cf", "Co", "Cn", "Cs", "Me"))
_INVISIBLE_LETTERS = frozenset("\u115f\u1160\u3164\uffa0")
# Symbols of category So that are read; the rest of So is emoji and ornaments.
_KEPT_SYMBOLS = frozenset("°℃℉№©®™")
# What the reading rules want to see as it is, although Unicode knows a plainer form.
_KEPT_FORMS = frozenset("…℃℉№ªº")
_REPLACED = dict.fromkeys("\u2010\u2011\u2012\u2212\ufe63", "-") | dict.fromkeys("\u00b4\u02bc\u02b9", "'")
_REPLACED |= dict.fromkeys("︴︵︶﹏", "\0")  # drawn, not written
_REPLACED |= {"㎡": "m²", "㎥": "m³", "㎢": "km²", "㎤": "cm³", "㎠": "cm²", "㎟": "mm²", "㎣": "mm³"}
# Full-width signs that are written for ASCII ones; 。，！？：；（） belong to Chinese and stay wide.
_WIDE_SIGNS = frozenset("＠＃＄％＆＊＋－／＜＝＞［］＿｀｛｜｝＾＼．＂＇￥￡￠")
_PLAINER = frozenset(("<font>", "<narrow>", "<noBreak>", "<square>", "<vertical>", "<small>", "<circle>"))

_ORNAMENT = "\0"
# An ornament is as good as a blank between two words; between two halves of a control token, it must be one.
_KEEPS_APART = re.compile(r"(?<=[A-Za-z0-9])\0+(?=[A-Za-z0-9])|(?<=<)\0+(?=\|)|(?<=\|)\0+(?=>)")

_DIACRITICS = "[\u0300-\u036f\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe20-\ufe2f]"
_HEAPED = re.compile(f"{_DIACRITICS}{{3,}}")
_CARRIERS = "A-Za-z\u00c0-\u024f\u0370-\u052f\u1e00-\u1eff"  # Latin, Greek and Cyrillic letters
_LOOSE = re.compile(f"(?![\u0300-\u0302\u0304\u0308\u030c]){_DIACRITICS}|(?<![{_CARRIERS}]){_DIACRITICS}")

_AMPERSAND = re.compile(r"&(?:(?:amp|#38|#[xX]26);)+")
_ENTITY = re.compile(r"&(?:nbsp|lt|gt|quot|apos|hellip|mdash|ndash|#160|#60|#62|#34|#39|#[xX]27);")
_ENTITIES = {"&nbsp;": " ", "&#160;": " ", "&lt;": "<", "&#60;": "<", "&gt;": ">", "&#62;": ">", "&hellip;": "…",
             "&quot;": '"', "&#34;": '"', "&mdash;": "—", "&ndash;": "–"}  # fmt: skip


def sanitise(text: str) -> str:
    """``text`` in NFC without anything that cannot be spoken or that could be taken for a command.

    Gone: control, zero-width, bidi, private-use and unassigned characters, emoji, ornaments and drawn faces, heaped or
    struck-through diacritics, ``<|...|>`` tokens. Letters in disguise (full-width, mathematical, ligatures, half-width
    kana) become plain ones, HTML's names of signs the signs, all blanks one space. A line break is ``\\n``, one or more
    blank lines are ``\\n\\n``. Never raises, takes linear time; applying it twice gives the same as once.
    """
    text = _LINE_BREAKS.sub("\n", text.replace("\t", " "))
    text = _KEYCAP.sub(lambda key: chr(0x245F + int(key.group(1))), text)
    text = _ENTITY.sub(lambda name: _ENTITIES.get(name.group(), "'"), _AMPERSAND.sub("&", text))
    text = _without_control_tokens(_without_loose_marks(text.translate(_TABLE)))
    text = _LOOSE.sub("", strip_faces(text, _ORNAMENT))
    text = _KEEPS_APART.sub(" ", text).replace(_ORNAMENT, "")
    text = re.sub(" +", " ", text)
    return _BLANK_LINES.sub(lambda gap: "\n\n" if gap.group().count("\n") > 1 else "\n", text).strip()


def _without_loose_marks(text: str) -> str:
    """NFC; no letter carries more than two diacritics, nor one that has no composed form and is no tone."""
    text = _HEAPED.sub("", unicodedata.normalize("NFD", text))
    return _LOOSE.sub("", unicodedata.normalize("NFC", text))


def _without_control_tokens(text: str) -> str:
    for _ in range(_TOKEN_PASSES):  # what closes up around a removed token may be one again
        shorter = _CONTROL_TOKEN.sub("", text)
        if shorter == text:
            break
        text = shorter
    # What could still look like half a control token is broken up; a blank cannot join into a new one.
    return text.replace("<|", " ").replace("|>", " ")


class _Plain(dict[int, str]):
    """A translation table that works out each character when it first meets it."""

    def __missing__(self, code: int) -> str:
        self[code] = plain = _plain(chr(code))
        return plain


def _plain(char: str) -> str:
    if char.isascii():
        return char if char.isprintable() or char == "\n" else ""
    if char in _REPLACED:
        return _REPLACED[char]
    if char in _INVISIBLE_LETTERS or "\ufe00" <= char <= "\ufe0f" or "\U000e0100" <= char <= "\U000e01ef":
        return ""
    category = unicodedata.category(char)
    if category == "Zs":
        return " "
    if category in _DROPPED_CATEGORIES:
        return ""
    if category == "Sk":
        return _ORNAMENT
    plain = char if char in _KEPT_FORMS else _compatible(char, category)
    if category == "So" and char not in _KEPT_SYMBOLS:
        return plain if plain != char else _ORNAMENT
    return plain


def _compatible(char: str, category: str) -> str:
    """The plain form of a letter or sign in disguise, of others the character itself."""
    tag = unicodedata.decomposition(char).split(" ")[0]
    if category in ("No", "Nl") or char in "㊗㊙":
        return char  # ①, ², ½ and Ⅳ say more than their digits: the rules read them
    if tag == "<wide>":
        is_plain = char in _WIDE_SIGNS or unicodedata.normalize("NFKC", char).isalnum()
    elif tag == "<compat>":
        is_plain = not "\u3131" <= char <= "\u318e"  # jamo such as ㅋ, written alone
    else:
        is_plain = tag in _PLAINER or (tag == "<super>" and category == "Lm")
    plain = unicodedata.normalize("NFKC", char) if is_plain else char
    return char if plain.startswith(" ") else plain


_TABLE = _Plain()
