"""Chinese: dates, years, times of day and durations."""

from __future__ import annotations

import re

from cosyui.speech.reading.han import han, han_table
from cosyui.speech.reading.numbers_zh import cardinal, digits, number
from cosyui.speech.reading.rules import HOURS_MINUTES, MINUTES_SECONDS, START, clause_before
from cosyui.speech.reading.units_zh import MEASURES

_YEAR = r"(?P<y>[12][0-9]{3})"
_MONTH = r"(?P<m>0?[1-9]|1[0-2])"
_DAY = r"(?P<d>0?[1-9]|[12][0-9]|3[01])"
_FREE = r"(?<![0-9A-Za-z./-])"
_NO_NUMBER = r"(?![0-9]|[.:/-][0-9])"
_TO = r" ?(?:-|–|—{1,2}|~|至|到) ?"
_HOUR = r"(?:[01]?[0-9]|2[0-4])"
_CLOCK = rf"(?P<h>{_HOUR}):(?P<min>[0-5][0-9])(?::(?P<s>[0-5][0-9])(?:\.[0-9]+)?)?"
_AM = r"(?: ?(?P<half>[AaPp]\.?[Mm]\b\.?))?"
_HALVES = "凌晨|清晨|早晨|早上|早|上午|中午|下午|傍晚|晚上|晚|夜里|半夜|午后"
_DATE_BEFORE = han(
    r"(?:日期|生日|截止|截至|时间|于|自|从|到|至|在|(?:周|星期)[一二三四五六日天]|每年|今年|明年|去年)[是为:： ]{0,2}$"
)
_DEADLINE = han("(?:日期|生日|截止|截至)[是为到至:： ]{0,2}$")
_COUNTED = han(rf" ?(?:{MEASURES}|[点时日月号路楼级折期班室%℃°])")
_DATE_AFTER = han(
    r" ?(?:前|起|之前|以前|之后|以后|当天|当日|截止|截稿|开始|开放|开业|放假|营业|发布|发售|上线|出发|到期|生效|举行|"
    r"凌晨|早|上午|中午|下午|晚|[(（]?(?:周|星期))"
)
_YEARLY = "年|届|级|款|版|赛季|财年|学年|世界杯|奥运|欧洲杯|亚运|春晚|冬奥|春季|夏季|秋季|冬季|高考|国庆|元旦|春节"
_SPAN_OF_YEARS = han(
    r"(?:多|余|来)?年(?:[之以]?[前后来间内]|的?(?:历史|时间|寿命|跨度)|之久|一遇|老店|古城|古都|古镇|文明|大计|徒刑)"
)
_LASTING = han(r"(?:有|近|约|过|了|达|长达|将近|超过|历时|历经|大约|距今|上下|前后|整整|用|要|花|需)$")


def _date(match: re.Match[str]) -> str:
    parts = match.groupdict()
    words = f"{digits(parts['y'])}年" if parts.get("y") else ""
    words += f"{cardinal(str(int(parts['m'])))}月"
    return words + (f"{cardinal(str(int(parts['d'])))}日" if parts.get("d") else "")


def _month_day(match: re.Match[str]) -> str:
    """3/15 or 03-15, where the words around it or its form speak for a date; else it stays for fractions and spans."""
    day = int(match["d"])
    before, after = clause_before(match), _DATE_AFTER.match(match.string, match.end())
    padded = "0" in (match["m"][0], match["d"][0])
    fraction = (day <= 10 or day in (12, 16, 20)) and int(match["m"]) < day and not _DATE_BEFORE.search(before)
    if _COUNTED.match(match.string, match.end()):
        return match[0]
    slashed = match["sign"] == "/" and not fraction
    return _date(match) if after or padded or slashed or _DEADLINE.search(before) else match[0]


def _clock(match: re.Match[str]) -> str:
    parts = match.groupdict()
    hour, minute, second = int(parts["h"]), int(parts.get("min") or 0), int(parts.get("s") or 0)
    if second and re.search("用时|耗时|成绩|时长|片长|全程|跑|历时|纪录", clause_before(match)):
        return f"{hour}小时{number(parts['min'])}分{number(parts['s'])}秒"
    words = f"{'两' if hour == 2 else cardinal(str(hour))}点"
    if minute or second:
        words += f"{number(parts['min']) if minute else '零'}分"
    if second:
        words += f"{number(parts['s'])}秒"
    if parts["half"] and not re.search(rf"(?:{_HALVES}) ?$", clause_before(match)):
        words = _half(hour, parts["half"][0] in "pP") + words
    return words


def _half(hour: int, evening: bool) -> str:
    if not evening:
        return "凌晨" if hour in (12, 1, 2, 3, 4) else "上午"
    return "中午" if hour == 12 else "下午" if hour < 6 else "晚上"


def _years(match: re.Match[str]) -> str:
    """A year of four digits, read one by one; 2000年的历史 and 约1500年 last that long."""
    text = match[0]
    lasts = _SPAN_OF_YEARS.match(match.string, match.end()) and text.endswith("00")
    if lasts or text == "1000" or (text.endswith("00") and _LASTING.search(clause_before(match))):
        return cardinal(text)
    return digits(text)


