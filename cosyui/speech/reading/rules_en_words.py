"""English: abbreviations, Roman numerals, and the letters and words that signs stand for."""

from __future__ import annotations

import re

from cosyui.speech.reading.numbers_en import cardinal, ordinal
from cosyui.speech.reading.rules import roman, table

_MONTHS = ("January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
           "December")  # fmt: skip
MONTH_OF = {name[:3]: name for name in _MONTHS} | {name: name for name in _MONTHS} | {"Sept": "September"}
_DAYS = {"Mon": "Monday", "Tue": "Tuesday", "Tues": "Tuesday", "Wed": "Wednesday", "Thu": "Thursday",
         "Thur": "Thursday", "Thurs": "Thursday", "Fri": "Friday", "Sat": "Saturday", "Sun": "Sunday"}  # fmt: skip

_BEFORE_NAME = {
    "Mr": "Mister", "Mrs": "Missus", "Ms": "Ms", "Messrs": "Messieurs", "Dr": "Doctor", "Prof": "Professor",
    "Rev": "Reverend", "Hon": "Honorable", "Gen": "General", "Col": "Colonel", "Capt": "Captain", "Lt": "Lieutenant",
    "Sgt": "Sergeant", "Maj": "Major", "Gov": "Governor", "Sen": "Senator", "Rep": "Representative", "St": "Saint",
    "Mt": "Mount", "Ft": "Fort", "Pres": "President", "Supt": "Superintendent",
}  # fmt: skip
_AFTER_NAME = {
    "Jr": "Junior", "Sr": "Senior", "Inc": "Incorporated", "Ltd": "Limited", "Co": "Company", "Corp": "Corporation",
    "Bros": "Brothers", "Ave": "Avenue", "Blvd": "Boulevard", "Rd": "Road", "Ln": "Lane", "Hwy": "Highway",
    "St": "Street", "Dr": "Drive", "Sq": "Square",
}  # fmt: skip
_BEFORE_NUMBER = {
    "no": "number", "nos": "numbers", "p": "page", "pp": "pages", "fig": "figure", "figs": "figures", "vol": "volume",
    "ch": "chapter", "chap": "chapter", "sec": "section", "eq": "equation", "art": "article", "ver": "version",
    "ext": "extension", "apt": "apartment", "rm": "room", "c": "circa", "ca": "circa", "est": "established",
    "ep": "episode", "op": "opus", "pt": "part", "tel": "telephone", "ste": "suite",
}  # fmt: skip
_ANYWHERE = {
    "approx": "approximately", "dept": "department", "govt": "government", "incl": "including",
    "excl": "excluding", "max": "maximum", "min": "minimum", "avg": "average", "temp": "temperature", "misc":
    "miscellaneous", "assn": "association", "univ": "university", "al": "al", "cf": "compare", "viz": "namely",
    "asst": "assistant", "mgr": "manager", "tel": "telephone", "ext": "extension",
}  # fmt: skip
_DOTTED = {"e.g": "for example", "i.e": "that is", "a.k.a": "also known as", "etc": "et cetera", "Ph.D": "PhD",
           "p.s": "P S", "n.b": "note", "r.i.p": "R I P"}  # fmt: skip
_STARTERS = (
    "The|This|That|These|Those|It|He|She|We|They|You|I|There|Then|But|And|So|In|On|At|If|When|What|Why|How|Where|Who|A|An|"
    "My|Your|His|Her|Our|Their|Please|Now|After|Before|For|As|Is|Are|Do|Not|No|Yes|Let"
)


def _case(words: str, token: str) -> str:
    return words[0].upper() + words[1:] if token[0].isupper() else words


def _at_start(words: str, match: re.Match[str]) -> str:
    return _case(words, match[0]) if match.start() == 0 else words


def _stop(match: re.Match[str], *, always: bool = False) -> str:
    """The full stop that an abbreviation shares with its sentence: at the end, or before a word that begins one."""
    rest = match.string[match.end() : match.end() + 24]
    starts = r"\s+[A-Z][a-z]" if always else rf"\s+(?:{_STARTERS})\b"
    return "." if re.match(rf"[\"'”’)\]]*(?:$|{starts})", rest) else ""


def _letters(match: re.Match[str]) -> str:
    """U.S. is U S."""
    return " ".join(re.findall("[A-Za-z]", match[0])) + _stop(match)


def _half_day(match: re.Match[str]) -> str:
    return f"{match[1].rstrip()} {match[2].upper()}M" + (_stop(match) if match[0].endswith(".") else "")


def _names(table: dict[str, str]) -> str:
    return "|".join(re.escape(name) for name in sorted(table, key=len, reverse=True))


