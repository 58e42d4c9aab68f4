"""Chinese: numbers that name something and are read digit by digit, and names with digits in them."""

from __future__ import annotations

import re

from cosyui.speech.reading.han import han, han_table
from cosyui.speech.reading.numbers_zh import cardinal, digits
from cosyui.speech.reading.rules import END, START, clause_before
from cosyui.speech.reading.units_zh import MEASURES

# After these words digits number something; they count nothing.
_NUMBERED = (
    "电话|手机|座机|号码|热线|传真|分机|尾号|[卡账帐单编学工证群店房楼批型代]号|门牌|房间|教室|订单|运单|快递|流水|序列|包裹|"
    "[验校取提兑激邀识动口密暗条编邮代]?[证验件货换活请别态形政]?码|密码|口令|邮编|区号|代码|车牌|航班|班次|车次|"
    "QQ群?|微信|ISBN|ID|Id|id|PIN|UID|uid|身份证|准考证|登机牌|储物柜|工位|座位|考号|考场|股票|基金|频道|端口|文件|案件|合同|批次"
)
_CALL = han(
    "拨打|致电|拨通|拨|打给|拨号|呼叫|求助|报警|火警|匪警|急救|热线|电话|来电|短信|发送|打(?![开印包扫折八九六七五])|交通|"
    "交警|转接|客服|咨询|举报|投诉|查询"
)
_AGENCY = han(
    " ?(?:电话|热线|报警|急救|火警|匪警|平台|服务台|指挥中心|接警|民警|救护|举报|投诉|查询台|客服|短信|订票|购票|调度|"
    "救援|警力|政务|中心|的电话|打不通|占线)"
)
_SHORT = (
    r"(?<![0-9A-Za-z.:/-])(?:11[0249]|12[02]|9(?:11|99)|12[0-9]{3}|1000[0-9]|100[0-9]{2}|9[56][0-9]{3})(?![0-9A-Za-z])"
    r"(?!\.[0-9]|[:/-][0-9])"
)
_HOTLINE = han(r"100(?!00)[0-9]{2}|12(?:3[0-9]{2}|580|110|119|120|122|333)|9[56][0-9]{3}")
_QUANTITY = han(rf" ?(?:{MEASURES}|月|日|号|楼|度|期|多|余|来(?![电信])|几|[%‰℃°×*/+=<>^~-])|[a-zA-Z]")
_DATE = re.compile(r"(?:19|20)[0-9]{2}-(?:0?[1-9]|1[0-2])-[0-3]?[0-9](?![0-9-])")
_FREE = r"(?<![0-9A-Za-z.-])"
_BODIES = "GB|YY|HJ|JB|QB|DL|NB|DB|ISO|IEC|RFC|IEEE"
_PROVINCES = "京津沪渝冀豫云辽黑湘皖鲁新苏浙赣鄂桂甘晋蒙陕吉闽贵粤青藏川宁琼"
_MAKERS = "歼|轰|运|直|教|苏|米格|伊尔|波音|空客|东风|长征|神舟|嫦娥|天宫|天舟|天问|鹰击|巨浪|快舟|翼龙|彩虹"
_EVENTS = "事件|事变|惨案|运动|大?地震|恐怖袭击|讲话|劳动节|国庆|妇女节|儿童节|青年节|建军节|教师节"
# Known by their digits, beside or after these words.
_NAMED = "(?P<school>985|211)|(?P<work>996|007|955)|(?P<firm>360)|(?P<day>315|618|818|520|1314|1024)"
_NAMED_BESIDE = {
    "school": "院校|高校|大学|工程|学校|双一流|名校|毕业|本科|考上|985|211",
    "work": "工作|加班|生活|模式|文化|上班|公司|制",
    "firm": "公司|浏览器|软件|安全|杀毒|搜索|集团|儿童",
    "day": "晚会|大促|购物|活动|期间|打假|表白|礼物|程序员|快乐|情人节",
}  # fmt: skip


def code(text: str) -> str:
    """Digit by digit with 幺, without the blanks and signs between groups."""
    return digits(re.sub(r"[ ()·•-]", "", text).replace("+", "加"), one="幺")


def _code(match: re.Match[str]) -> str:
    return code(match[0])


def _plain(match: re.Match[str]) -> str:
    """9·11 is 九一一, 4-3-3 四三三."""
    return digits(re.sub("[·•.-]", "", match[0]))


def name_number(text: str) -> str:
    """A number within a name: iOS17 十七, H200 两百, RTX3060 三零六零, Python3.11 三点一一."""
    whole, dot, rest = text.partition(".")
    short = len(whole) <= 2 or (len(whole) == 3 and whole.endswith("00"))
    return (cardinal(whole) if short else digits(whole)) + (f"点{digits(rest)}" if dot else "")


