"""The two languages say the same things, and a request is answered in the right one."""

import re
import string
from pathlib import Path

import pytest

from cosyui.errors import InputError
from cosyui.settings import Settings
from cosyui.ui import presets
from cosyui.ui.i18n import Dictionary, Words, both, language_of, translations
from cosyui.ui.locales import en, zh

DOCUMENTED = Path(__file__).parents[2] / "docs" / "errors.md"


def placeholders(text):
    return {name for _, name, _, _ in string.Formatter().parse(text) if name}


@pytest.mark.parametrize("table", ["PAGE", "LIVE", "OPS"])
def test_tables_have_the_same_keys_and_placeholders(table):
    english, chinese = getattr(en, table), getattr(zh, table)
    assert english.keys() == chinese.keys()
    assert [key for key in english if placeholders(english[key]) != placeholders(chinese[key])] == []


def test_labels_are_there_for_every_locale_that_the_page_sets():
    tables = translations().translations_dict
    assert tables.keys() == {"en", "zh-CN", "zh-TW"}
    assert tables["en"].keys() == tables["zh-CN"].keys()


def test_every_documented_error_is_translated():
    everything = DOCUMENTED.read_text(encoding="utf-8")
    on_the_page, command_line = everything.split("## The start")
    codes, others = (set(re.findall(r"^\| `(\w+)` \|", part, re.MULTILINE)) for part in (on_the_page, command_line))
    assert "text_empty" in codes
    assert codes - zh.ERRORS.keys() == set()
    assert zh.ERRORS.keys() - codes - others == set()


def test_every_translated_error_can_be_said():
    words = Dictionary(Settings.load(environ={}))._words["zh"]
    for code in zh.ERRORS:
        sentence = words.error(InputError(code, "as it was"))
        assert sentence
        assert "{" not in sentence


def test_unknown_code_is_said_in_english():
    assert Words("zh", {}).error(InputError("brand_new", "Do this.")) == "Do this."


@pytest.mark.parametrize(
    ("cookies", "accepted", "language"),
    [
        ({}, "", "en"),
        ({}, "zh-CN,zh;q=0.9,en;q=0.8", "zh"),
        ({}, "ZH", "zh"),
        ({}, "de,zh;q=0.9", "en"),
        ({}, "en-US,zh;q=0.9", "en"),
        ({"cosyui_lang": "zh"}, "en-US", "zh"),
        ({"cosyui_lang": "en"}, "zh-CN", "en"),
        ({"cosyui_lang": "<script>"}, "zh-CN", "zh"),
    ],
)
def test_language_of_a_request(cookies, accepted, language):
    assert language_of(cookies, accepted) == language


def test_fixed_text_is_escaped_html_in_both_languages():
    html = both("clip_hint", min=3.0, max=30.0)
    assert 'class="t-en"' in html
    assert 'class="t-zh"' in html
    assert "3 to 30 seconds" in html


def test_preset_instructions_are_different_and_end_as_sentences():
    every = [preset.instruction for group in presets.GROUPS.values() for preset in group]
    assert len(set(every)) == len(every)
    assert all(instruction[-1] in "。." for instruction in every)
