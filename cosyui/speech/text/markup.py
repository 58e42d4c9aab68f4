"""Marks in a user's text: the model's own stay, everything else in brackets of that kind goes, with a remark.

The model's marks (``[breath]``, ``<strong>``..``</strong>``, ``[AA1]``, ``[h][ǎo]``) come from the tokenizer's list.
"""

from __future__ import annotations

import difflib
import re
import unicodedata
from collections.abc import Callable, Iterable
from collections.abc import Set as AbstractSet
from itertools import pairwise, zip_longest

from cosyui.model.added_tokens import ADDED_TOKENS, PHONES, PINYIN
from cosyui.notice import Notice

ALL_MARKS: frozenset[str] = frozenset(token for token in ADDED_TOKENS if not token.startswith("<|"))
"""Every mark a text may contain."""

_IN_BRACKETS = "|".join(re.escape(mark[1:-1]) for mark in sorted(ALL_MARKS, key=len, reverse=True) if mark[0] == "[")
_IN_ANGLES = "|".join(mark[1:-1] for mark in ALL_MARKS if mark[0] == "<")
MARK_PATTERN = re.compile(rf"\[(?:{_IN_BRACKETS})\]|<(?:{_IN_ANGLES})>")

INITIALS = frozenset(f"[{name}]" for name in ("zh", "ch", "sh", *"bpmfdtnlgkhjqxrzcsyw"))
"""Marks of the consonants that open a syllable."""
FINALS = frozenset(PINYIN) - INITIALS
_VOWELS = frozenset(mark[:-2] for mark in PHONES if mark.endswith("0]"))
_TAGS = sorted(mark for mark in ALL_MARKS - set(PHONES) - set(PINYIN) if not mark.startswith("</"))
_TONES = {"a": "āáǎàa", "e": "ēéěèe", "i": "īíǐìi", "o": "ōóǒòo", "u": "ūúǔùu", "ü": "ǖǘǚǜü"}

_BRACKET = re.compile(r"\[([^\[\]\n]{1,40})\]")
_WORD = re.compile(r"/?(?:[A-Za-z][\w'-]*|[\w'-]*[A-Za-z])", re.ASCII)
# Sounds and acts that scripts and other speech programs write into a text, alone or with how they are done.
_SOUNDS = frozenset(
    str.split(
        "laugh laughs laughing laughter chuckle chuckles giggle giggles breath breathe breathes breathing inhale "
        "inhales exhale exhales sigh sighs sighing cough coughs gasp gasps sniff sniffs sob sobs cries crying yawn "
        "yawns groan groans hum hums humming whisper whispers whispering shouts screams applause clap claps cheering "
        "cheers music noise silence pause pauses beat clears throat"
    )
)
_MANNERS = frozenset(str.split("long short soft softly loud loudly quietly nervously deep heavy background sound"))
_STAGE_DIRECTION = re.compile(r"[({（]\s*([A-Za-z]{3,12}(?:[ _-][A-Za-z]{3,12}){0,3})\s*[)}）]")
MAX_REMARKS = 8


def map_between_marks(text: str, change: Callable[[str], str]) -> str:
    """``text`` with ``change`` applied to each stretch without marks; the marks stay."""
    pieces: list[str] = []
    start = 0
    for match in MARK_PATTERN.finditer(text):
        pieces += [change(text[start : match.start()]), match.group()]
        start = match.end()
    return "".join([*pieces, change(text[start:])])


def join(pieces: list[str]) -> str:
    """Pieces on one line, with a blank where both neighbours are of a script that writes blanks."""
    result: list[str] = []
    for before, piece in pairwise(["", *pieces]):
        last, first = MARK_PATTERN.sub("", before[-40:])[-1:], MARK_PATTERN.sub("", piece[:40])[:1]
        if before and last.isascii() and first.isascii():
            result.append(" ")
        result.append(piece)
    return "".join(result)


def clean_marks(text: str, marks: AbstractSet[str], removed: list[str]) -> str:
    """``text`` with the marks in ``marks`` alone, each where it makes sense; what goes is added to ``removed``.

    A pinyin initial needs a final behind it, an English vowel its stress, ``<strong>`` its ``</strong>``. Other words
    in square brackets that look like marks go too; ``[注1]`` and ``[3]`` are text.
    """
    text = _BRACKET.sub(lambda match: _bracket(match, removed), text)
    text = _STAGE_DIRECTION.sub(lambda match: _stage_direction(match, removed), text)
    found = list(MARK_PATTERN.finditer(text))
    bad = {match.start() for match in found if match.group() not in marks} | _misplaced(found) | _lonely(found)
    return _without(text, [match for match in found if match.start() in bad], removed)


def remarks(removed: Iterable[str]) -> tuple[Notice, ...]:
    """What to tell about the marks that were left out: what to write instead where we know, one list for the rest."""
    notices: list[Notice] = []
    others: list[str] = []
    for mark in list(dict.fromkeys(removed))[:MAX_REMARKS]:
        instead = suggestion(mark)
        if mark in INITIALS:
            sentence = "Left out {mark}: an initial needs its final right behind it, as in [h][ǎo]."
            notices.append(Notice.of("mark_incomplete", sentence, mark=mark))
        elif instead:
            notices.append(Notice.of("mark_wrong", "Left out {mark}: write {instead}.", mark=mark, instead=instead))
        else:
            others.append(mark)
    if others:
        sentence = "Left out, because they are no marks of this model or lack their partner: {marks}."
        notices.append(Notice.of("marks_left_out", sentence, marks=", ".join(others)))
    return tuple(notices)


