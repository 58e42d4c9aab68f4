"""Cleaning text from outside: nothing invisible, no control token, and once is enough."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cosyui.speech.text.sanitise import sanitise

CASES = {
    "plain text stays": ("今天天气不错。", "今天天气不错。"),
    "zero width": ("\ufeff你\u200b好，世\u200d界。", "你好，世界。"),
    "soft hyphen": ("re\xadmark\xadable\u200b", "remarkable"),
    "bidi override": ("safe \u202egnp.exe\u202c text", "safe gnp.exe text"),
    "private use": ("前缀\ue000后缀", "前缀后缀"),
    "emoji": ("开心😀🎉，吃火锅🍲吧！", "开心，吃火锅吧！"),
    "emoji with joiner and skin": ("好👩🏽‍🚀的", "好的"),
    "emoji for a blank": ("job👏see", "job see"),
    "flag": ("去🇯🇵玩", "去玩"),
    "ornaments": ("★好☆的♥", "好的"),
    "keycap": ("1️⃣ 开始，按2⃣和0️⃣", "① 开始，按②和0"),
    "blanks": ("a\u00a0\u3000 b\t c", "a b c"),
    "line breaks": ("a\r\n  b\u2028c\x0bd", "a\nb\nc\nd"),
    "blank lines": ("a\r\n\r\n \n b\n\n", "a\n\nb"),
    "full-width letters and digits": ("ＡＢＣ２０２４％", "ABC2024%"),
    "full-width marks of Chinese stay": ("好，的！（是）：；？", "好，的！（是）：；？"),
    "mathematical letters": ("𝐇𝐞𝐥𝐥𝐨 𝓌ℴ𝓇𝓁𝒹 ⓐ🄱", "Hello world aB"),
    "ligatures": ("oﬃce ﬁne", "office fine"),
    "half-width kana": ("ｶﾞｷﾞ｡", "ガギ。"),
    "compatibility": ("㍿⾃㌔", "株式会社自キロ"),
    "what the rules read stays": ("①²½Ⅳ№", "①²½Ⅳ№"),
    "dashes": ("−5 re‑use", "-5 re-use"),
    "apostrophes": ("don´t", "don't"),
    "heaped diacritics": ("H̷̢̛e̶̢̛l̵̢̛lo", "Hello"),
    "struck through": ("o̶l̶d̶", "old"),
    "real diacritics stay": ("ệ ǘ m̀ й が", "ệ ǘ m̀ й が"),
    "lonely diacritic": ("一\u0301。", "一。"),
    "invisible letters": ("a\u3164b\u115fc", "abc"),
    "entities": ("AT&amp;T &lt;b&gt; a&nbsp;b", "AT&T <b> a b"),
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
    "spelled as entities": ("a&lt;|endofprompt|&gt;b&amp;lt;|x|>", "ab"),
    "emoji inside": ("<😀|endofprompt|😀>", "< |endofprompt| >"),
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


FACES = [
    "(^_^)", "(๑•̀ㅂ•́)و✧", "¯\\_(ツ)_/¯", "(ಥ﹏ಥ)", "ʕ•ᴥ•ʔ", "(づ｡◕‿‿◕｡)づ", "ヽ(✿ﾟ▽ﾟ)ノ", "(｡・ω・｡)", "(T_T)",
    "(；´д｀)",
    "( ͡° ͜ʖ ͡°)", "o(╥﹏╥)o", "m(_ _)m", "\\(^o^)/", "(눈_눈)", "┐(´д`)┌",
    "(ノ◕ヮ◕)ノ*:･ﾟ✧", "٩(◕‿◕)۶", "^_^", "T_T", ">_<", ":-)", ";)",
    ":D", ":-):-)", "ಠ_ಠ", "(￣▽￣)", "(≧▽≦)",
]  # fmt: skip


@pytest.mark.parametrize("face", FACES)
def test_drawn_faces_go(face: str) -> None:
    assert sanitise(f"周末见{face}，别迟到") == "周末见，别迟到"
    assert sanitise(f"See you {face} on Monday") == "See you on Monday"


@pytest.mark.parametrize(
    "words",
    str.split(
        "f(x) (例如) (3) (x±y) (a→b→c) (%) (T) （笑） 2^3^4 x>_<y 5:3 http://a.b/c (见下:) "
        "(≥5) ($5) (U.S.) (ω) 时间:(上午) (v_1) (キノコ) ((a)b) (α,β)"
    ),
)
def test_words_in_brackets_stay(words: str) -> None:
    assert sanitise(f"甲{words}乙") == f"甲{words}乙"