def _counted(match: re.Match[str]) -> bool:
    return bool(_QUANTITY.match(match.string, match.end()))


def _phone(match: re.Match[str]) -> str:
    number, _, extension = re.sub(r" ?(?:转|分机|ext\.?|x) ?", "转", match[0]).partition("转")
    return code(number) + (f"转{_extension(extension)}" if extension else "")


def _extension(text: str) -> str:
    return code(text) if len(text) > 1 else digits(text)


def _international(match: re.Match[str]) -> str:
    return _phone(match) if sum(map(str.isdigit, match[0])) >= 9 else match[0]


def _local(match: re.Match[str]) -> str:
    return _phone(match) if _CALL.search(clause_before(match)) else match[0]


def _short(match: re.Match[str]) -> str:
    """An emergency number or hotline: where somebody calls, or an office of that number is named."""
    if _counted(match):
        return match[0]
    called = _CALL.search(clause_before(match)) or _AGENCY.match(match.string, match.end())
    alone = match[0] == match.string.strip(" ，。！？")
    return code(match[0]) if called or alone or _HOTLINE.fullmatch(match[0]) else match[0]


def _numbered(match: re.Match[str]) -> str:
    """Groups of one or two digits are kept apart: 取件码3-5-2088."""
    size = sum(map(str.isdigit, match["number"]))
    if size < 3 or (size < 6 and _counted(match)) or _DATE.match(match["number"]):
        return match[0]
    extension = f"转{_extension(match['extension'].strip(' 转'))}" if match["extension"] else ""
    groups = re.split("[ -]", match["number"])
    joint = "杠" if size < 8 and min(map(len, groups)) < 3 and "-" in match["number"] else ""
    return match["head"] + joint.join(map(code, groups)) + extension


def _known(match: re.Match[str]) -> str:
    """985高校, 996工作制: no quantities."""
    beside = han(_NAMED_BESIDE[match.lastgroup or "day"])
    near = match.string[max(0, match.start() - 8) : match.start()] + "|" + match.string[match.end() : match.end() + 6]
    alone = match.string.strip(" 。！？") == match[0]
    return code(match[0]) if (alone or beside.search(near)) and not _counted(match) else match[0]


def _dotted(match: re.Match[str]) -> str:
    spoken = digits(match["number"]).replace(".", "点")
    return match["head"] + spoken + (f"冒号{digits(match['port'])}" if match["port"] else "")


def _standard(match: re.Match[str]) -> str:
    letters, number, year = match.groups()
    return letters.replace("/", " ") + digits(number).replace(".", "点") + (f"杠{digits(year)}" if year else "")


