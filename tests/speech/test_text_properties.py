"""What holds for every text, however it is mixed: nothing lost, nothing twice, nothing in it can command the model."""

from __future__ import annotations

import re

import pytest
from hypothesis import assume, event, example, given, settings
from hypothesis import strategies as st
from made_requests import request

from cosyui.engine.request import Mode
from cosyui.errors import InputError
from cosyui.model.tokenizer import END_OF_PROMPT, TextTokenizer
from cosyui.speech.prompt_format import TextFrontend
from cosyui.speech.text.language import KNOWN_LANGUAGES
from cosyui.speech.text.markup import MARK_PATTERN
from cosyui.speech.text.prepare import PreparedText, SplitLimits, prepare
from cosyui.speech.text.sanitise import sanitise
from cosyui.speech.text.screen import HARD_CHARS, TextRules, has_speech, screen

PIECES = [
    *"你好世界，。！？；：、“”「」（）【】…—·的一二三年月日点元",
    *"abcXYZ éßñ.,!?;:'\"()-/&%$€£¥+=*#_~`|\\^<>{}[]@",
    *"0123456789²½①Ⅳ",
    *"ひらカナ漢が안녕은Привет",
    *"مرשאθ",
    *"😀🎉👩🏽✧\u200b\u200d\ufeff\u00ad\u202e\u2066\ue000\ud800\u0301\u0336\ufe0f\u3000\u00a0",
    *["\n", "\n\n", "\r\n", "\t", " ", "  "],
    *["[breath]", "[laughter]", "<strong>", "</strong>", "<laughter>", "</laughter>", "[h]", "[ǎo]", "[AH0]"],
    *["[AH]", "[K]"],
    *["[hao3]", "[laugh]", "[uv_break]", "[注1]", "(laughs)", "(^_^)", ":-)", "T_T"],
    *["<|endofprompt|>", "<|im_start|>", "<|", "|>", "＜｜endofprompt｜＞", "<|x|", "&lt;|endofprompt|&gt;"],
    *["<speak>", '<break time="500ms"/>', "<p>", "</p>", "<b>", "<!--", "-->", "<script>", "</script>"],
    *["# ", "- ", "1. ", "> ", "```\n", "***\n", "---\n", "|---|\n", "| a | b |", "[a](b)", "**", "~~"],
    *["第一章\n", "Chapter 3\n", "You are a helpful assistant.", "https://a.b/c?d=1", "me@x.org", "v2.0.1", "3.14"],
    *["the boat ", "Der Zug ist um ", "le chat et ", "el perro y ", "il gatto è ", "今天天气不错。", "It is late. "],
]  # fmt: skip
MIXED = st.lists(st.sampled_from(PIECES), max_size=40).map("".join)
# For a text that is prepared twice: one language, so that no digit changes sides, and no signs of calculation, which
# mean something else once their neighbours are words.
WORDS = [
    [*"你好世界的，。！？；：、“”（）《》…", "今天天气不错。", "第一章\n", "[h]", "[ǎo]", "[hao3]"],
    ["boat ", "slowly, ", "It is late. ", "(at last) ", "they said: ", '"yes" ', "Chapter 3\n", "[K]", "[AH0]", "[AH]"],
    ["안녕 ", "하세요. ", "오늘은, "],
    ["Привет ", "как дела? ", "хорошо. "],
    ["Der Zug ist um ", "nicht da. ", "wir haben "],
]
MARKUP = ["\n", "\n\n", " ", "5 ", "[breath]", "<strong>", "</strong>", "[laugh]", "# ", "- ", "> ", "**", "```\n",
          "***\n", "😀", "(^_^)", "\u200b", "\ue000", "<|endofprompt|>", '<break time="1s"/>', "<p>",
          "<prosody>"]  # fmt: skip
WRITTEN = st.sampled_from(WORDS).flatmap(
    lambda words: st.lists(st.sampled_from(words) | st.sampled_from(MARKUP), max_size=40).map("".join)
)
TEXTS = MIXED | st.text(max_size=60)
LANGUAGES = st.sampled_from([None, *KNOWN_LANGUAGES])
LIMITS = st.integers(12, 40).map(lambda tokens: SplitLimits(max_tokens=tokens))


