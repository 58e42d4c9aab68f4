"""Reading rules for English sentences, before and after wetext."""

from __future__ import annotations

import re

from cosyui.speech.rules import LONG_URL, MAIL, URL, Rule, apply, apply_outside

# wetext reads the answer "No." as "number".
PROTECTED = re.compile(rf"{URL}|{MAIL}|\b[Nn]o\.(?! ?\d)")

_CIRCLED = {chr(0x2460 + index): str(index + 1) for index in range(20)}
_FRACTIONS = {
    "½": "one half",
    "⅓": "one third",
    "⅔": "two thirds",
    "¼": "one quarter",
    "¾": "three quarters",
    "⅛": "one eighth",
}
_SUBSCRIPT = str.maketrans("₀₁₂₃₄₅₆₇₈₉", "0123456789")
_SUPERSCRIPT = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻", "0123456789-")
_TENS = {"0": "hundreds", "1": "tens", "2": "twenties", "3": "thirties", "4": "forties", "5": "fifties", "6": "sixties",
         "7": "seventies", "8": "eighties", "9": "nineties"}  # fmt: skip

_WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
_DIGITS = {str(digit): word for digit, word in enumerate(_WORDS)}


def _power(match: re.Match[str]) -> str:
    exponent = match.group(1).translate(_SUPERSCRIPT)
    return {"2": " squared", "3": " cubed"}.get(exponent, f" to the power of {exponent.replace('-', 'minus ')}")


_BEFORE: tuple[Rule, ...] = (
    # First of all, so that no later pattern meets a run of digits without bound.
    (re.compile(r"[0-9]{16,}"), lambda m: " ".join(_DIGITS[digit] for digit in m.group())),
    (re.compile("[" + "".join(_CIRCLED) + "]"), lambda m: _CIRCLED[m.group()]),
    (re.compile(r"(\d+) ?([½⅓⅔¼¾⅛])"), lambda m: f"{m.group(1)} and {_FRACTIONS[m.group(2)]}"),
    (re.compile(r"[½⅓⅔¼¾⅛]"), lambda m: _FRACTIONS[m.group()]),
    (re.compile(r"[₀-₉]+"), lambda m: " " + " ".join(m.group().translate(_SUBSCRIPT)) + " "),
    (re.compile(r"\b(1[0-9]|20)([1-9])0s\b"), lambda m: f"{m.group(1)} {_TENS[m.group(2)]}"),
    (re.compile(r"\bNo\. ?(?=\d)"), "number "),
    (re.compile(r"(\d+)['′](\d+)(?:[\"″]|'')"), r"\1 foot \2"),
    (re.compile(r"(?<=\d)″"), " inches"),
    (re.compile(r"(?<=[\dA-Za-z)]) ?\^ ?(-?\d+)"), r" to the power of \1"),
    (re.compile(r"(?<=[\dA-Za-z)])([⁰¹²³⁴-⁹⁻]+)"), _power),
    (re.compile(r"\b[vV](\d+(?:\.\d+)+)"), lambda m: "version " + " point ".join(m.group(1).split("."))),
    (re.compile(r"(?<![\d.])(\d+(?:\.\d+){2,})(?![\d.]\d)"), lambda m: " dot ".join(m.group(1).split("."))),
    (re.compile(r" ?(?:≥|>=) ?"), " is at least "),
    (re.compile(r" ?(?:≤|<=) ?"), " is at most "),
    (re.compile(r" ?≠ ?"), " is not equal to "),
    (re.compile(r" ?≈ ?"), " is about "),
    (re.compile(r"(?<=\w) ?× ?(?=\w)"), " times "),
    (re.compile(r"(?<=\w) ?÷ ?(?=\w)"), " divided by "),
    (re.compile(r" ?± ?"), " plus or minus "),
    (re.compile(r"(?<=\w) ?= ?(?=[\w-])"), " equals "),
    (re.compile(r"(?<=\w) ?< ?(?=[\w-])"), " is less than "),
    (re.compile(r"(?<=\w) ?> ?(?=[\w-])"), " is greater than "),
    (re.compile(r"(?<=\d) ?\+ ?(?=\d)"), " plus "),
    (re.compile(r"(?<![A-Z'’-])[A-Z][A-Z'’-]*(?: [A-Z][A-Z'’-]*){2,}(?![A-Za-z0-9])"),
     lambda m: m.group().lower() if len(m.group()) >= 14 else m.group()),
    (re.compile(r"[‘’]"), "'"),
)  # fmt: skip

_AFTER: tuple[Rule, ...] = (
    (re.compile(r"°"), " degrees"),
    (re.compile(r"²"), " squared"),
    (re.compile(r"³"), " cubed"),
    (re.compile(r" ?& ?"), " and "),
    (re.compile(r"(?<=\w)/(?=\w)"), " or "),
    (re.compile(r"\s*[(（\[]\s*"), ", "),
    (re.compile(r"\s*[)）\]](?=\s*(?:$|[,.!?;:]))"), ""),
    (re.compile(r"\s*[)）\]]\s*"), ", "),
    (re.compile(r"\s*(?:—+|–|--+|…|\.{2,})\s*(?=\S)"), ", "),
    (re.compile(r"(?:—+|–|--+|…|\.{2,})\s*$"), "."),
    (re.compile(r"[*#`|\\^~<>{}_=$€£¥§†‡→←↑↓“”\"«»•·]"), ""),
    (re.compile(r"\s+(?=[,.!?;:])"), ""),
    (re.compile(r",+(?=[,.!?;:])"), ""),
)  # fmt: skip


def prepare(text: str) -> str:
    """What wetext reads wrongly, read right; addresses are left for `protected`."""
    return apply_outside(text, PROTECTED, _BEFORE)


def is_plain(token: str) -> bool:
    """No protected English token is for wetext."""
    return not token


_SIGNS = {".": " dot ", "/": " slash ", "?": " question mark ", "=": " equals ", "&": " and ", "@": " at ",
          "-": " dash ", "_": " underscore ", ":": " colon ", "#": " hash ", "%": " percent ", "~": " tilde ",
          "+": " plus "}  # fmt: skip


def protected(token: str) -> str:
    """An address as it is read out; a long link is only named."""
    if token.lower() == "no.":
        return token
    if re.fullmatch(URL, token):
        if len(token) > LONG_URL:
            return "the link"
        token = re.sub(r"^https?://", "", token).rstrip("/")
    words = "".join(_SIGNS.get(char, f" {_DIGITS[char]} " if char in _DIGITS else char) for char in token)
    return re.sub(r" +", " ", words).strip()


def finish(text: str) -> str:
    """Signs that nobody read become words, pauses or nothing."""
    return re.sub(r" +", " ", apply(text, _AFTER))
