"""English: telephone numbers, numbers that name something, versions, and names with digits in them."""

from __future__ import annotations

import re

from cosyui.speech.reading.numbers_en import cardinal, digits, number, pairs
from cosyui.speech.reading.rules import END, START, clause_before, table

_CALL = r"(?i:call|dial|dialed|dialled|phone|ring|text|contact|telephone|hotline|helpline|emergency|tel|fax)"
_EMERGENCY = r"(?:911|999|112|000|101|111|211|311|411|988|110|119|120)"
# Read in pairs, as one says the number of a room; the rest of this kind digit by digit.
_PAIRED = (
    "room|flight|boeing|airbus|route|highway|interstate|suite|gate|bus|train|apartment|building|channel|extension|locker|"
    "platform|area|office|model|windows"
)
_CODED = (
    "phone|mobile|cell|telephone|fax|number|code|codes|pin|password|passcode|zip|zipcode|postcode|id|account|card|tracking|invoice|serial|confirmation|reference|"
    "booking|order|ticket|case|isbn|otp|sku|passport|license|licence|plate|membership|policy|routing"
)


def _groups(text: str) -> str:
    """Digits with a short pause between the groups they are written in."""
    return ", ".join(digits(group) for group in re.findall("[0-9]+", text))


def _phone(match: re.Match[str]) -> str:
    number, _, extension = re.sub(r",? ?(?:ext\.?|extension|x) ?(?=[0-9]+$)", "#", match[0]).partition("#")
    plus = "plus " if number.startswith("+") else ""
    return plus + _groups(number) + (f", extension {digits(extension)}" if extension else "")


def _international(match: re.Match[str]) -> str:
    return _phone(match) if sum(map(str.isdigit, match[0])) >= 9 else match[0]


def _emergency(match: re.Match[str]) -> str:
    after = re.match(r" (?:call|operator|dispatch|emergency|line|caller)", match.string[match.end() :][:16])
    before = re.search(rf"\b{_CALL}\w{{0,3}}\b(?:\W+\w+){{0,2}}\W*$|\b{_CALL} .{{0,12}}\bor $", clause_before(match))
    counts = re.match(r" (?:[a-z]+s|people|men|women)\b", match.string[match.end() :][:20])
    return digits(match[0]) if (after or before) and not counts else match[0]


def _coded(match: re.Match[str]) -> str:
    """Code 1234 and order number 1234 digit by digit; a few digits after the bare word may count."""
    head, number = match[1], match[2]
    return f"{head.rstrip('# ')} {digits(number)}" if len(number) >= 5 or not re.fullmatch(r"\w+ ", head) else match[0]


def _dotted(match: re.Match[str], *, joint: str = "dot") -> str:
    parts = match["number"].split(".")
    words = f" {joint} ".join(digits(part) if joint == "dot" else cardinal(part) for part in parts)
    return words + (f" colon {digits(match['port'])}" if match["port"] else "")


