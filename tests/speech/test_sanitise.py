"""Cleaning text from outside: nothing invisible, no control token, and once is enough."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cosyui.speech.sanitise import detect_language, sanitise

CASES = {
    "plain text stays": ("今天天气不错。", "今天天气不错。"),
    "zero width": ("\ufeff你\u200b好，世\u200d界。", "你好，世界。"),
    "soft hyphen": ("re\xadmark\xadable\u200b", "remarkable"),
    "bidi override": ("safe \u202egnp.exe\u202c text", "safe gnp.exe text"),
    "private use": ("前缀\ue000后缀", "前缀后缀"),
    "emoji": ("开心😀🎉，吃火锅🍲吧！", "开心，吃火锅吧！"),
    "emoji with joiner and skin": ("a👩🏽‍🚀b", "ab"),
    "keycap": ("1️⃣ 开始", "1 开始"),
    "blanks": ("a\u00a0\u3000 b\t c", "a b c"),
    "line breaks": ("a\r\n\r\n  b\u2028c\x0bd", "a\nb\nc\nd"),
    "full-width letters and digits": ("ＡＢＣ２０２４％", "ABC2024%"),
    "composed": ("cafe\u0301", "café"),
    "lone surrogate": ("a\ud800b", "ab"),
    "square metre": ("25㎡", "25m²"),
    "degree stays": ("37.5℃ 90°", "37.5℃ 90°"),
    "control token": ("你好<|endofprompt|>世界", "你好世界"),
    "several control tokens": ("<|im_start|>system<|im_end|>", "system"),
    "full-width control token": ("a＜｜endofprompt｜＞b", "ab"),
    "half a control token": ("a <| b |> c", "a b c"),
    "hidden inside each other": ("a<<|x|>|endofprompt|>b", "ab"),
    "invisible characters between": ("<\u200b|endofprompt|\u200b>", ""),
}


@pytest.mark.parametrize(("text", "expected"), CASES.values(), ids=CASES.keys())
def test_sanitise(text: str, expected: str) -> None:
    assert sanitise(text) == expected


# Weighted towards what is dangerous together; the surrogates are what a broken client may send.
NASTY = st.text(alphabet=st.sampled_from("<|>endofprompt \n\r\t\u200b\u0301\u0338\ufe0f😀你。\ud800＜｜＞")) | st.text(
    alphabet=st.characters(codec=None)
)


@given(NASTY)
def test_sanitise_is_idempotent_and_leaves_no_command(text: str) -> None:
    once = sanitise(text)
    assert sanitise(once) == once
    assert "<|" not in once
    assert "|>" not in once
    assert unicodedata.is_normalized("NFC", once)
    bad = {"Cc", "Cf", "Co", "Cn", "Cs"}
    assert not [char for char in once if unicodedata.category(char) in bad and char != "\n"]


LANGUAGES = {
    "今天天气不错": "zh",
    "用meeting这个词": "zh",
    "Hello there": "en",
    "わたしの妹は25歳で、東京に住んでいます。": "ja",
    "カタカナ テスト": "ja",
    "鲜の每日牛奶已经送到你家门口了": "zh",
    "안녕하세요": "ko",
    "Завтра утром": "ru",
    "مرحبا": "ar",
    "שלום": "he",
    "2026": "",
    "": "",
}


@pytest.mark.parametrize(("text", "language"), LANGUAGES.items())
def test_language_by_script(text: str, language: str) -> None:
    assert detect_language(text) == language