_EXTENSION = r"(?: ?(?:转|分机|ext\.?|x) ?[0-9]{1,5})?(?![0-9])"
NUMBERED = han_table(
    # Before dates are looked for: the card's groups of four, and what a word before says to be no quantity.
    (r"(?<![0-9.])[0-9]{4}(?:[ -][0-9]{4}){2,4}(?:[ -][0-9]{1,4})?(?![0-9])", lambda m: code(m[0])),
    (rf"(?P<head>(?:{_NUMBERED})(?:号码|号|码)?(?:[是为:：#“\" ]|尾号){{0,3}})"
     r"(?P<number>[0-9]{1,32}(?:[ -][0-9]{1,8}){0,4})(?P<extension> ?转 ?[0-9]{1,5})?(?![0-9]|[.:/-][0-9])", _numbered),
    (r"[0-9]{17,}", lambda m: digits(m[0])),
)  # fmt: skip
CODES = han_table(
    # Telephone numbers.
    (rf"(?<![0-9A-Za-z.])\+[0-9]{{1,3}}(?:[ -]?\(?[0-9]{{1,5}}\)?){{2,5}}{_EXTENSION}", _international),
    (rf"(?<![0-9.])1[3-9][0-9](?:[ -]?[0-9]{{4}}){{2}}{_EXTENSION}(?!元)", _phone),
    (rf"(?<![0-9.])[48]00[ -]?[0-9]{{3,4}}[ -]?[0-9]{{3,4}}{_EXTENSION}", _phone),
    (rf"(?<![0-9.])\(?0[0-9]{{2,3}}\)?[ -]?[0-9]{{3,4}}[ -]?[0-9]{{4}}{_EXTENSION}", _phone),
    (rf"(?<![0-9.-])[2-8][0-9]{{2,3}}[ -]?[0-9]{{4}}{_EXTENSION}(?![0-9]|[-.][0-9])", _local),
    (_SHORT, _short),
    # Cards, orders, parcels, rooms, plates, trains.
    (rf"{_FREE}[0-9]{{3,4}}(?=(?:号|大|小)?(?:室|房|教室|病房|会议室|包厢|包间|宿舍|寝室|办公室))", _code),
    (rf"{_FREE}(?:[0-9]{{3}}(?=路)|[0-9]{{4}}(?=号(?!线|楼)))", _code),
    (rf"[{_PROVINCES}][A-Z][·• ]?[A-Z0-9]{{4,6}}(?![A-Za-z0-9])", _code),
    (r"(?<![0-9A-Za-z])(?:[A-Z]{1,2}|[0-9][A-Z]|[A-Z][0-9])[0-9]{1,4}(?=次|号?航班|号?列车|高铁|动车|班机)", _code),
    (rf"{_FREE}(?:{_NAMED})(?![0-9A-Za-z.:%-])", _known),
    (rf"{_FREE}(?:[0-9]{{1,2}}[·•.][0-9]{{1,2}}|[0-9]{{3}})(?={_EVENTS})", _plain),
    (rf"{_FREE}(?:[0-9]{{1,2}}[·•][0-9]{{1,2}}(?![0-9])|[1-9](?:-[1-9]){{2,4}}(?=阵))", _plain),
    # Addresses, versions, standards: no sentence may end at their dots, and their dash is no minus.
    (rf"{START}(?P<head>)(?P<number>[0-9]{{1,3}}(?:\.[0-9]{{1,3}}){{3}})(?::(?P<port>[0-9]{{1,5}}))?{END}", _dotted),
    (r"(?<![A-Za-z0-9.])(?P<head>[vV]|[Vv]er(?:sion)?\.? ?)(?P<number>[0-9]+(?:\.[0-9]+)+)(?P<port>)", _dotted),
    (rf"(?<![0-9.])(?P<head>)(?P<number>[0-9]+(?:\.[0-9]+){{2,}})(?P<port>){END}", _dotted),
    (r"(?<![A-Za-z0-9])([Pp][0-9]{1,4})-(?=[0-9]{1,4}(?![0-9-]))", r"\1到"),
    (r"(?<![A-Za-z])([A-Z]{1,5}(?:/[A-Z]{1,4})? ?)([0-9]{2,6}(?:\.[0-9]+)?)[-:—–]([0-9]{2,4})(?![0-9-])", _standard),
    (rf"(?<![A-Za-z])((?:{_BODIES})(?:/[A-Z]{{1,4}})? ?)([0-9]{{2,6}}(?:\.[0-9]+)?)()(?![0-9.])", _standard),
    (rf"({_MAKERS})-?([0-9]{{1,4}})(?![0-9])(?!\.[0-9]|个|米|年|天|月|架|枚|人)", lambda m: m[1] + name_number(m[2])),
    (r"(?<=[图表例式])([0-9]{1,2})-([0-9]{1,2})(?![0-9-]|个)", r"\1杠\2"),
    (rf"{_FREE}([0-9]{{1,2}})-([0-9]{{1,2}})-([0-9]{{3,4}})(?![0-9-])",
     lambda m: "杠".join((digits(m[1]), digits(m[2]), code(m[3])))),
    (rf"{_FREE}[0-9]{{1,4}}(?:-[0-9]{{1,4}}){{2,5}}(?![0-9-])", lambda m: digits(m[0]).replace("-", "杠")),
    (rf"{START}(?:480|720|1080|1440|2160|4320)(?=[pPi](?![A-Za-z]))", lambda m: digits(m[0])),
)  # fmt: skip


def _name(match: re.Match[str]) -> str:
    """A run of letters and digits, each number in it read; joined by 杠 where two numbers meet."""
    token = match[0]
    token = re.sub(r"(?<=[0-9])[-_](?=[0-9])", "杠", token)
    token = re.sub(r"(?<=[A-Za-z])-(?=[0-9])|(?<=[0-9])-(?=[A-Za-z])", "", token).replace("_", " ")
    token = re.sub(r"^([B-GMOPTV])2([B-GMOPTV])$", r"\1 to \2", token)
    token = re.sub(r"[0-9]+(?:\.[0-9]+)?", lambda m: name_number(m[0]), token)
    return token.replace(".", "点")


NAMES = han_table(
    (r"(?<![A-Za-z0-9_])(?=[A-Za-z0-9])[A-Za-z0-9_]++(?:[.-][A-Za-z0-9_]++)*",
     lambda m: _name(m) if re.search(r"[A-Za-z]", m[0]) and re.search(r"[0-9._]", m[0]) else m[0]),
    # RTX 3060, Boeing 747: a number after a Latin word is part of its name unless it counts something.
    (r"(?<=[A-Za-z]) [0-9]{3,5}(?![0-9]|[.:/~-][0-9])",
     lambda m: m[0] if _counted(m) else f" {name_number(m[0][1:])}"),
)  # fmt: skip