ABBREVIATIONS = table(
    (r"([0-9] ?)([AaPp])(?:\.[Mm]\.?|[Mm](?![A-Za-z]))(?![A-Za-z])", _half_day),
    (rf"(?<![A-Za-z0-9.])({_names(_DOTTED)}|{_names(_DOTTED).upper()})\.(?![A-Za-z0-9])",
     lambda m: _case(_DOTTED.get(m[1]) or _DOTTED[m[1].lower()], m[1]) + _stop(m, always=True)),
    (r"(?<=, )etc(?![A-Za-z0-9.])", "et cetera"),
    (r"(?<![A-Za-z0-9.])vs\.?(?![A-Za-z0-9.])", "versus"),
    # Titles before a name, streets and companies after one.
    (rf"(?<![A-Za-z.])({_names(_BEFORE_NAME)})\.? (?=[A-Z][a-zé'’]|[A-Z]\.)",
     lambda m: f"{_BEFORE_NAME[m[1]]} "),
    (rf"([a-z0-9],? )({_names(_AFTER_NAME)})\.(?![A-Za-z0-9])",
     lambda m: m[1] + _AFTER_NAME[m[2]] + _stop(m)),
    (rf"(?i)(?<![A-Za-z0-9.])({_names(_BEFORE_NUMBER)})\. ?(?=#?[0-9])",
     lambda m: _at_start(_BEFORE_NUMBER[m[1].lower()], m) + " "),
    (rf"(?<![A-Za-z0-9.])({_names(_ANYWHERE)})\.(?![A-Za-z0-9])(?= ?[,a-z0-9(])", lambda m: _ANYWHERE[m[1]]),
    (rf"(?<![A-Za-z0-9.])({_names(_DAYS)})-({_names(_DAYS)})(?![A-Za-z0-9])\.?",
     lambda m: f"{_DAYS[m[1]]} to {_DAYS[m[2]]}"),
    (rf"(?<![A-Za-z0-9.])({_names(_DAYS)})\.(?= ?,| )|(?<![A-Za-z0-9.])({_names(MONTH_OF)})\.(?= ?,| )",
     lambda m: _DAYS[m[1]] if m[1] else MONTH_OF[m[2]]),
    # Letters with dots: U.S., J. K. Rowling, John F. Kennedy.
    (r"(?<![A-Za-z0-9.])(?:[A-Z]\. ?){1,5}[A-Z]\.(?![A-Za-z0-9])", _letters),
    (r"(?<![A-Za-z0-9.])[A-Z](?:\.[A-Z]){1,4}(?![A-Za-z0-9.])", _letters),
    (rf"(?<![A-Za-z0-9.])([A-Z])\.(?= (?!(?:{_STARTERS})\b)[A-Z][a-z]{{2,}})", r"\1"),
)  # fmt: skip

_RANKED = (
    "Louis|Henry|Elizabeth|Charles|George|William|James|Edward|Richard|Napoleon|Paul|Pius|Benedict|Philip|Frederick|"
    "Catherine|Ivan|Peter|Nicholas|Alexander|Ramses|Leo|Francis|Gregory|Innocent|Clement|Robert|Malcolm|Harald|Gustav|"
    "Christian|Alfonso|Ferdinand|Leopold|Wilhelm|Ptolemy|Darius|Xerxes|Otto|Edgar|Stephen|Felipe|Margrethe|Urban"
)
_PARTS = (
    "War|Part|Chapter|Volume|Vol|Act|Scene|Phase|Type|Section|Book|Level|Class|Stage|Title|Article|Bowl|Episode|Grade|"
    "Division|Group|Appendix|Fantasy|Rocky|Tier|Schedule|Symphony|Mark|Quest|Edition|Unit|Round|Table|Figure"
)
_NUMERAL = (
    r"((?=[IVXLC]{2,8}\b|[IVX]\b)[IVXLC]{1,8})(?![A-Za-z-])"
    r"(?!(?<= I)(?:['’]| (?:am|was|have|had|will|do|did|think|can|could|would)\b))"
)


def _part(match: re.Match[str]) -> str:
    value = roman(match[2])
    return match[0] if value is None else f"{match[1]} {cardinal(str(value))}"


def _ranked(match: re.Match[str]) -> str:
    value = roman(match[2])
    return match[0] if value is None else f"{match[1]} the {ordinal(str(value))}"


ROMANS = table(
    (r"(?<![A-Za-z])WW(I{1,3})(?![A-Za-z])", r"World War \1"),
    (rf"(?<![A-Za-z])({_RANKED}) {_NUMERAL}", _ranked),
    (rf"(?<![A-Za-z])({_PARTS}|{_PARTS.lower()}) {_NUMERAL}", _part),
)  # fmt: skip
