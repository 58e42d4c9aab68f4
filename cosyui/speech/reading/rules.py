"""What the reading rules of both languages share: the form of a rule, addresses, folded signs, titles in capitals.

No pattern here or in the languages' tables looks far: longer runs of digits than 16 are read before anything else,
repeats are bounded or possessive, and a pattern that scans a run starts only at its beginning. So the rules take linear
time on any text.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable

Reader = Callable[[re.Match[str]], str]
Rule = tuple[re.Pattern[str], str | Reader]
"""A pattern and what it becomes."""

N = r"[0-9]+(?:\.[0-9]+)?"
"""A whole or decimal number without sign."""
START = r"(?<![0-9A-Za-z.])"
"""Not in the middle of a number or name."""
END = r"(?![0-9A-Za-z]|\.[0-9])"
"""Likewise."""

HOURS_MINUTES = (
    r"(?P<h>[0-9]{1,3}) ?hr?s? ?(?P<m>[0-5]?[0-9]) ?m(?:ins?)?(?: ?(?P<s>[0-5]?[0-9]) ?s(?:ecs?)?)?(?![A-Za-z0-9])"
)
MINUTES_SECONDS = r"(?P<h>)(?P<m>[0-9]{1,3}) ?m(?:ins?)? ?(?P<s>[0-5]?[0-9]) ?s(?:ecs?)?(?![A-Za-z0-9])"

LONG_URL = 40
"""Characters beyond which an address is named, not read out."""
_TLD = "com|cn|org|net|edu|gov|io|ai|app|dev|info|biz|cc|uk|de|fr|jp|hk|tw|kr|ru|eu|xyz|top|site|online|tech|shop|club"
_EXTENSION = (
    "(?i:txt|md|rst|pdf|docx?|xlsx?|pptx?|csv|tsv|jsonl?|ya?ml|toml|ini|cfg|conf|env|xml|html?|css|js|ts|jsx|tsx|vue|"
    "py|ipynb|java|kt|cpp|cs|go|rs|rb|php|lua|sh|bat|ps1|sql|db|log|exe|msi|dll|so|apk|ipa|iso|bin|dat|zip|rar|7z|tar|"
    "gz|png|jpe?g|gif|bmp|svg|webp|ico|psd|mp3|mp4|wav|flac|ogg|aac|m4a|avi|mkv|mov|webm|ttf|pt|onnx)|[ch]"
)
_TAIL = r"[A-Za-z0-9./?=&%#_~:+@!$*;-]*(?<=[A-Za-z0-9/=])"
URL = re.compile(
    rf"(?:https?://|ftp://|(?<![A-Za-z0-9.])www\.)(?=[A-Za-z0-9]){_TAIL}"
    rf"|(?<![\w.])localhost:[0-9]{{1,5}}(?:/{_TAIL})?"
    rf"|(?<![A-Za-z0-9._@-])(?:[A-Za-z0-9-]{{1,63}}\.){{1,5}}(?:{_TLD})(?![A-Za-z0-9_-]|\.[A-Za-z0-9])"
    rf"(?::[0-9]{{1,5}})?(?:/{_TAIL})?"
)
MAIL = re.compile(r"(?<![\w.%+-])[A-Za-z0-9._%+-]{1,64}@[A-Za-z0-9-]{1,63}(?:\.[A-Za-z0-9-]{1,63})+(?<![.-])", re.A)
FILE = re.compile(
    r"(?<![A-Za-z0-9_])[A-Za-z]:\\(?:[A-Za-z0-9_.-]+\\?)*(?<=[A-Za-z0-9\\])"  # C:\Users\me
    r"|(?<![\w./~])(?:~|\.\.?)?(?:/[A-Za-z0-9._%+-]+){2,}/?(?<=[A-Za-z0-9/])"  # /etc/hosts, ./a/b
    rf"|(?<![\w./-])(?:\./)?(?:[A-Za-z0-9_-]++/)*[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*?\.(?:{_EXTENSION})(?!\.?\w)",
    re.A,
)

CIRCLED = {
    char: str(int(unicodedata.numeric(char)))
    for first, last in ((0x2460, 0x249B), (0x24EA, 0x24FF), (0x2776, 0x2793), (0x3251, 0x325F))
    for char in map(chr, range(first, last + 1))
}
"""Numbers in circles, in brackets or with a dot, as digits."""
CIRCLED_CLASS = f"[{''.join(CIRCLED)}]"

_SUPERSCRIPTS = dict(zip("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ⁿ", "0123456789+-n", strict=True))
_SAME = str.maketrans({**dict.fromkeys("‐‑−﹣－", "-"), **dict.fromkeys("〜～∼", "~"), "￥": "¥", "µ": "μ",
                       **dict.fromkeys("⩽≦", "≤"), **dict.fromkeys("⩾≧", "≥"), "∶": ":", "⋅": "·"})  # fmt: skip
_LONG_ROW = re.compile(r"([^\w\s])\1{3,}")
_SUPERSCRIPT_RUN = re.compile(f"[{''.join(_SUPERSCRIPTS)}]+")
_ROMAN_RUN = re.compile("[\u2160-\u217b]+")
_FRACTION = re.compile("([0-9]?)([¼-¾⅐-⅞])(?=([0-9¼-¾⅐-⅞])?)")
_OTHER_NUMBER = re.compile(rf"(?!{CIRCLED_CLASS})[^\x00-\x7f\u2e80-\u9fff]")
_BETWEEN_DIGITS = re.compile(r"(?<=[0-9])[：﹕](?=[0-9])")

_ROMAN = {"I": 1, "V": 5, "X": 10, "L": 50, "C": 100, "D": 500, "M": 1000}


def table(*rules: tuple[str, str | Reader]) -> tuple[Rule, ...]:
    """Rules from their patterns as text."""
    return tuple((re.compile(pattern), replacement) for pattern, replacement in rules)


def apply(text: str, rules: tuple[Rule, ...]) -> str:
    """One rule after another over the whole text."""
    for pattern, replacement in rules:
        text = pattern.sub(replacement, text)
    return text


def fold(text: str) -> str:
    """One way to write each sign: ``²`` is ``^2``, ``₂`` ``2``, ``½`` ``1⁄2``, ``Ⅳ`` ``4``; all digits are ASCII."""
    text = _LONG_ROW.sub(r"\1\1\1", re.sub(r"\s+", " ", text).translate(_SAME))
    if text.isascii():
        return text
    text = _SUPERSCRIPT_RUN.sub(_superscript, text)
    text = _ROMAN_RUN.sub(lambda m: str(roman(unicodedata.normalize("NFKC", m.group()).upper()) or ""), text)
    text = _FRACTION.sub(_vulgar, text)
    text = _OTHER_NUMBER.sub(_plain_number, text)
    return _BETWEEN_DIGITS.sub(":", text)


def _superscript(match: re.Match[str]) -> str:
    """``⁻³`` is ``^-3``; the charge of an ion, ``³⁺``, is ``^(3+)``, for x²+y is another thing."""
    plain = "".join(map(_SUPERSCRIPTS.__getitem__, match.group()))
    return f"^({plain})" if plain[-1] in "+-" else f"^{plain}"


def _vulgar(match: re.Match[str]) -> str:
    """``3½`` is ``3 1⁄2``, with a blank after it too if a number follows."""
    before = f"{match[1]} " if match[1] else ""
    return f"{before}{unicodedata.normalize('NFKC', match[2])}{' ' if match[3] else ''}"


def _plain_number(match: re.Match[str]) -> str:
    char = match.group()
    kind = unicodedata.category(char)
    if kind == "Nd":
        return str(unicodedata.digit(char))
    return unicodedata.normalize("NFKC", char) if kind == "No" else char


def roman(text: str) -> int | None:
    """The value of a Roman numeral in capitals, None if it is none (as IIX)."""
    total, largest = 0, 0
    for letter in reversed(text):
        value = _ROMAN.get(letter, 0)
        if not value:
            return None
        total += value if value >= largest else -value
        largest = max(largest, value)
    return total if total > 0 and _to_roman(total) == text else None


def _to_roman(value: int) -> str:
    signs = ["M", "CM", "D", "CD", "C", "XC", "L", "XL", "X", "IX", "V", "IV", "I"]
    sizes = (1000, 900, 500, 400, 100, 90, 50, 40, 10, 9, 5, 4, 1)
    words = ""
    for sign, size in zip(signs, sizes, strict=True):
        words += sign * (value // size)
        value %= size
    return words


_TITLE = re.compile(
    r"(?<![A-Za-z0-9'’-])[A-Z][A-Z'’]*+(?:(?:-|[,:]? )(?:[A-Z][A-Z'’]*+|[0-9]{1,4})(?![A-Za-z0-9]))*(?![A-Za-z0-9])"
)
_TITLE_WORD = re.compile(r"[A-Z][A-Z'’]*")
_LITTLE_WORDS = frozenset((
    "THE", "OF", "TO", "IN", "ON", "AT", "FOR", "FROM", "WITH", "BY", "IS", "ARE", "WAS", "BE", "YOU", "YOUR", "WE",
    "OUR", "MY", "ME", "HE", "SHE", "HIS", "HER", "THEY", "THIS", "THAT", "NOT", "NO", "DO", "HOW", "WHY", "WHAT",
    "WHO", "WHEN", "WHERE", "AS", "SO", "IF", "BUT", "ALL", "CAN", "WILL",
))  # fmt: skip


def lower_titles(text: str) -> str:
    """Phrases in capitals in small letters, so that nobody spells them out; acronyms keep theirs."""
    return _TITLE.sub(lambda m: _TITLE_WORD.sub(_lower_word, m[0]) if _is_title(m[0]) else m[0], text)


def _lower_word(match: re.Match[str]) -> str:
    word = match.group()
    return word.lower() if re.search("[AEIOUY]", word) else word


def _is_title(phrase: str) -> bool:
    words = _TITLE_WORD.findall(phrase)
    if len(words) == 1:
        return len(words[0]) >= 7 and len(re.findall("[AEIOUY]", words[0])) >= 2
    if any(word in _LITTLE_WORDS for word in words):
        return any(len(word) >= 3 for word in words)
    return max(map(len, words)) >= 5 and sum(map(len, words)) >= 4 * len(words)


_CLAUSE_END = re.compile("[，。！？；,;!?\n]")


def clause_before(match: re.Match[str], width: int = 24) -> str:
    """What stands before a match in its clause, at most ``width`` characters."""
    return _CLAUSE_END.split(match.string[max(0, match.start() - width) : match.start()])[-1]


def clause_after(match: re.Match[str], width: int = 24) -> str:
    """What stands after a match in its clause, at most ``width`` characters."""
    return _CLAUSE_END.split(match.string[match.end() : match.end() + width], 1)[0]


def either(words: Iterable[str]) -> str:
    """A pattern for any of the words, the longest first."""
    return "|".join(re.escape(word) for word in sorted(words, key=len, reverse=True))
