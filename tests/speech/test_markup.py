"""Mark-up: the model's marks stay, everything else of that kind is never spoken."""

from __future__ import annotations

import pytest

from cosyui.speech.markup import clean_markup, strip_prefix

PREFIX = "You are a helpful assistant."

CLEANED = {
    "他讲到一半[laughter]，笑了[breath]。": "他讲到一半[laughter]，笑了[breath]。",
    "一半[laugh]，停了[uv_break]一下。": "一半，停了一下。",
    "对报道[ji3]予好评": "对报道予好评",
    "[h][ǎo]的": "[h][ǎo]的",
    "<strong>非常</strong>重要": "<strong>非常</strong>重要",
    "<strong>非常": "非常",
    "非常</strong>重要": "非常重要",
    "<strog>非常</strog>": "非常",
    '<speak>你好<break time="500ms"/>再见</speak>': "你好, 再见",
    "1<x<5, a <b and c> d": "1<x<5, a <b and c> d",
    "# 今日要点\n- **天气**：晴\n- `代码`已提交\n\n***\n1. 喝水": "今日要点\n天气：晴\n代码已提交\n1, 喝水",
    "* **Step one**: read [the guide](https://example.com)": "Step one: read the guide",
    "| 名称 | 数量 |\n|---|---|\n| 苹果 | 3 |": "名称，数量\n苹果，3",
    "```python\nx = 1\n```\n好": "x = 1\n好",
    "周末见(๑•̀ㅂ•́)و，别迟到": "周末见，别迟到",
    "好(^_^)的": "好的",
    "f(x)和(例如)还有(3)": "f(x)和(例如)还有(3)",
    "snake_case_name 2*3*4": "snake_case_name 2*3*4",
}


@pytest.mark.parametrize(("text", "expected"), CLEANED.items())
def test_clean_markup(text: str, expected: str) -> None:
    assert clean_markup(text)[0] == expected


def test_what_was_left_out_is_said() -> None:
    _, warnings = clean_markup("一半[laugh]，<strong>停了[laugh]")
    assert len(warnings) == 1
    assert str(warnings[0]).count("[laugh]") == 1
    assert "<strong>" in str(warnings[0])
    assert clean_markup("好的[breath]") == ("好的[breath]", ())


def test_marks_that_the_model_does_not_take_go_too() -> None:
    text, warnings = clean_markup("好[breath][h][ǎo]", frozenset({"[h]", "[ǎo]"}))
    assert text == "好[h][ǎo]"
    assert "[breath]" in str(warnings[0])


STRIPPED = {
    f"{PREFIX}<|endofprompt|>你好": "你好",
    f"{PREFIX}<|endofprompt|><|endofprompt|>你好": "你好",
    f"{PREFIX}<|endofprompt|>。你好": "你好",
    f"  {PREFIX} 你好": "你好",
    "<|endofprompt|>你好": "你好",
    "你好": "你好",
    PREFIX: PREFIX,
}


@pytest.mark.parametrize(("text", "expected"), STRIPPED.items())
def test_the_prompt_prefix_is_ours(text: str, expected: str) -> None:
    assert strip_prefix(text, PREFIX) == expected


def test_a_target_text_may_say_the_words_of_the_prefix() -> None:
    assert strip_prefix(f"{PREFIX} Is it?", PREFIX, only_if_marked=True) == f"{PREFIX} Is it?"
    assert strip_prefix(f"{PREFIX}<|endofprompt|>Is it?", PREFIX, only_if_marked=True) == "Is it?"
