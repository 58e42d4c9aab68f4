"""Passages and the pauses between them."""

from __future__ import annotations

import pytest

from cosyui.speech.text.markdown import plain_lines
from cosyui.speech.text.passages import HEADING_PAUSE, PARAGRAPH_PAUSE, passages
from cosyui.speech.text.sanitise import sanitise
from cosyui.speech.text.tags import MAX_PAUSE, strip_tags

H, P = HEADING_PAUSE, PARAGRAPH_PAUSE
PROSE = "天黑了，他们还在路上走着。"

CUT = {
    "一行\n又一行": [("一行\n又一行", 0)],
    f"{PROSE}\n\n{PROSE}": [(PROSE, P), (PROSE, 0)],
    f"{PROSE}\n\n\n\n***\n{PROSE}": [(PROSE, P), (PROSE, 0)],
    f"# 标题\n{PROSE}": [("标题", H), (PROSE, 0)],
    f"{PROSE}\n## 标题\n{PROSE}": [(PROSE, P), ("标题", H), (PROSE, 0)],
    "第一章\n春天来了\n河边的花都开了": [("第一章", H), ("春天来了\n河边的花都开了", 0)],
    f"第十二回 归途\n{PROSE}": [("第十二回 归途", H), (PROSE, 0)],
    "Chapter 3\n\nThe rain did not stop.": [("Chapter 3", H), ("The rain did not stop.", 0)],
    "Preface\nThe rain did not stop.": [("Preface", H), ("The rain did not stop.", 0)],
    f"春夜\n{PROSE}": [("春夜", H), (PROSE, 0)],
    "床前明月光\n疑是地上霜\n举头望明月": [("床前明月光\n疑是地上霜\n举头望明月", 0)],
    "购物清单\n牛奶\n鸡蛋": [("购物清单\n牛奶\n鸡蛋", 0)],
    f"你好：\n{PROSE}": [(f"你好：\n{PROSE}", 0)],
    "第三季度增长了\n第二行。": [("第三季度增长了\n第二行。", 0)],
    f"好的。\n\n{PROSE}": [(f"好的。\n{PROSE}", 0)],
    '你好<break time="500ms"/>再见': [("你好", 0.5), ("再见", 0)],
    '你好<break time="0s"/>再见': [("你好", 0), ("再见", 0)],
    '一<break time="8s"/><break time="8s"/>二': [("一", MAX_PAUSE), ("二", 0)],
    f'{PROSE}<break time="1s"/>\n\n{PROSE}': [(PROSE, 1), (PROSE, 0)],
    '<break time="1s"/>一<break time="1s"/>': [("一", 0)],
    "": [],
    "***": [],
}


@pytest.mark.parametrize(("text", "expected"), CUT.items())
def test_passages(text: str, expected: list[tuple[str, float]]) -> None:
    lines, _ = plain_lines(strip_tags(sanitise(text), []))
    assert [(passage.text, passage.pause) for passage in passages(lines)] == expected
