"""Chinese: scores and ranges, money, percent, units and fractions. The numbers in them stay digits for `rules_zh`."""

from __future__ import annotations

import re
from decimal import Decimal

from cosyui.speech.reading.han import han, han_table
from cosyui.speech.reading.numbers_zh import cardinal, digits, fraction, number
from cosyui.speech.reading.rules import END, START, N, clause_after, clause_before, either
from cosyui.speech.reading.units_zh import CURRENCY_CODES, CURRENCY_SIGNS, MEASURES, PER, UNITS

_WON = han(
    "[的 ]?(?:战胜|击败|取胜|获胜|大胜|险胜|完胜|小胜|逆转|领先|落后|淘汰|横扫|力克|告负|惜败|落败|不敌|惨败|负于|"
    "战平|打平|握手言和|平(?![方米均])|胜|负(?!责)|赢|输|晋级|夺冠|拿下|绝杀|击退)"
)
_SCORED = han(r"(?:比分|战绩|战成|打成|踢成|总分|扳成|追成|改写|局分|赛果|比为)[^0-9]{0,6}$")
_BY = han(r"(?:以|结果)[^0-9]{0,6}$")
_GAME = han(
    "主队|客队|球队|国足|女排|男篮|女足|男足|比分|对阵|决赛|半场|全场|赢了|输了|输给|赢下|战平|打平|获胜|领先|落后|比赛|"
    "球赛|[一二三四首末]局|[一二三四]盘|小组赛|淘汰赛|联赛|大胜|险胜|惜败|逆转"
)
_RESULT = han(f"{_WON.pattern}|比分|优势|成绩|小分")
_COUNTED = han(f" ?(?:{MEASURES}|[点号楼级路期班折]|{either(UNITS)})")
_TO = r" ?(?:-|–|—{1,2}|~{1,2}) ?"
_FREE = r"(?<![0-9A-Za-z.:/-])"
_DONE = r"(?![0-9A-Za-z]|[.:/-][0-9])"


def _score(match: re.Match[str]) -> str:
    """3-2 or 21:15 as a score, where the clause speaks of a game and counts nothing by it."""
    before, after = clause_before(match), clause_after(match)
    told = _SCORED.search(before) or (_BY.search(before) and _RESULT.search(after))
    played = re.search("[-–—]", match[0]) and _GAME.search(before + "|" + after)
    if not _WON.match(after) and (_COUNTED.match(after) or not (told or played)):
        return match[0]
    return "，".join(_versus(pair) for pair in re.split(r" ?[,，、和] ?", match[0]))


def _versus(pair: str) -> str:
    return "比".join(cardinal(side.strip()) for side in re.split("[-–—:]", pair))


_PAIR = r"[0-9]{1,3} ?[-–—:] ?[0-9]{1,3}"
SCORES = han_table(
    (rf"{_FREE}{_PAIR}(?:[,，、和] ?{_PAIR}){{0,6}}{_DONE}(?![月日%])", _score),
)


def _span(match: re.Match[str]) -> str:
    """A span goes up; 102-98 of nothing is a score."""
    whole = match[1].isdecimal() and match[2].isdecimal() and not match[3]
    return f"{match[1]}{'比' if whole and '-' in match[0] and int(match[1]) >= int(match[2]) else '到'}"


_MEASURED = rf"(?:{MEASURES}|[月日号点度级折楼路期班]|{either(UNITS)}|[kKMBwW]|%|‰)"
RANGES = han_table(
    (rf"{START}({N}) ?({_MEASURED}){_TO}(?=[-+]?(?:{either(CURRENCY_SIGNS)})?[0-9])", r"\1\2到"),
    (rf"第({N}){_TO}第?(?={N})", r"第\1到"),
    (rf"(?<![A-Za-z0-9/])([0-9]{{1,2}}/[0-9]{{1,2}}){_TO}(?=[0-9])", r"\1到"),
    (rf"(?<![0-9A-Za-z.)/])({N}){_TO}(?=(-?{N}) ?({_MEASURED})?(?!-?[0-9A-Z]*-))(?!-?{N} ?[=×÷])", _span),
    (rf"(?<=到)({N}){_TO}(?={N})", r"\1到"),
    (r"(?<=周[一二三四五六日])[-–—~](?=周?[一二三四五六日])", "到"),
    (r"(?<=[一二三四五六七八九十]月)[-–—~](?=[一二三四五六七八九十])", "到"),
    # Ratios: what is left with colons is no time of day.
    (rf"(?<![0-9A-Za-z.:]){N}(?: ?: ?{N}){{1,4}}(?![0-9A-Za-z:])",
     lambda m: "比".join(number(part.strip()) for part in m[0].split(":"))),
)  # fmt: skip

