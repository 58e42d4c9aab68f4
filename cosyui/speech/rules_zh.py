"""Reading rules for Chinese sentences, before and after wetext. Each is a pattern and what it becomes."""

from __future__ import annotations

import re
from decimal import Decimal

from cosyui.speech.rules import LONG_URL, MAIL, URL, Rule, apply, apply_outside

_DIGITS = dict(zip("0123456789", "零一二三四五六七八九", strict=True))
_N = r"\d+(?:\.\d+)?"
_FREE = r"(?<![\dA-Za-z.])"  # not in the middle of a number or name

_UNITS = (
    "mm|cm|dm|km|m|nm|μm|um|kg|mg|g|t|ml|mL|L|l|h|min|ms|s|k?Hz|MHz|GHz|kWh|k?W|MW|m?A|k?V|mV|mAh|kPa|Pa|MPa|N|J|kJ|"
    "k?cal|KB|MB|GB|TB|kb|Mb|Mbps|Gbps|kbps|B|bit|dB|rpm|ppm|px|fps"
)
PROTECTED = re.compile(
    rf"{URL}|{MAIL}|(?=[A-Za-z0-9_.-]*[A-Za-z])(?=[A-Za-z0-9_.-]*[\d_])[A-Za-z0-9]+(?:[_.-]?[A-Za-z0-9]+)*"
)
_MEASURE = re.compile(rf"{_N}(?:{_UNITS})(?:[²³23]|/(?:h|s|min|m|kg|d)[²³2]?)?")
_HOTLINES = r"110|119|120|122|911|10086|10010|10000|12306|12345|12315|95\d{3}"
_DATE_LIKE = re.compile(r"\d{4}[-./]\d{1,2}[-./]\d{1,2}")


def digits(text: str, *, one: str = "一") -> str:
    """Read digit by digit; other characters stay."""
    return "".join(one if char == "1" else _DIGITS.get(char, char) for char in text)


def small(text: str) -> str:
    """A whole number below 100 as a cardinal that says 二, where wetext would choose 两; others stay digits."""
    if not text.isdecimal() or len(text) > 2 or (len(text) == 2 and text[0] == "0"):
        return text
    if len(text) == 1:
        return digits(text)
    tens = "" if text[0] == "1" else digits(text[0])
    return f"{tens}十{digits(text[1]) if text[1] != '0' else ''}"


def _phone(match: re.Match[str]) -> str:
    return digits(re.sub(r"[\s()-]", "", match.group().replace("+", "加")), one="幺")


def _money(match: re.Match[str]) -> str:
    sign, number, scale = match.group("sign"), match.group("number"), match.group("scale") or ""
    unit = {"$": "美元", "€": "欧元", "£": "英镑", "¥": "元", "￥": "元", "HK$": "港元"}[sign]
    factor = {"k": 1_000, "K": 1_000, "M": 1_000_000, "B": 1_000_000_000, "bn": 1_000_000_000}.get(scale)
    if factor:
        value = Decimal(number) * factor
        number, scale = (f"{value:f}".rstrip("0").rstrip(".") if "." in f"{value:f}" else f"{value:f}"), ""
    return f"{number}{scale}{unit}"


def _version(match: re.Match[str]) -> str:
    if _DATE_LIKE.fullmatch(match.group("number")):
        return match.group()
    parts = match.group("number").split(".")
    spoken = "点".join(digits(part) for part in parts)
    return f"{match.group('head') or ''}{spoken}"


def _address(match: re.Match[str]) -> str:
    host = "点".join(digits(part) for part in match.group("host").split("."))
    port = match.group("port")
    return host + (f"冒号{digits(port)}" if port else "")


def _lower_phrase(match: re.Match[str]) -> str:
    return match.group().lower() if len(match.group().replace(" ", "")) >= 12 else match.group()


_CIRCLED = {chr(0x2460 + index): str(index + 1) for index in range(20)}
_CIRCLED |= {chr(0x2776 + index): str(index + 1) for index in range(10)}
_FRACTIONS = {
    "½": "二分之一",
    "⅓": "三分之一",
    "⅔": "三分之二",
    "¼": "四分之一",
    "¾": "四分之三",
    "⅕": "五分之一",
    "⅛": "八分之一",
}
_SUBSCRIPT = str.maketrans("₀₁₂₃₄₅₆₇₈₉", "零一二三四五六七八九")
_SUPERSCRIPT = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻", "0123456789-")


def _power(match: re.Match[str]) -> str:
    exponent = match.group(1).translate(_SUPERSCRIPT)
    if exponent in ("2", "3"):
        return "的平方" if exponent == "2" else "的立方"
    return f"的{exponent.replace('-', '负')}次方"


