"""Markdown to plain lines: only the prose is left, and what is a heading or a gap is known."""

from __future__ import annotations

import pytest

from cosyui.speech.text.markdown import Kind, plain_lines

PLAIN = {
    "# 今日要点\n- **天气**：晴\n- `代码`已提交": ["# 今日要点", "天气：晴", "代码已提交"],
    "## Plan ##\n* **Step one**: read [the guide](https://example.com)": ["# Plan", "Step one: read the guide"],
    "##标题\n#话题": ["# 标题", "#话题"],
    "- a\n  - b\n    * c\n+ d\n• e\n•f": ["a", "b", "c", "d", "e", "f"],
    "1. 喝水\n2) two\n3.吃饭\n3.14": ["1, 喝水", "2, two", "3, 吃饭", "3.14"],
    "- [x] done\n- [ ] open": ["done", "open"],
    "> > quoted\n>also": ["quoted", "also"],
    "| 名称 | 数量 |\n|:---|---:|\n| 苹果 | 3 |": ["名称，数量", "苹果，3"],
    "Home | News | About": ["Home, News, About"],
    "Title\n=====\n\ntext": ["# Title", "", "text"],
    "a\n\n***\n---\n___\nb": ["a", "", "", "", "", "b"],
    "句子。\n---\n下文": ["句子。", "", "下文"],
    "```\n床前明月光\n疑是地上霜\n```": ["床前明月光", "疑是地上霜"],
    "```markdown\n# A\nb\n```": ["# A", "b"],
    "前\n```python\nx = 1\nprint(x)\n```\n后": ["前", "", "后"],
    "~~~\nint main() {\n  return 0;\n}\n~~~\nb": ["", "b"],
    "```\nnever closed": ["never closed"],
    '![alt](a.png "title") and <https://a.b/c>, <me@x.org>': ["alt and https://a.b/c, me@x.org"],
    "see [this][1] and [that][]\n\n[1]: http://a.b\n[that]: /c 'd'": ["see this and that", ""],
    "[Alice]: hi there": ["[Alice]: hi there"],
    "note[^1]\n[^1]: the note": ["note", "the note"],
    "[h][ǎo]的[breath](轻)[注](见下文)": ["[h][ǎo]的[breath](轻)[注](见下文)"],
    "snake_case_name 2*3*4 2**10 *hi* _so_ ==well== ~~old~~": ["snake_case_name 2*3*4 2^10 hi so well old"],
    "非常**重要**的***事***": ["非常重要的事"],
    r"\*no\* 1\. yes": ["no 1. yes"],
    "5~10, 5 - 3, -5度": ["5~10, 5 - 3, -5度"],
}


@pytest.mark.parametrize(("text", "expected"), PLAIN.items())
def test_plain_lines(text: str, expected: list[str]) -> None:
    lines = [line for line in plain_lines(text)[0] if line.text or line.kind is Kind.GAP]
    assert [f"# {line.text}" if line.kind is Kind.HEADING else line.text for line in lines] == expected


def test_gaps_are_told_from_rows_without_words() -> None:
    kinds = [line.kind for line in plain_lines("a\n\nb\n|---|\n***")[0]]
    assert kinds == [Kind.TEXT, Kind.GAP, Kind.TEXT, Kind.TEXT, Kind.GAP]


@pytest.mark.parametrize(("text", "dropped"), [("```js\nlet a\nlet b\n```", 2), ("```\n诗\n```", 0), ("x = 1", 0)])
def test_lines_of_code_are_counted(text: str, dropped: int) -> None:
    assert plain_lines(text)[1] == dropped