def suggestion(mark: str) -> str:
    """The marks that somebody who wrote ``mark`` wanted, ``""`` if nothing is near: ``[hao3]`` gives ``[h][ǎo]``."""
    name = mark.strip("<>[]/")
    vowel = f"[{name[:2].upper()}"
    if vowel in _VOWELS and re.fullmatch("[3-9]?", name[2:]) and (name[:2].isupper() or name[2:]):
        return f"{vowel}0], {vowel}1] or {vowel}2]"
    if syllable := _syllable(name):
        return syllable
    if mark in ALL_MARKS:
        return ""
    for twin in (f"[{name.upper()}]", f"[{name.lower()}]", f"<{name.lower()}>"):
        if twin in ALL_MARKS:
            return twin
    near = difflib.get_close_matches(name.lower(), [tag[1:-1] for tag in _TAGS], n=1, cutoff=0.65)
    tag = next((tag for tag in _TAGS if near and tag[1:-1] == near[0] and (tag[0] == mark[0] or tag[0] == "[")), "")
    return tag + tag.replace("<", "</") if tag.startswith("<") else tag


_VOWELS_BARE = frozenset(f"{vowel}]" for vowel in _VOWELS)


def _syllable(name: str) -> str:
    """``hao3`` or ``hǎo`` as the marks of its initial and its final, ``""`` if it is no such syllable."""
    numbered = re.fullmatch(r"([a-zü:]{1,6})([1-5])", name.lower())
    if numbered:
        name = _with_tone(numbered.group(1).replace("u:", "ü").replace("v", "ü"), int(numbered.group(2)))
    elif name.isascii() or unicodedata.normalize("NFC", name) != name:
        return ""
    initial = next((start for start in ("zh", "ch", "sh", *"bpmfdtnlgkhjqxrzcsyw") if name.startswith(start)), "")
    final = f"[{name[len(initial) :]}]".replace("[üè]", "[vè]")
    if final not in FINALS or (f"[{name}]" in ALL_MARKS and not numbered):
        return ""
    return (f"[{initial}]" if initial else "") + final


def _with_tone(syllable: str, tone: int) -> str:
    """``hao`` and 3 as ``hǎo``: the tone stands on a or e, on the o of ou, else on the last vowel."""
    place = next((syllable.index(vowel) for vowel in ("a", "e", "ou") if vowel in syllable), None)
    if place is None:
        place = max((syllable.rfind(vowel) for vowel in _TONES), default=-1)
    if place < 0:
        return syllable
    return syllable[:place] + _TONES[syllable[place]][tone - 1] + syllable[place + 1 :]


def _bracket(match: re.Match[str], removed: list[str]) -> str:
    if match.group() in ALL_MARKS:
        return match.group()
    words = match.group(1).strip().split()
    is_mark = len(words) == 1 and (_WORD.fullmatch(words[0]) or _syllable(words[0]))
    if is_mark or _is_stage_direction(words):
        removed.append(match.group())
        return " "  # what stood on either side of it must not become a mark, or a control token, by joining up
    return match.group()


def _stage_direction(match: re.Match[str], removed: list[str]) -> str:
    """``(laughs)`` and ``{pause}`` go, ``(see below)`` and ``{name}`` stay."""
    if not _is_stage_direction(re.split("[ _-]", match.group(1))):
        return match.group()
    removed.append(match.group())
    return " "


def _is_stage_direction(words: list[str]) -> bool:
    small = {word.lower() for word in words}
    return bool(small & _SOUNDS) and small <= _SOUNDS | _MANNERS


def _misplaced(found: list[re.Match[str]]) -> set[int]:
    """Where an initial has no final right behind it, and where a vowel has no stress."""
    places: set[int] = set()
    for match, following in zip_longest(found, found[1:]):
        joined = following is not None and following.start() == match.end() and following.group() in FINALS
        if (match.group() in INITIALS and not joined) or match.group() in _VOWELS_BARE:
            places.add(match.start())
    return places


def _lonely(found: list[re.Match[str]]) -> set[int]:
    """Where a ``<x>`` or ``</x>`` has no partner."""
    open_at: dict[str, int] = {}
    lonely: set[int] = set()
    for match in found:
        mark = match.group()
        if mark.startswith("</"):
            if open_at.pop("<" + mark[2:], None) is None:
                lonely.add(match.start())
        elif mark.startswith("<"):
            if mark in open_at:
                lonely.add(match.start())
            else:
                open_at[mark] = match.start()
    return lonely | set(open_at.values())


def _without(text: str, matches: list[re.Match[str]], removed: list[str]) -> str:
    pieces: list[str] = []
    start = 0
    for match in matches:
        removed.append(match.group())
        pieces += [text[start : match.start()], " "]
        start = match.end()
    return "".join([*pieces, text[start:]])
