"""The gate: the same text has the same code on every route, before any queue or engine."""

from __future__ import annotations

import pytest
from made_requests import TRANSCRIPT, request

from cosyui.engine.request import Mode
from cosyui.errors import InputError
from cosyui.model.tokenizer import TextTokenizer
from cosyui.service.checks import form_problems
from cosyui.service.types import TakeForm
from cosyui.settings import Settings
from cosyui.speech.prompt_format import TextFrontend
from cosyui.speech.text.screen import HARD_CHARS, TextRules, has_speech, screen

EMPTY = [
    "",
    " \n\t\u3000",
    "\u200b\u200d\ufeff",
    "😀🎉",
    "(^_^)",
    "<|endofprompt|>",
    "You are a helpful assistant.<|endofprompt|>",
]
SIGNS = [
    "。。。！？",
    "……——（）《》",
    '"?!"',
    "***",
    "[laugh]",
    "<strong></strong>",
    "# ",
    "<speak></speak>",
    "[h]",
    "- - -",
]


def code_of(text: str, field: str) -> str:
    with pytest.raises(InputError) as caught:
        screen(text, TextRules(field=field))
    assert caught.value.field == field
    return caught.value.code


@pytest.mark.parametrize("text", EMPTY)
def test_nothing_at_all(text: str) -> None:
    assert code_of(text, "text") == "text_empty"
    assert code_of(text, "transcript") == "transcript_missing"
    assert code_of(text, "instruction") == "instruction_missing"


@pytest.mark.parametrize("text", SIGNS)
def test_nothing_to_speak(text: str) -> None:
    assert code_of(text, "text") == "text_nothing_to_speak"
    assert code_of(text, "transcript") == "transcript_missing"
    assert code_of(text, "instruction") == "instruction_missing"


@pytest.mark.parametrize("field", ["text", "transcript", "instruction"])
def test_too_long(field: str) -> None:
    with pytest.raises(InputError, match=r"11 characters.*at most 10") as caught:
        screen("好" * 11, TextRules(field=field, max_chars=10))
    assert caught.value.code == f"{field}_too_long"
    assert screen("好" * 10 + "\u200b😀", TextRules(field=field, max_chars=10))
    assert code_of("\u200b" * (HARD_CHARS + 1), field) == f"{field}_too_long"


def routes(text: str, mode: Mode, transcript: str, instruction: str, language: str | None, tokenizer: TextTokenizer):
    """The first problem of the form's check and that of the engine's own text path."""
    form = TakeForm(text=text, mode=mode, transcript=transcript, instruction=instruction, language=language)
    found = form_problems(form, Settings.load({"max_chars": 2_000}, {}))
    asked = request(text, mode, transcript=transcript, instruction=instruction, language=language)
    try:
        TextFrontend(tokenizer).segments(asked)
    except InputError as error:
        return found[0].code if found else None, error.code
    return found[0].code if found else None, None


TEXTS = [
    *EMPTY,
    *SIGNS,
    "好的。",
    "<break time='1s'/>",
    "[breath]",
    "You are a helpful assistant.",
    "1",
    "```\nx = 1;\n```",
]


@pytest.mark.parametrize("text", TEXTS)
def test_the_form_and_the_engine_say_the_same(toy_tokenizer: TextTokenizer, text: str) -> None:
    for mode in Mode:
        by_form, by_engine = routes(text, mode, TRANSCRIPT, "慢一点。", None, toy_tokenizer)
        assert by_form == by_engine
    assert len(set(routes("好", Mode.ZERO_SHOT, text, "", None, toy_tokenizer))) == 1
    assert len(set(routes("好", Mode.INSTRUCT, "", text, None, toy_tokenizer))) == 1


@pytest.mark.parametrize(
    ("transcript", "instruction", "mode", "language", "code"),
    [
        ("好" * 601, "", Mode.ZERO_SHOT, None, "transcript_too_long"),
        ("", "慢" * 201, Mode.INSTRUCT, None, "instruction_too_long"),
        (TRANSCRIPT, "", Mode.ZERO_SHOT, "xx", "language_invalid"),
        ("", "", Mode.CROSS_LINGUAL, None, None),
    ],
)
def test_the_other_fields_have_one_code_too(
    toy_tokenizer: TextTokenizer, transcript: str, instruction: str, mode: Mode, language: str | None, code: str | None
) -> None:
    assert routes("好。", mode, transcript, instruction, language, toy_tokenizer) == (code, code)


def test_what_makes_sound() -> None:
    assert [has_speech(text) for text in ("a", "1", "[breath]", "<strong>好</strong>")] == [True] * 4
    assert [has_speech(text) for text in ("", "。", "<strong></strong>", "_")] == [False] * 4


def test_remarks_of_the_gate() -> None:
    screened = screen("先[laugh]后。\n```python\nx = 1\n```\n", TextRules())
    assert [remark.code for remark in screened.warnings] == ["mark_wrong", "code_left_out"]
    assert screen("مرحبا بكم", TextRules()).warnings[0].code == "language_unknown"
    with pytest.raises(InputError, match="Arabic"):
        screen("مرحبا بكم", TextRules(languages=("zh", "en")))