BEFORE: tuple[Rule, ...] = (
    # First of all, so that no later pattern meets a run of digits without bound.
    (re.compile(r"[0-9]{16,}"), lambda m: digits(m.group())),
    (re.compile("[" + "".join(_CIRCLED) + "]"), lambda m: _CIRCLED[m.group()]),
    (re.compile(r"(\d+)?([½⅓⅔¼¾⅕⅛])"), lambda m: (f"{m.group(1)}又" if m.group(1) else "") + _FRACTIONS[m.group(2)]),
    (re.compile(r"(?<=[A-Za-z])[₀-₉]+"), lambda m: m.group().translate(_SUBSCRIPT)),
    (re.compile(r"(?<=\d),(?=\d{3}(?!\d))"), ""),
    (re.compile(r"(?<![A-Z'’-])[A-Z][A-Z'’-]*(?: [A-Z][A-Z'’-]*){2,}(?![A-Za-z0-9])"), _lower_phrase),
    # Telephone numbers: international, mobile, hotline, area code, emergency.
    (re.compile(r"(?<![\d.])\+\d{1,3}[ -]?\d{2,4}(?:[ -]?\d{3,4}){1,3}(?!\d)"), _phone),
    (re.compile(r"(?<![\d.])1[3-9]\d(?:[ -]?\d{4}){2}(?![\d.]\d)(?!\d)"), _phone),
    (re.compile(r"(?<![\d.])[48]00[ -]?\d{3,4}[ -]?\d{3,4}(?!\d)"), _phone),
    (re.compile(r"(?<![\d.])\(?0\d{2,3}\)?[ -]?\d{7,8}(?!\d)"), _phone),
    (re.compile(rf"(?<![\d.])(?:{_HOTLINES})(?=[^\d.元米个人年月日号楼分秒块%-]|$)"), _phone),
    (re.compile(rf"{_FREE}(?:0\d{{3,}}|\d{{12,}})(?![\d.])"), lambda m: digits(m.group())),
    # Addresses and versions: no sentence may end at their dots.
    (re.compile(rf"{_FREE}(?P<host>\d{{1,3}}(?:\.\d{{1,3}}){{3}})(?::(?P<port>\d+))?(?![\d.]\d)"), _address),
    (re.compile(r"(?<![A-Za-z\d.])(?P<head>[vV]|[Vv]er(?:sion)?\.? ?)(?P<number>\d+(?:\.\d+)+)"), _version),
    (re.compile(rf"{_FREE}(?P<head>)(?P<number>\d+(?:\.\d+){{2,}})(?![\d.]\d)"), _version),
    # Numbers of standards and models: the dash is no minus.
    (re.compile(r"(?<![A-Za-z])([A-Z]{1,4}(?:/[A-Z]+)? ?)(\d+)-(\d+)(?!\d)"),
     lambda m: f"{m.group(1)}{digits(m.group(2))}杠{digits(m.group(3))}"),
    # Scores and spans.
    (re.compile(r"((?:以|比分|战绩|战成|总分)[^\d，。！？；]{0,4})(\d{1,3})[-–—:：](\d{1,3})(?![\d:-])"),
     lambda m: f"{m.group(1)}{small(m.group(2))}比{small(m.group(3))}"),
    (re.compile(r"(?<![\d:.-])(\d{1,3})[-–—:：](\d{1,3})(?=[战击]?[胜负平赢输落大领])"),
     lambda m: f"{small(m.group(1))}比{small(m.group(2))}"),
    (re.compile(r"第(\d+)[-–—~～至](\d+)"), lambda m: f"第{small(m.group(1))}到{small(m.group(2))}"),
    (re.compile(rf"(?<![\d.A-Za-z-])({_N})[~～–—]({_N})"), r"\1到\2"),
    (re.compile(rf"(?<![\d.A-Za-z-])(-?{_N})(?:[~～]|到)(-?{_N})(?=\s*[℃°])"), r"\1到\2"),
    (re.compile(r"(?<![\d.A-Za-z/-])(\d{1,4})-(\d{1,4})(?=[\u4e00-\u9fff])"), r"\1到\2"),
    # Units that wetext does not know.
    (re.compile(rf"({_N}) ?m/s[²2]"), r"\1米每二次方秒"),
    (re.compile(rf"({_N}) ?m/s(?![A-Za-z])"), r"\1米每秒"),
    (re.compile(rf"({_N}) ?kW[·.*]?h"), r"\1千瓦时"),
    (re.compile(r"(?<=\d)(?:″|'')|(?<=\d)\"(?=[^\"]*$)"), "英寸"),
    (re.compile(r"(?<![A-Za-z])m²"), "平方米"),
    (re.compile(r"(?<![A-Za-z])m³"), "立方米"),
    (re.compile(rf"(?P<sign>HK\$|[¥￥$€£]) ?(?P<number>{_N}) ?(?P<scale>[kKMB万亿]|bn)?(?:[美欧]?元|英镑)?"), _money),
    (re.compile(r"(?<![\d.A-Za-z-])1/(\d{1,2})(?![\d/.])"), lambda m: f"{small(m.group(1))}分之一"),
    # Arithmetic and comparison; `-` only with operands that cannot be a date or a range.
    (re.compile(r"(?<=[\dA-Za-z)）]) ?\^ ?(-?\d+)"), r"的\1次方"),
    (re.compile(r"(?<=[\dA-Za-z)）])([⁰¹²³⁴-⁹⁻]+)"), _power),
    (re.compile(r" ?(?:≥|>=|⩾) ?"), "大于等于"),
    (re.compile(r" ?(?:≤|<=|⩽) ?"), "小于等于"),
    (re.compile(r" ?≠ ?"), "不等于"),
    (re.compile(r" ?[≈≒] ?"), "约等于"),
    (re.compile(r"(?<=[\w)）]) ?× ?(?=[\w(（])"), "乘"),
    (re.compile(r"(?<=[\w)）]) ?÷ ?(?=[\w(（])"), "除以"),
    (re.compile(r"± ?(?=\d)"), "正负"),
    (re.compile(r"(?<=[\w)）]) ?= ?(?=[\w(（-])"), "等于"),
    (re.compile(r"(?<=[\w)）]) ?< ?(?=[\w(（-])"), "小于"),
    (re.compile(r"(?<=[\w)）]) ?> ?(?=[\w(（-])"), "大于"),
    (re.compile(r"(?<=[\d)）]) ?\+ ?(?=[\d(（])"), "加"),
)  # fmt: skip

