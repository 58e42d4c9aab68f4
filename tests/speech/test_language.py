"""Which language a text and each of its sentences is in."""

from __future__ import annotations

import pytest

from cosyui.errors import InputError
from cosyui.speech.text.language import detect_language, language_code, language_spans

LANGUAGES = {
    "今天天气不错": "zh",
    "用meeting这个词": "zh",
    "α是一个角": "zh",
    "Hello there": "en",
    "わたしの妹は25歳で、東京に住んでいます。": "ja",
    "カタカナ テスト": "ja",
    "鲜の每日牛奶已经送到你家门口了": "zh",
    "안녕하세요": "ko",
    "Завтра утром": "ru",
    "مرحبا": "ar",
    "שלום": "he",
    "สวัสดี": "th",
    "[AH0][L]好": "zh",
    "Der Zug fährt um 7 Uhr.": "de",
    "Wir haben heute keine Zeit, aber morgen ist es besser.": "de",
    "Nous avons 3 enfants et une maison.": "fr",
    "C'est la vie, mais je ne sais pas.": "fr",
    "Tengo 25 años y vivo en la ciudad.": "es",
    "¿Dónde está la biblioteca?": "es",
    "Ho 25 anni e vivo con la mia famiglia.": "it",
    "Non è che non mi piace.": "it",
    "The die is cast and the war is over.": "en",
    "I met him at the café in La Paz on Monday.": "en",
    "OK": "en",
    # Letters of a formula are no language, nor is one word shared by two.
    "x²+y²=1": "",
    "π≈3.14": "",
    "3×4=12": "",
    "No, no, no 3 times": "en",
    "No. 1 seed vs. No. 4 seed": "en",
    "2026": "",
    "[breath]": "",
    "": "",
}


@pytest.mark.parametrize(("text", "language"), LANGUAGES.items())
def test_language_of_a_text(text: str, language: str) -> None:
    assert detect_language(text) == language


SPANS = {
    ("我今年25岁。I am 25 years old. 好的。", "zh", None): ["zh", "en", "zh"],
    ("Hello. 25. Bye.", "en", None): ["en"],
    ("Es ist kalt und wir haben 25 Grad. That is not what I was told.", "de", None): ["de", "en"],
    ("Ja. Nein. 25.", "de", None): ["de"],
    ("東京です。大阪。", "ja", None): ["ja"],
    ("대한민국. 서울 2026.", "ko", None): ["ko"],
    ("Der Zug ist um 7 Uhr da und wir sind nicht.", "en", "en"): ["en"],
    ("Chat.", "fr", "fr"): ["fr"],
    # In a Chinese text names and units are Chinese too, a few words of English are not.
    ("充电器。iPhone 15 Pro. 10 km.", "zh", None): ["zh"],
    ("买No. 5香水。", "zh", None): ["zh"],
    ("好的。See you at 5.", "zh", None): ["zh", "en"],
    ("", "zh", None): [],
}


@pytest.mark.parametrize(("given", "expected"), SPANS.items())
def test_language_of_each_sentence(given: tuple[str, str, str | None], expected: list[str]) -> None:
    spans = language_spans(*given)
    assert [language for _, language in spans] == expected
    assert "".join(text for text, _ in spans) == given[0]


@pytest.mark.parametrize(
    ("asked", "code"),
    [("zh", "zh"), ("zh-CN", "zh"), ("EN_us", "en"), (" ja ", "ja"), ("auto", None), ("", None), (None, None)],
)
def test_a_request_names_a_language(asked: str | None, code: str | None) -> None:
    assert language_code(asked) == code


@pytest.mark.parametrize("asked", ["xx", "klingon", "ar", "中文", "<b>"])
def test_an_unknown_language_is_refused(asked: str) -> None:
    with pytest.raises(InputError, match="zh, en, ja") as caught:
        language_code(asked)
    assert (caught.value.code, caught.value.field) == ("language_invalid", "language")