_EXTENSION = r"(?:,? ?(?:ext\.?|extension|x) ?[0-9]{1,5})?(?![0-9A-Za-z])"
CODES = table(
    (rf"(?<![0-9A-Za-z.])\+[0-9]{{1,3}}(?:[ .-]?\(?[0-9]{{1,5}}\)?){{2,5}}{_EXTENSION}", _international),
    (rf"(?<![0-9A-Za-z.-])(?:1[ .-])?(?:\([0-9]{{3}}\) ?|[0-9]{{3}}[ .-])[0-9]{{3}}[ .-][0-9]{{4}}{_EXTENSION}",
     _phone),
    (rf"(?<![0-9A-Za-z.])\(?0[0-9]{{1,4}}\)?[ -][0-9]{{3,4}}(?:[ -][0-9]{{3,4}}){{1,2}}{_EXTENSION}", _phone),
    (rf"(?<![0-9A-Za-z.,-])[2-9][0-9]{{2}}-[0-9]{{4}}{_EXTENSION}(?!-)", _phone),
    (rf"(?<![0-9A-Za-z.:/-]){_EMERGENCY}{END}(?![:/-][0-9])", _emergency),
    (rf"\b({_CALL}(?: me| us)?(?: at| on)? )([0-9]{{5,15}})(?![0-9]|[.,:/-][0-9])", lambda m: m[1] + digits(m[2])),
    (r"(?<![0-9.])[0-9]{4}(?:[ -][0-9]{4}){2,4}(?:[ -][0-9]{1,4})?(?![0-9])", lambda m: _groups(m[0])),
    (r"[0-9]{16,}", lambda m: digits(m[0]).join("  ")),
    (rf"\b((?i:{_CODED})(?:(?: (?i:number|no|code|is|of)){{0,3}}:? ?#?| #))(?<=[ #:])([0-9]{{3,15}})"
     r"(?![0-9]|[.,:/-][0-9])(?! [a-z]{1,20}s\b)", _coded),
    (rf"\b((?i:{_PAIRED})(?: (?i:number|no))?) #?([0-9]{{3,4}})(?:-([0-9]{{3}}))?(?![0-9]|[.,:/-][0-9])",
     lambda m: f"{m[1]} {pairs(m[2])}" + (f" {pairs(m[3])}" if m[3] else "")),
    (r"(?<![0-9A-Za-z.,/-])[0-9]{1,6}(?:-[0-9]{1,6}){2,6}(?![0-9A-Za-z/-])", lambda m: _groups(m[0])),
    (r"(?<![A-Za-z0-9])([A-Z])([0-9]{1,2})[-–](?=\1[0-9])", r"\1\2 to "),
    (rf"{START}(?P<number>[0-9]{{1,3}}(?:\.[0-9]{{1,3}}){{3}})(?::(?P<port>[0-9]{{1,5}}))?{END}", _dotted),
    (r"(?<![A-Za-z0-9.])([vV](?:er)?|[Vv]ersion)\.? ?(?P<number>[0-9]+(?:\.[0-9]+){1,9})(?P<port>)(?![0-9])",
     lambda m: f"{'Version' if m[1][0] == 'V' else 'version'} " + _dotted(m, joint="point")),
    (r"(?<![0-9.])(?P<number>[0-9]+(?:\.[0-9]+){2,})(?P<port>)(?![0-9])", lambda m: _dotted(m, joint="point")),
    (rf"(?<![A-Za-z0-9])[vV]([0-9]{{1,3}}){END}", lambda m: f"version {m[1]}"),
    # Standards: the dash or colon before the year is no minus and no time.
    (r"(?<![A-Za-z0-9])([A-Z]{2,5}(?:/[A-Z]{1,4})? ?)([0-9]{3,6}(?:\.[0-9]+)?)[-:–]((?:19|20)?[0-9]{2})(?![0-9-])",
     lambda m: f"{m[1].replace('/', ' ').strip()} {_model(m[2])}, {pairs(m[3])}"),
)  # fmt: skip


def _model(text: str) -> str:
    whole, dot, rest = text.partition(".")
    words = pairs(whole) if len(whole) <= 4 else digits(whole)
    return words + (f" point {digits(rest)}" if dot else "")


def _name(match: re.Match[str]) -> str:
    """A run of letters and digits: iPhone15, GPT-4o, B2B; 150k is a number with a letter."""
    token = match[0].replace("_", " ")
    many = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)([kKMBTx])", token)
    if many:
        return f"{number(many[1])} {many[2].upper() if many[2] != 'x' else 'times'}"
    token = re.sub(r"^([B-GMOPTV])2([B-GMOPTV])$", r"\1 to \2", token)
    token = re.sub(r"(?<=[A-Za-z])-(?=[0-9])|(?<=[0-9])-(?=[A-Za-z0-9])", " ", token)
    token = re.sub(r"[0-9]+(?:\.[0-9]+)?", lambda m: f" {_model(m[0])} ", token)
    return re.sub(" +", " ", token.replace(".", " dot ")).strip()


NAMES = table(
    (r"(?<![A-Za-z0-9_])(?=[A-Za-z0-9])[A-Za-z0-9_]++(?:[.-][A-Za-z0-9_]++)*",
     lambda m: _name(m) if re.search(r"[A-Za-z]", m[0]) and re.search(r"[0-9_]|[a-z]\.[a-z]", m[0]) else m[0]),
    (r"(?<=[A-Z]{2}) ([0-9]{3,4})(?![0-9]|[.,:/-][0-9])", lambda m: f" {pairs(m[1])}"),
)  # fmt: skip
