"""Written to spoken form: the language of each stretch, marks, addresses, and what holds for any text."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cosyui.speech.reading.normalise import normalise
from cosyui.speech.text.markup import ALL_MARKS, MARK_PATTERN
from cosyui.speech.text.sanitise import sanitise

SPOKEN = {
    "我买了705张邮票和121个信封。": "我买了七百零五张邮票和一百二十一个信封。",
    "I bought 705 stamps.": "I bought seven hundred and five stamps.",
    # The sentence decides; in Chinese, a clause of English words speaks English, a name does not.
    "我说5。I said 5.": "我说五。I said five.",
    "他说I have 3 dogs and 2 cats，很开心。": "他说I have three dogs and two cats，很开心。",
    "用iPhone 15 Pro Max拍了3张": "用iPhone十五Pro Max拍了三张。",
    "登记your user name and password 3次": "登记your user name and password三次。",
    "定在March 5, 2026那天，排名2nd": "定在March fifth, twenty twenty six那天，排名second。",
    # Other languages are left as they are written.
    "오늘은 3월 5일입니다.": "오늘은 3월 5일입니다.",
    "Завтра 40 минут": "Завтра 40 минут.",
    "わたしの妹は25歳です": "わたしの妹は25歳です。",
    # Lines and ends.
    "你好 世界，hello world 再见": "你好世界，hello world再见。",
    "？”她小声问道。": "她小声问道。",
    "购物清单\n牛奶\n鸡蛋3个": "购物清单。牛奶。鸡蛋三个。",
    "Shopping list\nmilk\n3 eggs": "Shopping list. milk. three eggs.",
    "以逗号结尾，、，": "以逗号结尾。",
    "好的": "好的。",
    "No.": "No.",
    # Cantonese, traditional characters and interjections lose nothing.
    "佢真係好叻仔，唔該晒你哋3個": "佢真係好叻仔，唔該晒你哋三個。",
    "這間學校有200年的歷史，請撥打110": "這間學校有两百年的歷史，請撥打幺幺零。",
    "呃，让我想想，啊，对了！": "呃，让我想想，啊，对了！",
}


@pytest.mark.parametrize(("text", "expected"), SPOKEN.items())
def test_spoken_form(text: str, expected: str) -> None:
    assert normalise(text) == expected


@pytest.mark.parametrize("language", ["ja", "ko", "ru", "de", "fr", "es", "it"])
def test_numbers_of_other_languages_are_left_alone(language: str) -> None:
    assert normalise("12 345,6 %  7", language).rstrip(".。") == "12 345,6 % 7"


DIGITS_ALONE = {
    ("110", "en"): "one hundred and ten.",
    ("110", "zh"): "幺幺零。",
    ("0", "zh"): "零。",
    ("0", "en"): "zero.",
    ("3.14", "zh"): "三点一四。",
    ("3.14", "en"): "three point one four.",
    ("2026", "zh"): "两千零二十六。",
    ("2026", "en"): "twenty twenty six.",
    ("12:30", "zh"): "十二点三十分。",
    ("50%", "en"): "fifty percent.",
}


@pytest.mark.parametrize(("text", "language"), DIGITS_ALONE)
def test_language_of_digits_alone_comes_from_the_caller(text: str, language: str) -> None:
    assert normalise(text, language) == DIGITS_ALONE[text, language]


@pytest.mark.parametrize(
    "title",
    ["A SIMPLE METHOD FOR READING LONG STORIES", "THE OLD MAN AND THE SEA", "HELLO WORLD", "TOP 10 SONGS OF THE YEAR"],
)
def test_a_title_in_capitals_is_read_like_its_small_form(title: str) -> None:
    assert normalise(title) == normalise(title.lower())
    assert normalise(f"论文《{title}》写得好") == normalise(f"论文《{title.lower()}》写得好")


@pytest.mark.parametrize("word", ["NASA", "USB-C", "WHO", "KTV", "IT", "NBA, WTO", "TCP IP"])
def test_acronyms_keep_their_form(word: str) -> None:
    assert word in normalise(f"他说{word}很好")
    assert word in normalise(f"He said that {word} is fine.")


@pytest.mark.parametrize(
    "address",
    ["www.example.com/help?id=7", "http://a.cn:8080/x", "example.com", "info@example.org", "192.168.1.20:8080",
     "v2.0.1", "3.11.2", "config.yaml", "/etc/hosts", "C:\\Users\\me\\a.txt"],
)  # fmt: skip
def test_an_address_ends_no_sentence(address: str) -> None:
    spoken = normalise(f"打开{address}查看帮助。")
    assert spoken.count("。") == 1
    assert spoken.endswith("查看帮助。")
    assert "http" not in spoken
    assert re.search("[./:@]", spoken) is None
    assert normalise(f"Open {address}, then wait.").count(".") == 1


def test_a_long_link_is_named_not_read() -> None:
    link = "https://example.com/" + "a" * 60
    assert normalise(f"打开{link}查看。") == "打开链接查看。"
    assert normalise(f"Open {link}.") == "Open the link."


@pytest.mark.parametrize("mark", sorted(ALL_MARKS))
def test_the_models_marks_survive(mark: str) -> None:
    assert mark in normalise(f"他说{mark}，好的3。")
    assert mark in normalise(f"he said {mark}, fine.")


# Signs and digits in every order are where the rules could raise, loop or lose a mark.
PARTS = [
    "年",
    "月",
    "第",
    "比分",
    "km/h",
    "m/s²",
    "www.",
    "[breath]",
    "a",
    "B2B",
    "你",
    "<strong>",
    "[h]",
    "Dr.",
    "p.m.",
]
SIGNS = st.lists(st.sampled_from([*"0123456789.,:-~/%$€¥²½①°×=<>()[]\n *#@^_|&+'\"", *PARTS]), max_size=25).map("".join)


@settings(max_examples=150, deadline=None)
@given(SIGNS | st.text(max_size=30), st.sampled_from([None, "zh", "en", "ja"]))
def test_never_raises_and_keeps_marks_in_order(text: str, language: str | None) -> None:
    clean = sanitise(text)
    spoken = normalise(clean, language)
    assert "\n" not in spoken
    assert MARK_PATTERN.findall(spoken) == MARK_PATTERN.findall(clean)


@settings(max_examples=150, deadline=None)
@given(SIGNS, st.sampled_from(["zh", "en"]))
def test_no_sign_and_no_digit_is_left_and_twice_is_once(text: str, language: str) -> None:
    spoken = normalise(sanitise(text), language)
    assert re.search(r"[%¥$€£²³°₂½①≥≠≈×÷±<>=*#|\\`~^_{}@&/0-9]", MARK_PATTERN.sub("", spoken)) is None
    assert normalise(spoken, language) == spoken


@settings(max_examples=100, deadline=None)
@given(st.text(alphabet="今天气温歷史呃啊佢叻，。年月日第到点分0123-:%/", min_size=1, max_size=30))
def test_no_han_character_is_lost(text: str) -> None:
    han = [char for char in text if "\u4e00" <= char <= "\u9fff"]
    spoken = iter(normalise(text, "zh"))
    assert all(char in spoken for char in han)
