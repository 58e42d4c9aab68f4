"""Reading rules for Chinese sentences: the order of the kinds, arithmetic, the numbers that are left, and signs."""

from __future__ import annotations

import re

from cosyui.speech.reading.han import han_table
from cosyui.speech.reading.numbers_zh import cardinal, digits, number
from cosyui.speech.reading.rules import (
    CIRCLED,
    CIRCLED_CLASS,
    FILE,
    LONG_URL,
    MAIL,
    URL,
    N,
    Rule,
    apply,
    fold,
    lower_titles,
    roman,
)
from cosyui.speech.reading.rules_zh_amounts import FRACTIONS, LENGTHS, MONEY, PERCENT, RANGES, SCORES, UNIT_RULES
from cosyui.speech.reading.rules_zh_codes import CODES, NAMES, NUMBERED
from cosyui.speech.reading.rules_zh_math import FORMULAS, MATH
from cosyui.speech.reading.rules_zh_times import TIMES
from cosyui.speech.reading.units_zh import MEASURES

_HAN = r"\u3400-\u9fff\U00020000-\U0003ffff"
_ADDRESS_SIGNS = {
    ".": "点", "/": "斜杠", "\\": "反斜杠", "?": "问号", "=": "等于", "&": "和", "@": " at ", "-": "杠", "_": "下划线",
    ":": "冒号", "#": "井号", "%": "百分号", "~": "波浪号", "+": "加", "!": "感叹号", "$": "美元符", "*": "星号",
    ";": "分号",
}  # fmt: skip


def _address(match: re.Match[str]) -> str:
    """An address as it is read out; a long link is only named."""
    text = re.sub(r"^(?:https?|ftp)://", "", match[0])
    if len(text) > LONG_URL and "@" not in text:
        return "链接"
    return "".join(_ADDRESS_SIGNS.get(char, char) for char in digits(text.rstrip("/") if "://" in match[0] else text))


_THINGS = "第选图式题项表见步号答按点击"
_BESIDE_CIRCLED = rf"[步号题项个组班和与或到至及式图、，。）)]|{CIRCLED_CLASS}"
_ADDRESSES: tuple[Rule, ...] = ((MAIL, _address), (URL, _address), (FILE, _address))


def _next_item(match: re.Match[str]) -> str:
    """A circled number between words goes on with a list that another one has begun."""
    number = CIRCLED[match[1]]
    begun = re.search(CIRCLED_CLASS, match.string[max(0, match.start() - 60) : match.start()])
    return f"，{number}，" if begun else number


_PREPARED = han_table(
    # A circled number begins an item of a list unless the words beside it make it a thing: 第①步, 选②.
    (rf"(?<=[{_HAN}])(?<![{_THINGS}是和与或到至及]) ?({CIRCLED_CLASS}) ?(?=[{_HAN}])(?!{_BESIDE_CIRCLED})",
     _next_item),
    (rf"^({CIRCLED_CLASS}) ?(?!{_BESIDE_CIRCLED}|$)", lambda m: f"{CIRCLED[m[1]]}，"),
    (rf"([\s，。！？；：:、,)）]) ?({CIRCLED_CLASS}) ?(?!{_BESIDE_CIRCLED}|$)", lambda m: f"{m[1]}{CIRCLED[m[2]]}，"),
    (rf"({CIRCLED_CLASS})(?={CIRCLED_CLASS}|[0-9])", lambda m: f"{CIRCLED[m[1]]}、"),
    (CIRCLED_CLASS, lambda m: CIRCLED[m[0]]),
    (r"(?<![0-9.])[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])", lambda m: m[0].replace(",", "")),
    (r"(?<![0-9.] )(?<![0-9.])[1-9][0-9]{0,2}(?: [0-9]{3}){1,4}(?=[元人米吨]|公里|美元|平方)",
     lambda m: m[0].replace(" ", "")),
    (rf"(?<=[{_HAN}]) (?=[0-9]{{1,2}}[、.)）])", "，"),
    (r"(?<![A-Za-z])(?:[Nn][Oo]\.|№) ?(?=[0-9])", "第"),
    (r"#(?=[0-9]{1,4}(?![0-9A-Za-z]))", "第"),
    (r"第([IVXLC]{1,6})(?![A-Za-z])", lambda m: f"第{roman(m[1]) or m[1]}"),
    (r"#([^#\s，。！？；]{1,30})#", r"\1，"),
    (r"(?<=[A-Z])#", " sharp"),
    (rf"(?<=[{_HAN}])[(（]([0-9]{{1,2}})[)）](?=班)", r"\1"),
    (r"(?<=《)[0-9]{4}(?![0-9年])", lambda m: digits(m[0])),
    (r"@(?=[\w])", "艾特"),
)  # fmt: skip