_SCALES = {"k": 3, "K": 3, "m": 6, "M": 6, "mn": 6, "b": 9, "B": 9, "bn": 9, "T": 12}
_OWN = r"(?P<own> ?(?:美元|美金|元|块钱|块|人民币|欧元|英镑|日元|日币|港元|港币))?"
_SCALE = r"(?: ?(?P<{}>[kKMBT](?![A-Za-z])|[bm]n?(?![A-Za-z])|[十百千万亿]+))?"


def _scaled(value: str, scale: str | None) -> str:
    """1.2 and M are 1200000; 万 and the like stay behind the number. Hundredths of .00 are not said."""
    value = value.removesuffix(".00")
    if scale in _SCALES:
        return f"{(Decimal(value) * 10 ** _SCALES[scale]).normalize():f}"
    return value + (scale or "")


def _money(match: re.Match[str]) -> str:
    parts = match.groupdict()
    name = parts.get("sign") or parts.get("code") or ""
    unit = CURRENCY_SIGNS.get(name) or CURRENCY_CODES[name]
    own = (parts.get("own") or "").strip()
    if own and (own != "元" or unit == "元人民币"):
        unit = own
    minus = "负" if "-" in match[0][: match.start("n") - match.start()] else ""
    amount = _scaled(parts["n"], parts["scale"])
    if parts.get("n2"):
        amount += f"到{_scaled(parts['n2'], parts['scale2'])}"
    return f"{minus}{amount}{unit}"


_SIGN = rf"(?P<sign>{either(CURRENCY_SIGNS)})"
_CODE = rf"(?P<code>{either(CURRENCY_CODES)})"
_FIRST = rf"(?P<n>{N}){_SCALE.format('scale')}"
_SECOND = rf"(?:(?:{_TO}|到|至)(?:{either(CURRENCY_SIGNS)})?(?P<n2>{N}){_SCALE.format('scale2')})?"
MONEY = han_table(
    (rf"(?:(?<![0-9A-Za-z)])[-+])?(?<![A-Za-z]){_SIGN} ?-?{_FIRST}{_SECOND}{_OWN}", _money),
    (rf"(?<![A-Za-z]){_CODE} ?{_FIRST}{_SECOND}{_OWN}", _money),
    (rf"{START}{_FIRST} ?(?:{_SIGN}|{_CODE}(?![A-Za-z]))", _money),
    (rf"(?<=[元块镑铢])/(?:({either(UNITS | PER)})(?:\^([23]))?(?![A-Za-z])|(?=[\u4e00-\u9fff]))",
     lambda m: "每" + (_raised(m[1], m[2] or "") if m[1] else "")),
    (r"(?<=[0-9]{2})[wW]\+", "万以上"),
)  # fmt: skip


def _percent(match: re.Match[str]) -> str:
    sign = {"-": "负", "+": "正", "±": "正负"}.get(match["sign"] or "", "")
    share = "百" if match["n"] == "100" else number(match["n"])
    return f"{sign}{'百' if match['mark'] == '%' else '千'}分之{share}"


PERCENT = han_table(
    (rf"({N})到(?=[-+]?{N} ?(%|‰))", r"\1\2到"),
    (rf"(?P<sign>(?<![0-9A-Za-z])[-+±])?(?<![0-9A-Za-z.])(?P<n>{N}) ?(?P<mark>[%‰])", _percent),
    (r"([A-Za-z]|[零一二三四五六七八九十百千两点]{1,12})(?:%)", r"百分之\1"),
    (r"(?<![0-9.])([1-9][1-9])(?=折(?!叠|扣|线|页))", lambda m: digits(m[1])),
)  # fmt: skip

_POWER = r"(?:\^?-?[1-4](?![0-9]))?"
_UNIT, _UNDER = (rf"(?:{either(units)}){_POWER}" for units in (UNITS, UNITS | PER))
_SPELLED = r"(?![A-Za-z0-9_])(?!-[A-Za-z0-9])"
_ONE_UNIT = re.compile(rf"(?P<unit>{either(UNITS | PER)})\^?(?P<power>-?[1-4])?$")


