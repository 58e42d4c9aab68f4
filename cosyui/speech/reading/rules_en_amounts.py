"""English: ranges and ratios, money, percent, units and fractions. The numbers in them stay digits for `rules_en`."""

from __future__ import annotations

import re

from cosyui.speech.reading.numbers_en import cardinal, fraction, number, pairs
from cosyui.speech.reading.rules import END, START, either, table
from cosyui.speech.reading.units_en import CURRENCY_CODES, CURRENCY_SIGNS, PER, UNITS, plural_unit

N = r"(?:[0-9]{1,3}(?:,[0-9]{3}){1,5}(?![0-9])|[0-9]+)(?:\.[0-9]+)?"
"""A whole or decimal number, perhaps with commas between the thousands."""
_TO = r" ?(?:-|–|—|~) ?"
_SIGN = f"(?:{either(CURRENCY_SIGNS)})"


def spoken(text: str) -> str:
    """A number as written, with or without commas, in words."""
    return number(text.replace(",", ""))


RANGES = table(
    (rf"{START}({N})-({either(UNITS)})(?![A-Za-z0-9])", lambda m: f"{spoken(m[1])} {UNITS[m[2]]}"),
    (rf"(?<![0-9A-Za-z.,)/-])({N})( ?(?:%|{either(UNITS)})(?![A-Za-z0-9]))?{_TO}(?=-?{_SIGN}?[0-9])"
     rf"(?!{N}(?: ?[=×÷]|-[0-9]))", r"\1\2 to "),
    (rf"(?<![0-9A-Za-z.:]){N}(?: ?: ?{N}){{1,4}}(?![0-9A-Za-z:])", lambda m: re.sub(" ?: ?", " to ", m[0])),
    (r"(?<=[0-9])-(?=[a-z])", " "),
    (r"(?<=[0-9]) ?[xX×] ?(?=[0-9.]{1,8}(?: ?[xX×] ?[0-9.]{1,8})? ?(?:[ckm]?m|in|inches|ft|feet|px|pixels)\b)", " by "),
    (r"(?<![0-9A-Za-z.])([1-9][0-9]{2,3})[xX×]([1-9][0-9]{2,3})(?![0-9A-Za-z])",
     lambda m: f"{pairs(m[1])} by {pairs(m[2])}"),
    (r"(?<![0-9A-Za-z.])([1-9][0-9]{0,4}(?:\.[0-9]+)?)[xX](?=[1-9])", r"\1 by "),
)  # fmt: skip

_SCALES = {"k": "thousand", "K": "thousand", "m": "million", "M": "million", "mn": "million", "b": "billion",
           "B": "billion", "bn": "billion", "T": "trillion", "tn": "trillion"}  # fmt: skip
_SCALE = r"(?: ?(?P<{}>(?:bn|mn|tn|[kKmMbBT])(?![A-Za-z0-9])|thousand|million|billion|trillion))?"
_ATTRIBUTE = re.compile(
    r" (?:bill|note|coin|gift|voucher|coupon|prize|fine|fee|deal|loan|budget|check|cheque|tip|donation|bet|reward|"
    r"bonus|investment|ticket|contract|fund|grant|project|discount|deposit|meal|lunch)\b"
)


def _money(match: re.Match[str]) -> str:
    parts = match.groupdict()
    unit, cent = CURRENCY_SIGNS.get(parts.get("sign") or "") or (CURRENCY_CODES[parts["code"]], "cent")
    scale, scale2 = (_SCALES.get(parts.get(key) or "", parts.get(key)) for key in ("scale", "scale2"))
    minus = "minus " if "-" in match[0][: match.start("n") - match.start()] else ""
    value = parts["n"].replace(",", "")
    single = _ATTRIBUTE.match(match.string, match.end())
    if parts.get("n2"):
        first = f"{value} {scale}" if scale and scale2 else value
        return f"{minus}{first} to {parts['n2']} {scale2 + ' ' if scale2 else ''}{plural_unit(unit)}"
    whole, _, rest = value.partition(".")
    if scale or not cent or len(rest) != 2:
        name = unit if single or (value == "1" and not scale) else plural_unit(unit)
        return f"{minus}{value} {scale + ' ' if scale else ''}{name}"
    cents = f"{int(rest)} {cent if rest == '01' or cent == 'pence' else plural_unit(cent)}"
    if int(rest) == 0 or int(whole) == 0:
        return minus + (cents if int(rest) else f"{whole} {unit if whole == '1' else plural_unit(unit)}")
    return f"{minus}{whole} {unit if whole == '1' else plural_unit(unit)} and {cents}"


def _per(match: re.Match[str]) -> str:
    return f"{match[1]} per {(UNITS | PER).get(match[2], match[2])}"


_SIGNED = rf"(?P<sign>{either(CURRENCY_SIGNS)})"
_CODE = rf"(?P<code>{either(CURRENCY_CODES)})"
_SECOND = rf"(?:(?:{_TO}| to )(?:{_SIGN})?(?P<n2>{N}){_SCALE.format('scale2')})?"
MONEY = table(
    (rf"(?:(?<![0-9A-Za-z)])[-+])?(?<![A-Za-z]){_SIGNED} ?-?(?P<n>{N}){_SCALE.format('scale')}{_SECOND}", _money),
    (rf"(?<![A-Za-z]){_CODE} ?(?P<n>{N}){_SCALE.format('scale')}{_SECOND}", _money),
    (rf"{START}(?P<n>{N}){_SCALE.format('scale')} ?(?:{_SIGNED}|{_CODE}(?![A-Za-z]))", _money),
    (rf"{START}({N}) ?¢", lambda m: f"{m[1]} cent" + ("" if m[1] == "1" else "s")),
    (r"(dollars?|euros?|pounds?|cents|pence|yen|yuan)/([A-Za-z]{1,6})\b", _per),
)  # fmt: skip
PERCENT = table(
    (rf"(?<![A-Za-z0-9])\+(?={N} ?%)", "plus "),
    (r"(?<=[0-9A-Za-z]) ?%(?![A-Za-z0-9])", " percent"),
    (r"(?<=[0-9]) ?%", " percent "),
    (r"(?<=[0-9]) ?‰", " per thousand"),
)  # fmt: skip