_AFTER: tuple[Rule, ...] = (
    (re.compile(r"[²]"), "平方"),
    (re.compile(r"[³]"), "立方"),
    (re.compile(r"°"), "度"),
    (re.compile(r"[·•]"), ""),
    (re.compile(r"[（(]\s*|[【「『《〈\[]"), "，"),
    (re.compile(r"\s*[）)](?=$|[，。！？；、,.!?;])|[】」』》〉\]](?=$|[，。！？；、,.!?;])"), ""),
    (re.compile(r"\s*[）)]"), "，"),
    (re.compile(r"[】」』》〉\]]"), ""),
    (re.compile(r"——+|—|–|……|…"), "，"),
    (re.compile(r"(?<=[\u3400-\u9fff])\s*[:：]\s*"), "："),
    (re.compile(r"(?<=[\u3400-\u9fff]),\s*"), "，"),
    (re.compile(r"(?<=[\u3400-\u9fff])\.(?=$|\s|[\u3400-\u9fff])"), "。"),
    (re.compile(r"(?<=[\u3400-\u9fff])!"), "！"),
    (re.compile(r"(?<=[\u3400-\u9fff])\?"), "？"),
    (re.compile(r"(?<=[\u3400-\u9fff]);"), "；"),
    (re.compile(r"&"), "和"),
    (re.compile(r"[*#`|\\^~～<>{}_=$€£¥￥≈≠±×÷§†‡→←↑↓⇒]"), ""),
    (re.compile(r"“|”|\"|‘|’(?![A-Za-z])"), ""),
    (re.compile(r"[，、：,]+(?=[，。！？；、：,.!?;])"), ""),
    (re.compile(r"(?<=[。！？；])[，、：,。.]+"), ""),
)  # fmt: skip


def prepare(text: str) -> str:
    """What wetext reads wrongly, read right; addresses are left for `protected`."""
    return apply_outside(text, _ADDRESS, BEFORE)


_ADDRESS = re.compile(rf"{URL}|{MAIL}")


def is_plain(token: str) -> bool:
    """Whether a token with letters and digits is a measure such as ``25kg``, which wetext reads."""
    return bool(_MEASURE.fullmatch(token))


def protected(token: str) -> str:
    """The spoken form of a protected token: a long link is only named, dots and signs of an address are said."""
    if re.fullmatch(URL, token):
        return "链接" if len(token) > LONG_URL else _say_address(re.sub(r"^https?://", "", token))
    if re.fullmatch(MAIL, token):
        return _say_address(token)
    return re.sub(r"\.(?=[A-Za-z0-9])", "点", token.replace("_", " "))


_SIGNS = {".": "点", "/": "斜杠", "?": "问号", "=": "等于", "&": "和", "@": " at ", "-": "杠", "_": "下划线",
          ":": "冒号", "#": "井号", "%": "百分号", "~": "波浪号", "+": "加"}  # fmt: skip


def _say_address(address: str) -> str:
    return "".join(_SIGNS.get(char, _DIGITS.get(char, char)) for char in address.rstrip("/"))


def finish(text: str) -> str:
    """Signs that nobody read become words, pauses or nothing."""
    return apply(text, _AFTER)


def blanks(text: str) -> str:
    """Blanks only between two words of Latin letters; none beside Han or Chinese punctuation."""
    text = re.sub(r"\s+", " ", text)
    return re.sub(r"(?<=[^\x00-\x7f]) | (?=[^\x00-\x7f])", "", text)
