"""Numbers in words: Chinese and English."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cosyui.speech.reading import numbers_en, numbers_zh

CHINESE = {
    "0": "零",
    "2": "二",
    "10": "十",
    "12": "十二",
    "20": "二十",
    "110": "一百一十",
    "200": "两百",
    "220": "二百二十",
    "1002": "一千零二",
    "2000": "两千",
    "2026": "两千零二十六",
    "10010": "一万零一十",
    "22000": "两万二千",
    "100000": "十万",
    "2000000": "两百万",
    "120030405": "一亿二千零三万零四百零五",
    "102000000000": "一千零二十亿",
    "1000000000000": "一万亿",
    "007": "零零七",
    "3.14": "三点一四",
    "12345678901234567": "一二三四五六七八九零一二三四五六七",
}
ENGLISH = {
    "0": "zero",
    "13": "thirteen",
    "21": "twenty one",
    "100": "one hundred",
    "705": "seven hundred and five",
    "1024": "one thousand and twenty four",
    "1234": "one thousand two hundred and thirty four",
    "1000000": "one million",
    "102000000000": "one hundred and two billion",
    "007": "zero zero seven",
    "3.14": "three point one four",
}
YEARS = {"2026": "twenty twenty six", "2000": "two thousand", "2005": "two thousand and five",
         "1905": "nineteen oh five", "1900": "nineteen hundred", "1066": "ten sixty six"}  # fmt: skip
ORDINALS = {"1": "first", "2": "second", "3": "third", "12": "twelfth", "20": "twentieth", "21": "twenty first",
            "100": "one hundredth"}  # fmt: skip
PAIRS = {"1208": "twelve oh eight", "320": "three twenty", "302": "three oh two", "200": "two hundred",
         "9001": "nine oh oh one", "12": "twelve", "12345": "one two three four five"}  # fmt: skip

_VALUES = {char: value for value, char in enumerate("零一二三四五六七八九")} | {"两": 2}
_PLACES = {"十": 10, "百": 100, "千": 1000}
_UNITS = {"万": 10**4, "亿": 10**8}


@pytest.mark.parametrize(("text", "words"), CHINESE.items())
def test_chinese(text: str, words: str) -> None:
    assert numbers_zh.number(text) == words


@pytest.mark.parametrize(("text", "words"), ENGLISH.items())
def test_english(text: str, words: str) -> None:
    assert numbers_en.number(text) == words


@pytest.mark.parametrize(("text", "words"), YEARS.items())
def test_english_years(text: str, words: str) -> None:
    assert numbers_en.year(text) == words


@pytest.mark.parametrize(("text", "words"), ORDINALS.items())
def test_english_ordinals(text: str, words: str) -> None:
    assert numbers_en.ordinal(text) == words


@pytest.mark.parametrize(("text", "words"), PAIRS.items())
def test_english_pairs(text: str, words: str) -> None:
    assert numbers_en.pairs(text) == words


def value_of(words: str) -> int:
    """The value of a Chinese cardinal, by another way than it was made."""
    total = section = digit = 0
    for char in words:
        if char in _VALUES:
            digit = _VALUES[char]
        elif char in _PLACES:
            section += (digit or 1) * _PLACES[char]
            digit = 0
        elif char == "亿":
            total = (total + section + digit) * _UNITS[char]
            section = digit = 0
        else:
            total += (section + digit) * _UNITS[char]
            section = digit = 0
    return total + section + digit


@given(st.integers(0, 10**12 - 1))
def test_chinese_cardinals_keep_their_value(number: int) -> None:
    assert value_of(numbers_zh.cardinal(str(number))) == number


@given(st.integers(0, 10**15 - 1), st.integers(0, 10**15 - 1))
def test_english_cardinals_differ(first: int, second: int) -> None:
    same = numbers_en.cardinal(str(first)) == numbers_en.cardinal(str(second))
    assert same == (first == second)
