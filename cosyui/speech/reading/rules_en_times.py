"""English: dates, years, decades, times of day and durations."""

from __future__ import annotations

import re

from cosyui.speech.reading.numbers_en import cardinal, decade, ordinal, pairs, year
from cosyui.speech.reading.rules import END, HOURS_MINUTES, MINUTES_SECONDS, START, clause_before, table
from cosyui.speech.reading.rules_en_words import MONTH_OF

_YEAR = r"(?P<y>[12][0-9]{3})"
_NUMBERED_MONTH = r"(?P<m>0?[1-9]|1[0-2])"
_DAY = r"(?P<d>0?[1-9]|[12][0-9]|3[01])"
_LAST = r"(?![0-9A-Za-z]|[.:/-][0-9])"
_MONTH = rf"(?P<name>{'|'.join(sorted(MONTH_OF, key=len, reverse=True))})"
_TO = r" ?(?:-|–|—|to) ?"
_MONTHS = [name for short, name in MONTH_OF.items() if len(short) == 3]
_ON = re.compile(
    r"(?i)\b(?:on|by|until|till|from|since|due|before|after|date|dated|between|starting|ending|deadline|and|to)[: ]*$"
)
_IN = re.compile(
    r"(?i)\b(?:in|since|by|until|till|from|before|after|around|circa|year|years|of|during|between|early|late|mid|spring|"
    r"summer|autumn|fall|winter|to|and|the|born)[ (-]*$"
)
# A plural or people after a number: it counts them.
_COUNTS = re.compile(
    r" (?!(?:was|is|has|as|does|this)\b|[a-z]+ss\b)[a-z]{1,20}(?:s|people|men|women|children)\b| (?:people|men|women)\b"
)
_ERA = re.compile(r" ?(?:AD|BC|CE|BCE)\b")


def _date(match: re.Match[str]) -> str:
    parts = match.groupdict()
    words = f"{_MONTHS[int(parts['m']) - 1]} {ordinal(str(int(parts['d'])))}"
    return f"{words}, {year(parts['y'])}" if parts.get("y") else words


def _day_month(match: re.Match[str]) -> str:
    the = "" if clause_before(match).endswith("the ") else "the "
    words = f"{the}{ordinal(str(int(match['d'])))} of {MONTH_OF[match['name']]}"
    return f"{words} {year(match['y'])}" if match["y"] else words


def _month_day(match: re.Match[str]) -> str:
    words = f"{MONTH_OF[match['name']]} {ordinal(str(int(match['d'])))}"
    if match["d2"]:
        words += f" to {ordinal(str(int(match['d2'])))}"
    return words + (f", {year(match['y'])}" if match["y"] else "")


def _slashed(match: re.Match[str]) -> str:
    """3/15 where it can be no usual fraction, or the word before speaks of a day."""
    month, day = int(match["m"]), int(match["d"])
    usual = month < day and (day <= 10 or day in (12, 16, 20))
    return _date(match) if _ON.search(clause_before(match)) or not usual else match[0]


def _clock(match: re.Match[str]) -> str:
    hour, minute, second = int(match["h"]), match["min"], match["s"]
    half = re.match(r" ?[AP]M\b", match.string[match.end() :][:4])
    words = cardinal(str(hour))
    if minute == "00":
        words += "" if half else " hundred" if hour > 12 else " o'clock"
        words = "midnight" if hour == 0 and not second else words
    else:
        words += f" oh {cardinal(minute[1])}" if minute[0] == "0" else f" {cardinal(minute)}"
    if second and second != "00":
        words += f" and {cardinal(str(int(second)))} seconds"
    return words


def _duration(match: re.Match[str]) -> str:
    names = (("h", "hour"), ("m", "minute"), ("s", "second"))
    parts = [(int(match[key]), name) for key, name in names if match[key]]
    return " ".join(f"{count} {name if count == 1 else name + 's'}" for count, name in parts)


def _year(match: re.Match[str]) -> str:
    """A number of four digits that stands where a year may, and counts nothing."""
    before = clause_before(match)
    counts = _COUNTS.match(match.string, match.end())
    placed: object
    if match[0] < "1100":
        placed = not counts and re.search(r"\b(?:in|since|circa|until|year) $", before)
    elif "1900" <= match[0] < "2100":
        placed = not counts or re.search(r"\b(?:the|in|since)[ (]*$", before)
    else:
        placed = _IN.search(before) or _ERA.match(match.string, match.end())
    return year(match[0]) if placed else match[0]


def _years_apart(match: re.Match[str]) -> str:
    return f"{year(match[1])} to {year(match[2])}"


