"""Numbers in English words. Every function takes the digits as written and never raises for ASCII digits."""

from __future__ import annotations

_UNITS = (
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
    "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen",
)  # fmt: skip
_TENS = ("zero", "ten", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
_SCALES = ((10**12, "trillion"), (10**9, "billion"), (10**6, "million"), (10**3, "thousand"))
_ORDINALS = {"one": "first", "two": "second", "three": "third", "five": "fifth", "eight": "eighth", "nine": "ninth",
             "twelve": "twelfth"}  # fmt: skip
_LONGEST = 15
"""Whole numbers with more digits than this are read digit by digit."""


def digits(text: str, *, zero: str = "zero") -> str:
    """Digit by digit with blanks between; other characters stay."""
    words = ((zero if char == "0" else _UNITS[int(char)]).join("  ") if "0" <= char <= "9" else char for char in text)
    return " ".join("".join(words).split())


def cardinal(text: str) -> str:
    """A whole number: 705 is seven hundred and five. With leading zeros, or very long, digit by digit."""
    if len(text) > _LONGEST or (text[0] == "0" and len(text) > 1):
        return digits(text)
    return _spell(int(text))


def number(text: str) -> str:
    """A whole or decimal number: 3.14 is three point one four."""
    whole, _, fraction = text.partition(".")
    return cardinal(whole) + (f" point {digits(fraction)}" if fraction else "")


def ordinal(text: str) -> str:
    """21 is twenty first."""
    words = cardinal(text)
    head, blank, last = words.rpartition(" ")
    regular = last[:-1] + "ieth" if last.endswith("y") else last + "th"
    return head + blank + _ORDINALS.get(last, regular)


def pairs(text: str) -> str:
    """As the numbers of rooms, flights and models are read: 1208 is twelve oh eight, 320 three twenty."""
    if len(text) not in (3, 4) or text[0] == "0" or text.endswith("00") or text[1:3] == "00":
        return cardinal(text) if len(text) <= 2 or text.endswith("00") else digits(text, zero="oh")
    head, tail = text[:-2], text[-2:]
    return f"{cardinal(head)} {'oh ' + cardinal(tail[1]) if tail[0] == '0' else cardinal(tail)}"


def year(text: str) -> str:
    """2026 is twenty twenty six, 1905 nineteen oh five, 2000 two thousand, 1900 nineteen hundred."""
    if len(text) != 4 or text[0] == "0" or text[1:3] == "00":
        return cardinal(text)
    return f"{cardinal(text[:2])} hundred" if text.endswith("00") else pairs(text)


def decade(text: str) -> str:
    """1990 is nineteen nineties, 90 nineties, 2000 two thousands."""
    words = year(text) if len(text) == 4 else cardinal(text)
    return plural(words)


def plural(words: str) -> str:
    """The last word in the plural: twenty, twenties; inch, inches; six, sixes."""
    if words.endswith("y") and words[-2:-1] not in "aeiou":
        return words[:-1] + "ies"
    return words + ("es" if words.endswith(("x", "ch", "s", "sh")) else "s")


def fraction(numerator: str, denominator: str) -> str:
    """1 and 2 are one half, 3 and 4 three quarters."""
    if int(denominator) < 2:
        return f"{cardinal(numerator)} over {cardinal(denominator)}"
    name = {"2": "half", "4": "quarter"}.get(denominator) or ordinal(denominator)
    if numerator != "1":
        name = "halves" if name == "half" else plural(name)
    return f"{cardinal(numerator)} {name}"


def _spell(value: int) -> str:
    for scale, name in _SCALES:
        if value >= scale:
            head, rest = divmod(value, scale)
            words = f"{_spell(head)} {name}"
            if not rest:
                return words
            return f"{words} and {_spell(rest)}" if rest < 100 else f"{words} {_spell(rest)}"
    if value >= 100:
        head, rest = divmod(value, 100)
        return f"{_UNITS[head]} hundred" + (f" and {_spell(rest)}" if rest else "")
    if value < 20:
        return _UNITS[value]
    return _TENS[value // 10] + (f" {_UNITS[value % 10]}" if value % 10 else "")