def _unit(match: re.Match[str]) -> str:
    """A unit or a quotient of units: km/h 公里每小时, m/s^2 米每二次方秒, kg/m^3 千克每立方米."""
    compact = match["unit"].replace("·", "")
    if compact in UNITS:
        name = UNITS[compact]
        return number(match["n"]) + name if name.isascii() else match["n"] + name
    words, divided = match["n"], False
    for sign, part in re.findall(r"([·/]?)([^·/]+)", match["unit"]):
        one = _ONE_UNIT.match(part)
        if one is None:  # L/100km
            words += "每百公里"
            continue
        divided = divided or sign == "/"
        power = one["power"] or ""
        words += ("每" if sign == "/" or (power.startswith("-") and not divided) else "") + _raised(one["unit"], power)
    return words


def _raised(unit: str, power: str) -> str:
    name = (UNITS | PER)[unit]
    power = power.lstrip("-")
    if unit in ("s", "h", "min") and power in ("2", "3"):
        return f"{cardinal(power)}次方{name}"
    return {"2": "平方", "3": "立方"}.get(power, "") + name


def _primes(match: re.Match[str]) -> str:
    """6'2" is a height, 1'30" a time."""
    first, second = match[1], match[2]
    running = re.search("跑|成绩|用时|时间|配速|纪录|记录|时长|片长", clause_before(match))
    if 3 <= int(first) <= 8 and int(second) < 12 and second[0] != "0" and not running:
        return f"{first}英尺{second}英寸"
    return f"{first}分{second}秒"


LENGTHS = han_table(
    (rf"{START}([0-9]{{1,2}})['′]([0-5]?[0-9])(?:″|\"|'')", _primes),
    (r"(?<![0-9.])([0-9]{1,2})[\"″]([0-9]{2})(?![0-9])", lambda m: f"{m[1]}秒{digits(m[2])}"),
    (rf"({N})°([0-9]{{1,2}})′(?:({N})″)?", lambda m: f"{m[1]}度{m[2]}分" + (f"{m[3]}秒" if m[3] else "")),
    (r"(?<=[0-9])(?:″|''|\"(?= ?的?(?:屏|电视|显示|平板|笔记本|轮|管|蛋糕|披萨|手机))|\"(?=[^\"]*$)(?<!\"[^\"]\"))",
     "英寸"),
    (r"(?<=[0-9])′", "英尺"),
    # 1米85, 9秒83: what follows the unit are its decimals.
    (rf"(?<=[0-9][米秒])([0-9]{{1,2}})(?![0-9.%]|{MEASURES})", lambda m: digits(m[1])),
)  # fmt: skip
UNIT_RULES = han_table(
    # 5A级 and 5g网络 have no units.
    (rf"{START}(?P<n>{N}) ?(?P<unit>{_UNIT}(?:[·/]{_UNDER}|/100km)*){_SPELLED}"
     r"(?!(?<=A)[\u4e00-\u9fff](?<![的电以左及和快])|(?<=g)(?:网络|手机|时代|信号|基站|套餐|流量))", _unit),
    # Without a number: 单位是km/h, 每m^2.
    (rf"(?<![A-Za-z0-9])(?P<n>)(?P<unit>(?:km|m|g|kg|mg|L|W|J|N)/(?:h|s|min|L|kg|m|cm)(?:\^?-?[23])?){_SPELLED}",
     _unit),
    (r"(?<![A-Za-z0-9])(?P<n>)(?P<unit>(?:km|cm|mm|dm|m)\^[23])(?![0-9])", _unit),
    (r"([0-9](?:[\u4e00-\u9fff]{1,3})?)/(?=[\u4e00-\u9fff])", r"\1每"),
    ("℃|°C", "摄氏度"),
    ("℉|°F", "华氏度"),
)  # fmt: skip
FRACTIONS = han_table(
    (rf"{START}([0-9]{{1,4}}) ([0-9]{{1,3}})[/⁄]([0-9]{{1,4}}){END}", lambda m: f"{m[1]}又{fraction(m[2], m[3])}"),
    (r"([0-9]{1,4})⁄([0-9]{1,4})", lambda m: fraction(m[1], m[2])),
    (rf"(?<![0-9A-Za-z./-])24/7{END}|7[×xX*]24小时", "七乘二十四小时"),
    (rf"(?<![0-9A-Za-z./])([0-9]{{1,5}})/([0-9]{{1,5}}){END}(?!/)", lambda m: fraction(m[1], m[2])),
)  # fmt: skip