_POWER = r"(?:\^?-?[1-4](?![0-9]))?"
_ANY = either({**UNITS, **PER})
_ONE = re.compile(rf"({_ANY})\^?(-?[1-4])?$")


def _unit(match: re.Match[str]) -> str:
    """A unit or a quotient of units after its number: 5 km/h, 9.8 m/s^2, 1 kg/m^3."""
    count, text = match["n"], match["unit"]
    name = UNITS.get(text.replace("·", "")) or _quotient(text)
    return f"{count} {name if count == '1' else plural_unit(name)}"


def _quotient(text: str) -> str:
    words = ""
    for sign, part in re.findall(r"([·/]?)([^·/]+)", text):
        if part == "100km":
            words += " per hundred kilometers"
            continue
        one = _ONE.match(part)
        if one is None:
            return text
        power = one[2] or ""
        under = sign == "/" or power.startswith("-")
        words += (" per " if under else " ") + _raised({**UNITS, **PER}[one[1]], power.lstrip("-"), under=under)
    return words.strip()


def _raised(name: str, power: str, *, under: bool) -> str:
    if power not in ("2", "3"):
        return name
    if name in ("second", "hour", "minute"):
        return f"{name} {'squared' if power == '2' else 'cubed'}"
    return f"{'square' if power == '2' else 'cubic'} {name}"


_COMPASS = {"N": "north", "S": "south", "E": "east", "W": "west"}


def _feet(match: re.Match[str]) -> str:
    return f"{match[1]} foot {match[2]}"


UNIT_RULES = table(
    (rf"{START}([0-9]{{1,2}})['’′] ?([0-9]|1[01])(?:[\"″”]|''|(?![0-9A-Za-z]))", _feet),
    (rf"({N})°([0-9]{{1,2}})′(?:({N})″)?", lambda m: f"{m[1]}° {m[2]} minutes" + (f" {m[3]} seconds" if m[3] else "")),
    (r"(?:(?<=minutes)|(?<=seconds))([NSEW])\b", lambda m: f" {_COMPASS[m[1]]}"),
    (rf"{START}({N})(?:″|''|\"(?=[^\"]*$)(?<!\"[^\"]\"))(?P<of> [A-Za-z])?",
     lambda m: f"{spoken(m[1])} inch{'' if m[1] == '1' or m['of'] else 'es'}{m['of'] or ''}"),
    (rf"{START}({N})′", r"\1 feet"),
    (rf"((?:ft\.?|feet|foot) {N}) ?in(?![A-Za-z])\.?", r"\1 inches"),
    (rf"{START}({N})(?:in\b| in\.(?= [a-z0-9]|,))",
     lambda m: f"{m[1]} inch" + ("" if m[1] == "1" else "es")),
    (rf"{START}(?P<n>{N}) ?(?! ?[AN](?![·/]))(?P<unit>(?:{either(UNITS)}){_POWER}(?:[·/](?:{_ANY}){_POWER}|/100km)*)"
     r"(?![A-Za-z0-9_]|-[A-Za-z0-9]|['’][a-z])(?:\.(?= [a-z0-9]|,))?", _unit),
    (r"(?<![A-Za-z0-9])(km|cm|mm|m)\^([23])(?![0-9])", lambda m: plural_unit(_raised(UNITS[m[1]], m[2], under=False))),
    (r"°C\b|℃", " degrees Celsius"),
    (r"°F\b|℉", " degrees Fahrenheit"),
    (r"°([NSEW])\b", lambda m: f" degrees {_COMPASS[m[1]]}"),
    (r"°", " degrees "),
    (rf"(?<=\bper )({either(UNITS)})(?![A-Za-z0-9])", lambda m: UNITS[m[1]]),
)  # fmt: skip
_OF_UNIT = rf"(?: ?({either(UNITS)})(?![A-Za-z0-9/·^]))?"


def _fraction(match: re.Match[str]) -> str:
    """3/4 is three quarters, 120/80 one hundred and twenty over eighty; a unit may follow."""
    unit = match[3]
    if int(match[1]) < int(match[2]) <= 100:
        return fraction(match[1], match[2]) + (f" {UNITS[unit]}" if unit else "")
    return f"{match[1]} over {match[2]}" + (f" {plural_unit(UNITS[unit])}" if unit else "")


FRACTIONS = table(
    (rf"(?<![0-9A-Za-z./-])24/7{END}", "twenty four seven"),
    (rf"{START}([0-9]{{1,4}})[ -]([0-9]{{1,3}})[/⁄]([0-9]{{1,4}}){END}{_OF_UNIT}",
     lambda m: f"{cardinal(m[1])} and {'a half' if m[2] + m[3] == '12' else fraction(m[2], m[3])}"
     + (f" {plural_unit(UNITS[m[4]])}" if m[4] else "")),
    (rf"(?<![0-9A-Za-z./])([0-9]{{1,3}})/\1{END}(?!/)", r"\1 \1"),
    (rf"(?<![0-9A-Za-z./])([0-9]{{1,5}})[/⁄]([0-9]{{1,5}}){END}(?!/){_OF_UNIT}", _fraction),
)  # fmt: skip
