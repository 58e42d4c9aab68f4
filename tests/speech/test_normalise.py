"""Written to spoken form. Expected values are what a person would read out."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cosyui.speech.markup import ALL_MARKS, MARK_PATTERN
from cosyui.speech.normalise import normalise
from cosyui.speech.sanitise import sanitise

SPOKEN = {
    "我买了705张邮票和121个信封。": "我买了七百零五张邮票和一百二十一个信封。",
    "请问你的电话号码是13800138000对吗": "请问你的电话号码是幺三八零零幺三八零零零对吗。",
    "拨打400-800-8820或者110。": "拨打四零零八零零八八二零或者幺幺零。",
    "写法是+86 138-0013-8000。": "写法是加八六幺三八零零幺三八零零零。",
    "活动从2026-03-15到2026/4/2。": "活动从二零二六年三月十五日到二零二六年四月二日。",
    "会议9:05开始。": "会议九点零五分开始。",
    "1-2月比较冷。": "一到二月比较冷。",
    "主队以3-2取胜，全场比分3:2。": "主队以三比二取胜，全场比分三比二。",
    "请复习第3-5章，每章做5-10道题。": "请复习第三到五章，每章做五到十道题。",
    "明天气温-10~5℃。": "明天气温负十到五摄氏度。",
    "标准号是GB/T 2312-80。": "标准号是GB/T二三一二杠八零。",
    "车速100km/h，加速度9.8m/s²。": "车速每小时一百公里，加速度九点八米每二次方秒。",
    "客厅25m²，用电180kW·h。": "客厅二十五平方米，用电一百八十千瓦时。",
    "转账¥1,234.50元到账了。": "转账一千二百三十四点五零元到账了。",
    "投资$1.2M，手续费€3,500。": "投资一百二十万美元，手续费三千五百欧元。",
    "第①步加½杯水。": "第一步加二分之一杯水。",
    "1/2": "二分之一。",
    "第2-3页，比分12:2": "第二到三页，比分十二比二。",
    "约1/8。": "约八分之一。",
    "H₂O是水。": "H二O是水。",
    "请升级到v2.0.1再重启。": "请升级到v二点零点一再重启。",
    "服务器在192.168.1.20。": "服务器在一九二点一六八点一点二零。",
    "写信到info@example.org就行。": "写信到info at example点org就行。",
    "用A4纸和5G网络。": "用A4纸和5G网络。",
    "题目是A SIMPLE METHOD FOR READING，很好。": "题目是a simple method for reading，很好。",
    "已知3×4=12，6÷2=3，a≥b，x≠y。": "已知三乘四等于十二，六除以二等于三，a大于等于b，x不等于y。",
    "范围是1<x<5。": "范围是一小于x小于五。",
    "2026": "两千零二十六。",
    "好的": "好的。",
    "卡号1234567890123456对": "卡号一二三四五六七八九零一二三四五六对。",
    "你好 世界，hello world 再见": "你好世界，hello world再见。",
    "？”她小声问道。": "她小声问道。",
    "购物清单\n牛奶\n鸡蛋": "购物清单。牛奶。鸡蛋。",
    "以逗号结尾，、，": "以逗号结尾。",
    "I bought 705 stamps.": "I bought seven hundred and five stamps.",
    "Shopping list\nmilk\neggs": "Shopping list. milk. eggs.",
    "No.": "No.",
    "x² grows, and 2^10 = 1024.": "x squared grows, and two to the power of ten equals ten twenty four.",
    "Write to info@example.org.": "Write to info at example dot org.",
    "the 1990s": "the nineteen nineties.",
    'He said "stop" and left.': "He said stop and left.",
    "Turn 90° now": "Turn ninety degrees now.",
    "我说5。I said 5.": "我说五。I said five.",
    "오늘은 3월 5일입니다.": "오늘은 3월 5일입니다.",
    "Завтра 40 минут": "Завтра 40 минут.",
    "わたしの妹は25歳です": "わたしの妹は25歳です。",
}


@pytest.mark.parametrize(("text", "expected"), SPOKEN.items())
def test_spoken_form(text: str, expected: str) -> None:
    assert normalise(text) == expected


def test_language_of_digits_alone_comes_from_the_caller() -> None:
    assert normalise("110", "en") == "one hundred and ten."
    assert normalise("3.14", "zh") == "三点一四。"


@pytest.mark.parametrize("url", ["www.example.com/help?id=7", "https://example.com/" + "a" * 60])
def test_an_address_ends_no_sentence(url: str) -> None:
    spoken = normalise(f"打开{url}查看帮助。")
    assert spoken.count("。") == 1
    assert spoken.endswith("查看帮助。")
    assert "http" not in spoken


def test_a_long_link_is_named_not_read() -> None:
    assert normalise("打开https://example.com/" + "a" * 60 + "查看。") == "打开链接查看。"


@pytest.mark.parametrize("mark", sorted(ALL_MARKS))
def test_the_models_marks_survive(mark: str) -> None:
    assert mark in normalise(f"他说{mark}，好的3。")
    assert mark in normalise(f"he said {mark}, fine.")


# Signs and digits in every order are where the rules could raise, loop or lose a mark.
PARTS = ["年", "月", "第", "比分", "km/h", "m/s²", "www.", "@", "[breath]", "a", "B2B", "你", "<strong>", "[h]"]
SIGNS = st.lists(st.sampled_from([*"0123456789.,:-~/%$€¥²½①°×=<>()[]\n *#", *PARTS]), max_size=25).map("".join)


@settings(max_examples=150, deadline=None)
@given(SIGNS | st.text(max_size=30), st.sampled_from([None, "zh", "en", "ja"]))
def test_never_raises_and_keeps_marks_in_order(text: str, language: str | None) -> None:
    clean = sanitise(text)
    spoken = normalise(clean, language)
    assert "\n" not in spoken
    assert MARK_PATTERN.findall(spoken) == MARK_PATTERN.findall(clean)


@settings(max_examples=100, deadline=None)
@given(st.text(alphabet="今天気温歷史呃啊佢叻，。0123", min_size=1, max_size=30))
def test_no_han_character_is_lost(text: str) -> None:
    han = [char for char in text if "\u4e00" <= char <= "\u9fff"]
    spoken = iter(normalise(text, "zh"))
    assert all(char in spoken for char in han)