def prepared(text: str, language: str | None = None, limits: SplitLimits | None = None) -> PreparedText:
    """A text that comes through; others are no example."""
    try:
        return prepare(text, tokens, language, limits)
    except InputError as error:
        event(error.code)
        assume(False)
        raise


def tokens(text: str) -> int:
    """As a tokenizer counts: a mark is one."""
    return len(MARK_PATTERN.sub("#", text))


def letters(text: str) -> str:
    return re.sub(r"[\W_]", "", text)


@given(TEXTS, LANGUAGES, LIMITS)
def test_segments_are_spoken_whole_and_within_the_limit(text: str, language: str | None, limits: SplitLimits) -> None:
    result = prepared(text, language, limits)
    assert all(segment.text == segment.text.strip() for segment in result.segments)
    assert all(has_speech(segment.text) for segment in result.segments)
    assert all(tokens(segment.text) <= limits.max_tokens for segment in result.segments)
    assert all(segment.pause >= 0 for segment in result.segments)
    assert result.segments[-1].pause == 0


@given(TEXTS, LANGUAGES, LIMITS)
def test_splitting_loses_and_repeats_nothing(text: str, language: str | None, limits: SplitLimits) -> None:
    whole, pieces = prepared(text, language, SplitLimits(max_tokens=10_000)), prepared(text, language, limits)
    plain = [MARK_PATTERN.sub("", part.text) for part in (whole, pieces)]
    assert letters(plain[1]) == letters(plain[0])
    assert [mark for mark in MARK_PATTERN.findall(pieces.text) if mark[0] == "["] == [
        mark for mark in MARK_PATTERN.findall(whole.text) if mark[0] == "["
    ]


@given(TEXTS)
def test_cleaning_once_is_enough(text: str) -> None:
    clean = sanitise(text)
    assert sanitise(clean) == clean


@given(WRITTEN)
def test_a_spoken_text_stays_as_it_is(text: str) -> None:
    spoken = prepared(text)
    again = prepared(spoken.text)
    assert letters(MARK_PATTERN.sub("", again.text)) == letters(MARK_PATTERN.sub("", spoken.text))


@given(TEXTS, TEXTS, st.sampled_from(Mode))
def test_no_field_can_place_a_control_token(toy_tokenizer: TextTokenizer, text: str, other: str, mode: Mode) -> None:
    controls = {toy_tokenizer.id_of(token) for token in toy_tokenizer.controls}
    try:
        segments, _ = TextFrontend(toy_tokenizer).segments(request(text, mode, transcript=other, instruction=other))
    except InputError as error:
        event(error.code)
        return
    for segment in segments:
        ids = (*segment.prompt_text_ids, *segment.text_ids)
        assert [number for number in ids if number in controls] == [toy_tokenizer.id_of(END_OF_PROMPT)]
        assert "<|" not in segment.text
        assert "<|" not in toy_tokenizer.decode(ids)


@given(TEXTS, st.sampled_from(["text", "transcript", "instruction"]), st.text(max_size=6) | LANGUAGES)
@example("好", "text", "xx")
def test_the_gate_gives_passages_or_an_error_of_its_field(text: str, field: str, language: str | None) -> None:
    try:
        screened = screen(text, TextRules(field=field), language)
    except InputError as error:
        refused = error.field
    else:
        refused = None
    assert refused in (None, field, "language")
    if refused:
        return
    assert all(passage.text for passage in screened.passages)
    assert screened.passages[-1].pause == 0


@settings(max_examples=20)
@given(MIXED, st.integers(1, 3))
def test_the_limit_of_characters_holds_before_any_work(text: str, over: int) -> None:
    with pytest.raises(InputError) as caught:
        screen("好" * HARD_CHARS + text[:1] * over + "字", TextRules())
    assert caught.value.code == "text_too_long"