DATES = table(
    (r"(?<=[0-9])T(?=[0-9]{2}:[0-9]{2})", " at "),
    (r"(?<=:[0-9]{2})(?:\.[0-9]{1,6})?(?:Z|[+-]0?[0-9]:?00)(?![0-9A-Za-z])", ""),
    (rf"{START}{_YEAR}(?P<sign>[-/.]){_NUMBERED_MONTH}(?P=sign){_DAY}{_LAST}", _date),
    (rf"{START}{_NUMBERED_MONTH}(?P<sign>[-/.]){_DAY}(?P=sign){_YEAR}{_LAST}", _date),
    (rf"{START}{_DAY}(?P<sign>[-/.]){_NUMBERED_MONTH}(?P=sign){_YEAR}{_LAST}", _date),
    (rf"{START}{_NUMBERED_MONTH}/{_DAY}/(?P<short>[0-9]{{2}}){_LAST}", lambda m: f"{_date(m)}, {pairs(m['short'])}"),
    (rf"{START}{_YEAR}-(?P<m>0[1-9]|1[0-2]){_LAST}", lambda m: f"{_MONTHS[int(m['m']) - 1]} {year(m['y'])}"),
    (rf"(?<![0-9A-Za-z.:/-])9/11{END}(?!/)", "nine eleven"),
    (rf"(?<![0-9A-Za-z.:/-]){_NUMBERED_MONTH}/{_DAY}(?![0-9A-Za-z%]|[.:/-][0-9]| ?=)", _slashed),
    (rf"\b{_MONTH}\.? {_DAY}(?:st|nd|rd|th)?\b(?:{_TO}(?P<d2>[12]?[0-9]|3[01])(?:st|nd|rd|th)?\b)?"
     rf"(?![:.][0-9])(?:,? {_YEAR}\b)?", _month_day),
    (rf"{START}{_DAY}(?:st|nd|rd|th)?(?: of)? {_MONTH}\b\.?(?:,? {_YEAR}\b)?", _day_month),
    (rf"\b{_MONTH}\.?(,?) {_YEAR}\b(?![.,-][0-9])", lambda m: f"{MONTH_OF[m['name']]}{m[2]} {year(m['y'])}"),
)  # fmt: skip
YEARS = table(
    (r"(?<![0-9A-Za-z.,])((?:1[0-9]|20)[0-9]0)['’]?s\b", lambda m: decade(m[1])),
    (r"['‘’]([0-9]0)s\b", lambda m: decade(m[1] if m[1] != "00" else "2000")),
    (r"(?i)\b((?:the|my|his|her|their|early|mid|late|in)[ -])([2-9]0)s\b", lambda m: m[1] + decade(m[2])),
    (r"['‘’]([0-9]{2})(?![0-9A-Za-z'’\"])", lambda m: pairs(m[1]) if m[1][0] != "0" else f"oh {cardinal(m[1][1])}"),
    (r"(?<![0-9A-Za-z.,$€£¥#/-])((?:19|20)[0-9]{2})/([0-9]{2})(?![0-9A-Za-z%/])", _years_apart),
    (rf"(?<![0-9A-Za-z.,$€£¥#/-])((?:1[1-9]|20)[0-9]{{2}}){_TO}((?:1[1-9]|20)?[0-9]{{2}})"
     r"(?![0-9A-Za-z%]|[.,:/-][0-9])", _years_apart),
    (r"(?<![0-9A-Za-z.,$€£¥#/:+*×=-])(?:1[0-9]|20)[0-9]{2}(?![0-9A-Za-z%°$€£]|[.,:/×-][0-9]| ?[=×+*^])", _year),
)  # fmt: skip
CLOCKS = table(
    (r"(?<![0-9.:])(1?[0-9])\.([0-5][0-9])(?= ?[AP]M\b)", r"\1:\2"),
    (r"\b(noon|midnight) ?[-–—] ?(?=[0-9])", r"\1 to "),
    (r"(?<=[0-9]:[0-5][0-9]) ?[-–—] ?(?=[0-2]?[0-9]:[0-5][0-9])|(?<=[AP]M) ?[-–—] ?(?=[0-9])", " to "),
    (r"(?<![0-9.:A-Za-z])([0-9]{1,2}) ?[-–—] ?(?=[0-9]{1,2} ?[AP]M\b)", r"\1 to "),
    (r"(?<![0-9.:])(?P<h>[01]?[0-9]|2[0-4]):(?P<min>[0-5][0-9])(?::(?P<s>[0-5][0-9]))?(?![0-9:])", _clock),
    (rf"{START}{HOURS_MINUTES}", _duration),
    (rf"{START}{MINUTES_SECONDS}", _duration),
)  # fmt: skip
