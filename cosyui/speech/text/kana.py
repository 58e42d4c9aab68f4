"""Japanese as the released model wants it: katakana as it is pronounced, words set apart by blanks.

Readings come from MeCab with UniDic (packages fugashi and unidic-lite), imported when first needed. Without them the
text stays as it is written.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

from cosyui.notice import Notice
from cosyui.speech.text.markup import map_between_marks

INSTALL = "pip install fugashi unidic-lite"

_NEEDS_READING = re.compile(r"[\u3041-\u3096\u3400-\u9fff々〇0-9]")
_KANJI = re.compile(r"[\u3400-\u9fff]")
_JAPANESE = re.compile(r"[\u3041-\u3096\u30a1-\u30fa\u30fc-\u30fe\u3400-\u9fff々〇]+")
_NUMBER = re.compile(r"(?<![A-Za-z0-9.])([0-9]+)(?:\.([0-9]+))?(?![A-Za-z0-9]|\.[0-9])")
_DIGITS = "〇一二三四五六七八九"
_TENS, _MYRIADS = ("", "十", "百", "千"), ("", "万", "億", "兆")

_PHONE = re.compile(r"(?<![0-9-])0[0-9]{1,4}(?:-[0-9]{1,4}){1,2}(?![0-9-])")
_WRITTEN = (
    (re.compile(r"(?<=[0-9]),(?=[0-9]{3}(?![0-9]))"), ""),
    (re.compile(r"(?<![0-9])([0-9]{4})[-/.]([0-9]{1,2})[-/.]([0-9]{1,2})(?![0-9])"), r"\1年\2月\3日"),
    (re.compile(r"(?<![0-9])([0-9]{1,2}):00(?![0-9])"), r"\1時"),
    (re.compile(r"(?<![0-9])([0-9]{1,2}):0?([0-9]{1,2})(?![0-9])"), r"\1時\2分"),
    (re.compile(r"[¥￥] ?([0-9]+)"), r"\1円"),
    (re.compile(r"\$ ?([0-9]+(?:\.[0-9]+)?)"), r"\1ドル"),
    (re.compile(r"(?<=[0-9]) ?(?:℃|°C?)"), "度"),
    (re.compile(r"(?<=[0-9]) ?[%％]"), "パーセント"),
    (re.compile(r"(?<=[0-9]) ?km(?![A-Za-z])"), "キロメートル"),
    (re.compile(r"(?<=[0-9]) ?kg(?![A-Za-z])"), "キログラム"),
    (re.compile(r"(?<=[0-9]) ?cm(?![A-Za-z])"), "センチメートル"),
    (re.compile(r"(?<=[0-9]) ?m(?![A-Za-z])"), "メートル"),
    (re.compile(r"(?<=[0-9]) ?[~～〜-] ?(?=[0-9]{1,3}(?![0-9-]))"), "から"),
    (re.compile(r"(?<=[0-9])-(?=[0-9])"), "の"),
)  # fmt: skip
# A number before what it counts, where its usual reading changes.
_COUNTED = {("四", "月"): "シ", ("七", "月"): "シチ", ("九", "月"): "ク", ("四", "時"): "ヨ", ("七", "時"): "シチ",
            ("九", "時"): "ク", ("四", "人"): "ヨ", ("四", "年"): "ヨ", ("四", "円"): "ヨ"}  # fmt: skip
_DOUBLED = {"一": ("イチ", "イッ"), "六": ("ロク", "ロッ"), "八": ("ハチ", "ハッ"), "十": ("ジュー", "ジュッ")}
_SOFT, _HARD, _VOICED = "ハヒフヘホ", "パピプペポ", "バビブベボ"
_NUMERAL = re.compile("[一二三四五六七八九十百千]+")


def to_katakana(text: str, remarks: list[Notice]) -> str:
    """A Japanese text in katakana with digits read; ``remarks`` gets one if that is not possible on this machine.

    Katakana, other letters and signs stay as they are, and so do the model's marks.
    """
    if not _NEEDS_READING.search(text):
        return text
    tagger = _tagger()
    if tagger is None:
        if _KANJI.search(text):
            sentence = "Japanese is spoken as it is written, so kanji may be misread. For their readings: {command}"
            remarks.append(Notice.of("japanese_missing", sentence, command=INSTALL))
        return text
    return map_between_marks(text, lambda part: _read_all(part, tagger))


def _read_all(text: str, tagger: Any) -> str:
    text = _PHONE.sub(lambda match: _one_by_one(match.group().replace("-", "の")), text)
    for pattern, replacement in _WRITTEN:
        text = pattern.sub(replacement, text)
    text = _NUMBER.sub(lambda match: _number(match.group(1), match.group(2)), text)
    pieces: list[str] = []
    start = 0
    for match in _JAPANESE.finditer(text):
        gap = " " if match.start() and text[match.start() - 1].isalnum() else ""
        pieces += [text[start : match.start()], gap, _read(match.group(), tagger)]
        start = match.end()
        pieces.append(" " if text[start : start + 1].isalnum() else "")
    return "".join([*pieces, text[start:]])


def _read(text: str, tagger: Any) -> str:
    if not _NEEDS_READING.search(text):
        return text
    words = [(word.surface, word.feature.pron or word.surface, word.feature.pos3 or "") for word in tagger(text)]
    readings: list[str] = []
    for index, (surface, reading, _) in enumerate(words):
        counter, sound, kind = words[index + 1] if index + 1 < len(words) else ("", "", "")
        if surface == "〇":
            reading = "ゼロ"
        elif (surface, counter) in _COUNTED:
            reading = _COUNTED[surface, counter]
        elif kind.startswith("助数詞") and counter != sound and _NUMERAL.fullmatch(surface):
            reading, sound = _joined(surface, reading, counter, sound)
            words[index + 1] = (counter, sound, kind)
        readings.append(reading)
    return " ".join(readings)


def _joined(number: str, reading: str, counter: str, sound: str) -> tuple[str, str]:
    """Number and counter as they are said together: 一 and 分 as イッ and プン."""
    long, short = _DOUBLED.get(number[-1], ("", ""))
    doubled = reading.removesuffix(long) + short
    soft = (_SOFT + _SOFT)[(_SOFT + _HARD).find(sound[0])] if sound[0] in _SOFT + _HARD else ""
    if soft:
        hardens = short or (number[-1] in "三四" and counter[0] == "分")
        voices = number[-1] == "三" and counter[0] in "本匹杯"
        row = _HARD if hardens else _VOICED if voices else _SOFT
        return (doubled if short else reading), row[_SOFT.find(soft)] + sound[1:]
    doubles = sound[0] in "カキクケコ" or (sound[0] in "サシスセソタチツテト" and number[-1] != "六")
    return (doubled if doubles and short else reading), sound


def _number(whole: str, decimals: str | None) -> str:
    """Digits in kanji: as an amount, or one by one where they start with a zero or are too many."""
    is_code = len(whole) > 16 or (len(whole) > 1 and whole[0] == "0")
    read = _one_by_one(whole) if is_code else _amount(int(whole))
    return f"{read}点{_one_by_one(decimals)}" if decimals else read


def _one_by_one(digits: str) -> str:
    return "".join(_DIGITS[int(char)] if char.isdecimal() else char for char in digits)


def _amount(number: int) -> str:
    if number == 0:
        return "〇"
    parts: list[str] = []
    for myriad in _MYRIADS:
        number, rest = divmod(number, 10_000)
        digits = [(int(digit), ten) for digit, ten in zip(reversed(str(rest)), _TENS, strict=False)]
        words = [("" if digit == 1 and ten else _DIGITS[digit]) + ten for digit, ten in reversed(digits) if digit]
        if words:
            parts.append("".join(words) + myriad)
    return "".join(reversed(parts))


@lru_cache(maxsize=1)
def _tagger() -> Any:
    """MeCab with UniDic, None where the packages are not installed."""
    try:
        import fugashi
        import unidic_lite  # noqa: F401 - fugashi finds it by itself
    except ImportError:
        return None
    return fugashi.Tagger()