def _years_apart(match: re.Match[str]) -> str:
    return f"{digits(match['first'])}{match['year']}到{digits(match['last'])}"


def _duration(match: re.Match[str]) -> str:
    words = {"h": "小时", "m": "分", "s": "秒"}
    parts = [f"{match[unit]}{word}" for unit, word in words.items() if match[unit]]
    return "".join(parts) + ("钟" if parts[-1].endswith("分") else "")


TIMES = han_table(
    # 2026-03-15T09:05:00Z
    (r"(?<=[0-9])T(?=[0-9]{2}:[0-9]{2})", " "),
    (r"(?<=:[0-9]{2})(?:\.[0-9]{1,6})?(?:Z|[+-]0?[0-9]:?00)(?![0-9A-Za-z])", ""),
    (rf"{START}{_YEAR}(?P<sign>[-/.]){_MONTH}(?P=sign){_DAY}日?(?:{_NO_NUMBER}(?![A-Za-z])| (?=[0-9]{{1,2}}:))", _date),
    (rf"{START}{_DAY}(?P<sign>[-/.])(?P<m>0[1-9]|1[0-2])(?P=sign){_YEAR}{_NO_NUMBER}", _date),
    (rf"{START}{_MONTH}(?P<sign>[-/]){_DAY}(?P=sign){_YEAR}{_NO_NUMBER}", _date),
    (rf"{START}{_YEAR}[-/](?P<m>0[1-9]|1[0-2]){_NO_NUMBER}(?![A-Za-z])(?!年|赛季|学年|财年|届)", _date),
    (rf"{_FREE}(?<![年月]){_MONTH}(?P<sign>[/-]){_DAY}(?![0-9A-Za-z%]|[.:/-][0-9]| ?=)", _month_day),
    (rf"{_FREE}([1-9]|1[0-2])\.([0-9]{{1,2}})-([1-9]|1[0-2])\.([0-9]{{1,2}})(?={_DATE_AFTER.pattern})",
     r"\1月\2日到\3月\4日"),
    # Spans: 2025-2026年, 2024/25赛季, 2026.01-2026.06, 3-5月, 12:30-14:00.
    (rf"(?<![A-Z] ){START}(?P<first>1[0-9]{{3}}|20[0-9]{{2}})(?P<year>年?){_TO}(?P<last>(?:1[0-9]|20)?[0-9]{{2}})"
     rf"(?=(?:{_YEARLY})|$|[，。；、)）])", _years_apart),
    (rf"{START}(?P<first>(?:19|20)[0-9]{{2}})/(?P<year>)(?P<last>[0-9]{{2}})(?=赛季|学年|财年|年度)", _years_apart),
    (rf"{START}(?P<y>(?:19|20)[0-9]{{2}})\.(?P<m>0[1-9]|1[0-2])(?={_TO}(?:19|20)[0-9]{{2}}\.[01][0-9]{_NO_NUMBER})",
     _date),
    (rf"(?<=月){_TO}(?P<y>(?:19|20)[0-9]{{2}})\.(?P<m>0[1-9]|1[0-2]){_NO_NUMBER}", lambda m: f"到{_date(m)}"),
    (rf"(?<![0-9.])([0-9]{{1,2}})([月日号点时]?){_TO}"
     r"(?=[0-9]{4}年|[0-9]{1,2}(?:月|日|号|点|时(?!间)|:[0-5][0-9]))", r"\1\2到"),
    (rf"(?<=[0-9]:[0-5][0-9]){_TO}(?={_HOUR}:[0-5][0-9])", "到"),
    (r"(?<![0-9.:])0([1-9])(?=月|日|号(?![线楼])|时|点)", r"\1"),
    # Years.
    (r"(?<![0-9.])((?:1[0-9]|20)?[0-9]0)(?=年代)", lambda m: (digits if len(m[1]) == 4 else cardinal)(m[1])),
    (r"(?<![0-9.-])[12][0-9]{3}(?=年)", _years),
    (rf"{START}(?:19|20)[0-9]{{2}}(?=(?:{_YEARLY})(?!以))", lambda m: digits(m[0])),
    (r"(?<=公元|元前)[0-9]{1,4}(?=年)", lambda m: (cardinal if len(m[0]) < 3 else digits)(m[0])),
    (r"['‘’]([0-9]{2})(?=年|届|级|世界杯)", lambda m: digits(m[1])),
    (r"(?<![0-9.])([0-9]{2})(?=后(?!面|来|天|续|卫|场)|级的?[学同校新]|届的?[学毕校同])", lambda m: digits(m[1])),
    (r"(?<![0-9.])([4-9][0-9])(?=年的?(?:出生|生人|生的|毕业|入学|世界杯|洪水|建成|的?时候|春晚|改革|那年|版|款))",
     lambda m: digits(m[1])),
    # Times of day and durations.
    (rf"(?<![0-9.:]){_CLOCK}(?![0-9:]){_AM}", _clock),
    (r"(?<![0-9.:A-Za-z])(?P<h>1[0-2]|0?[1-9]) ?(?P<half>[AaPp]\.?[Mm]\b\.?)", _clock),
    (rf"{START}{HOURS_MINUTES}", _duration),
    (rf"{START}{MINUTES_SECONDS}", _duration),
)  # fmt: skip
