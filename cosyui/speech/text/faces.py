"""Faces drawn with signs, which nobody reads out: ``(^_^)``, ``(๑•̀ㅂ•́)و``, ``T_T``, ``:-)``."""

from __future__ import annotations

import re
import unicodedata

LONGEST = 24
"""Characters between the brackets of a face."""

# Letters that are drawn as eyes, mouths and hands; any other letter or a digit makes the brackets hold words.
_DRAWN = frozenset("oOTtuUvVwωΩдДΘэεσщ口皿益ツシノづつっヮロ눈ㅂㅅㅇ")
_LETTERS = re.compile(
    r"[A-Za-z0-9\u00c0-\u024f\u0370-\u052f\u3041-\u3096\u30a1-\u30fa\u30fc-\u30ff\u3400-\u9fff\uac00-\ud7a3]"
)
_PUNCTUATION = frozenset(' ，。！？、：,.!?:"“”‘’…—')
_LONE_MOUTHS = frozenset("ツシ")
_HANDS = r"[ヽヾノづつっゞゝو٩۶งღدΣ\\/\0*]"
_BEFORE = re.compile(rf"(?:(?<![\u3041-\u30ff\\/]){_HANDS}|[\\\0]_?){{1,3}}\Z")
_AFTER = re.compile(rf"(?:_?[/\0]|{_HANDS}(?![\u3041-\u30ff])|[om](?![A-Za-z])){{0,3}}(?:[*:・゚。]{{2,5}}\0?)?")
_LETTER_HANDS = re.compile(r"(?<![A-Za-z])([omdbqp])\Z")

_ALONE = r"(?<![A-Za-z0-9^<>=_-])"
_BARE = re.compile(
    rf"{_ALONE}(?:\^[_.o-]?\^;?|>[_.]<|T[_.]T|=_=|-_-|;_;|o_o|O_O|O_o|o_O|@_@|ʕ[^ʕʔ\n]{{1,12}}ʔ|([ಠಥ\0•])[_\0]\1)"
    r"(?![A-Za-z0-9^<>=])"
    r"|(?<![^\s\0\u3400-\u9fff，。！？,.!?~])(?:[:;]['-]?[)(DPp*])+(?![\w(]|[:;]['-]?[)(DPp*])"
    r"|(?<![\w)])<3+(?=\s*(?:$|[，。！,.!]))",
    re.MULTILINE,
)
_FACE_PASSES = 3


def strip_faces(text: str, ornament: str) -> str:
    """``text`` with ``ornament``, the stand-in for a sign that has no sound, for each drawn face and its hands."""
    pieces: list[str] = []
    open_at: list[int] = []
    start = 0
    for match in re.finditer(r"[()（）]", text):
        pieces.append(text[start : match.start()])
        start = match.end()
        if match.group() in "(（":
            open_at.append(len(pieces))
            pieces.append(match.group())
            continue
        opened = open_at.pop() if open_at else None
        inner = "".join(pieces[opened + 1 :]) if opened is not None and len(pieces) - opened < LONGEST else ""
        if opened is None or not _is_face(inner, ornament):
            pieces.append(match.group())
            continue
        after = _AFTER.match(text, start)
        hands = after.group() if after else ""
        start += len(hands)
        del pieces[opened:]
        pieces[-1] = _without_hands(pieces[-1], hands) + ornament
    text = "".join([*pieces, text[start:]])
    for _ in range(_FACE_PASSES):  # beside a face that goes, another may begin or end
        text = _BARE.sub(ornament, text)
    return text


def _without_hands(text: str, other: str) -> str:
    """``text`` before a face without the hand at its end; a letter is one if the ``other`` side has the same."""
    tail = _BEFORE.sub("", text[-8:])
    letter = _LETTER_HANDS.search(tail)
    if letter and letter.group(1) == other[:1]:
        tail = tail[:-1]
    return text[:-8] + tail


def _is_face(inner: str, ornament: str) -> bool:
    """Whether what stands in brackets is a drawn face and not words."""
    if not inner or len(inner) > LONGEST or "\n" in inner:
        return False
    if inner.strip(ornament + " ") == "" or inner.strip() in _LONE_MOUTHS:
        return True
    if any(_LETTERS.match(char) for char in inner if char not in _DRAWN):
        return False
    signs = [char for char in inner if char not in _DRAWN and char not in _PUNCTUATION]
    eyes = inner.strip()
    twins = eyes[0] == eyes[-1] and len(eyes) >= 3
    return len(signs) >= 2 or (twins and any(unicodedata.category(char)[0] in "PS" for char in eyes[1:-1]))
