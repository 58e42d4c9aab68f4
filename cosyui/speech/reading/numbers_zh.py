"""Numbers in Chinese words. Every function takes the digits as written and never raises for ASCII digits."""

from __future__ import annotations

_DIGITS = "零一二三四五六七八九"
_LONGEST = 16
"""Whole numbers with more digits than this are read digit by digit."""


def digits(text: str, *, one: str = "一") -> str:
    """Digit by digit; other characters stay. ``one`` is ``幺`` in telephone numbers and the like."""
    return "".join((one if char == "1" else _DIGITS[int(char)]) if "0" <= char <= "9" else char for char in text)


def cardinal(text: str) -> str:
    """A whole number: 2026 is 两千零二十六. With leading zeros, or longer than 16 digits, digit by digit."""
    if len(text) > _LONGEST or (text[0] == "0" and len(text) > 1):
        return digits(text)
    value = int(text)
    if value == 0:
        return "零"
    words = _spell(value)
    if words.startswith("二千") or words in ("二百", "二百万", "二百亿"):
        words = "两" + words[1:]
    return words[1:] if words.startswith("一十") else words


def number(text: str) -> str:
    """A whole or decimal number: 3.14 is 三点一四."""
    whole, _, fraction = text.partition(".")
    return cardinal(whole) + (f"点{digits(fraction)}" if fraction else "")


def fraction(numerator: str, denominator: str) -> str:
    """1 and 2 are 二分之一."""
    return f"{number(denominator)}分之{number(numerator)}"


def _spell(value: int) -> str:
    """In groups of four digits, with 零 where a group or a place is skipped."""
    for scale, name in ((10**8, "亿"), (10**4, "万")):
        if value >= scale:
            head, rest = divmod(value, scale)
            words = ("两" if head == 2 else _spell(head)) + name
            if not rest:
                return words
            return words + ("零" if rest < scale // 10 else "") + _spell(rest)
    words, skipped = "", False
    for scale, name in ((1000, "千"), (100, "百"), (10, "十"), (1, "")):
        digit, value = divmod(value, scale)
        if digit:
            words += ("零" if skipped else "") + _DIGITS[digit] + name
            skipped = False
        else:
            skipped = bool(words)
    return words