_MINUS = han_table(
    (rf"(?<![0-9A-Za-z)）]) ?[-–] ?(?=[0-9])(?={N}(?:到-?{N})? ?(?:摄氏度|度))", "零下"),
    (r"(?<![0-9A-Za-z)）])[-–](?=[0-9])", "负"),
)

_SHORT_COUNT = rf"(?:多|来|余|几|个)?(?:{MEASURES})"
_NUMBERS = han_table(
    (r"(?<=第)0+(?=[1-9])", ""),
    (r"(?<=第)[0-9]{1,8}(?:[、和到至][0-9]{1,8}){1,8}(?![0-9.])",
     lambda m: re.sub("[0-9]+", lambda n: cardinal(n[0]), m[0])),
    (rf"(?<![0-9.第初周十百千])2(?=(?: ?(?:到|至|或|、)[0-9]{{1,3}}(?:\.[0-9]+)?)?{_SHORT_COUNT})", "两"),
    (r"(?<![0-9.第初])2(?=点(?![0-9](?![0-9]?分)))", "两"),
    (r"(?<![0-9A-Za-z])\.(?=[0-9])", "0."),
    (rf"[0-9]{{9,}}+(?!\.[0-9]|{_SHORT_COUNT})",
     lambda m: cardinal(m[0]) if m[0][5:].strip("0") == "" else digits(m[0])),
    (N, lambda m: number(m[0])),
)  # fmt: skip

_FINISH = han_table(
    # Brackets set off, quotation marks do not.
    (r"[》」』”][、， ]?(?=[《「『“])", "、"),
    (r"[《》「」『』〈〉“”„«»\"]|(?<![A-Za-z])[‘’']|[‘’'](?![A-Za-z])", ""),
    (r" ?[（(【〔［\[{]+ ?", "，"),
    (r" ?[）)】〕］\]}]+ ?", "，"),
    (r" ?(?:—+|…+|⋯+|\.{2,}|–+|-{2,}) ?| [-/|] ?|(?<=[^\x00-\x7f])[-|] ?|[-|](?=[^\x00-\x7f])", "，"),
    (r"(?<=[A-Z])/(?=[A-Z])|(?<=[a-z])/(?=[零一二三四五六七八九十])|_", " "),
    (r" ?/ ?", "、"),
)  # fmt: skip
_PUNCTUATION = han_table(
    # What has no sound: every sign but the punctuation that shapes speech.
    (r"[^\w，。！？；：、,.!?;:'’ -]|(?<![A-Za-z])-|-(?![A-Za-z])", ""),
    # Of several marks in a row the strongest stays.
    (r"[，、：, ]+(?=[，。！？；、：,.!?;:])", ""),
    # ASCII punctuation beside Chinese becomes Chinese.
    (rf"(?<=[{_HAN}]) ?[:：] ?", "："),
    (rf"(?<=[{_HAN}]) ?, ?|, ?(?=[{_HAN}])", "，"),
    (rf"(?<=[{_HAN}])\.(?=$|[ {_HAN}])|\. ?(?=[{_HAN}])", "。"),
    (rf"(?<=[{_HAN}]) ?!+|! ?(?=[{_HAN}])", "！"),
    (rf"(?<=[{_HAN}]) ?\?+|\? ?(?=[{_HAN}])", "？"),
    (rf"(?<=[{_HAN}]) ?; ?|; ?(?=[{_HAN}])", "；"),
    (r"[，、：]+(?=[，。！？；、：,.!?;:])", ""),
    (r"(?<=[。！？；])[，、：,。.；]+", ""),
    # No blank beside Chinese.
    (r"(?<=[^\x00-\x7f]) +| +(?=[^\x00-\x7f])", ""),
)  # fmt: skip


_PLAIN = re.compile(rf"[{_HAN}，。！？；：、]*")
"""What no rule changes: most of a novel."""
_ORDER = (
    _PREPARED, NUMBERED, SCORES, TIMES, CODES, FORMULAS, LENGTHS, RANGES, MONEY, PERCENT, FRACTIONS, UNIT_RULES, MATH,
    _MINUS, NAMES, _NUMBERS, _FINISH,
)  # fmt: skip


def prepare(text: str) -> str:
    """A text with its addresses, links and file names as they are read out, and titles in capitals made small."""
    return lower_titles(apply(text, _ADDRESSES))


def read(text: str) -> str:
    """A Chinese stretch of prepared text in spoken form; English words in it stay."""
    if _PLAIN.fullmatch(text):
        return text
    text = fold(text)
    for rules in _ORDER:
        text = apply(text, rules)
    return lower_titles(text)


def finish(text: str) -> str:
    """Chinese punctuation beside Chinese, no blank beside it, no sign without sound."""
    return apply(text, _PUNCTUATION)
