"""Text front end ``cosyui-marks-v1`` of the embedded voice: normalised text to pronunciation marks.

English words become CMU phones with stress (``[HH][AH0][L][OW1]``), one blank between words; Chinese becomes pinyin
initials and toned finals (``[n][ǐ][h][ǎo]``), citation tones, no blanks; punctuation is one of ``, . ? !``. Needs
hibari-tts, jieba and pypinyin, imported when first used.
"""

from __future__ import annotations

import contextlib
import logging
import marshal
import os
import re
import tempfile
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from cosyui.errors import CheckpointError
from cosyui.model.added_tokens import PHONES, PINYIN

NAME = "cosyui-marks-v1"

_PUNCTUATION = dict(zip("，、；：;:—。．…！？,.!?", ",,,,,,,...!?,.!?", strict=True))
_PAUSES = ",.?!"
_VOWELS = {"A": "EY", "I": "AY", "O": "OW", "W": "AW", "Y": "OY", "ə": "AH", "ɐ": "AH", "ᵊ": "AH", "ᵻ": "IH", "ɪ": "IH",
           "i": "IY", "u": "UW", "ʊ": "UH", "ɛ": "EH", "æ": "AE", "ɑ": "AA", "ɔ": "AO", "ʌ": "AH", "ɜ": "ER", "a": "AA",
           "e": "EH", "o": "OW"}  # fmt: skip
_CONSONANTS = {"b": "B", "d": "D", "f": "F", "h": "HH", "k": "K", "l": "L", "m": "M", "n": "N", "p": "P", "s": "S",
               "t": "T", "v": "V", "w": "W", "z": "Z", "ɡ": "G", "ŋ": "NG", "ɹ": "R", "ʃ": "SH", "ʒ": "ZH", "ð": "DH",
               "θ": "TH", "ʤ": "JH", "ʧ": "CH", "j": "Y", "T": "T", "ɾ": "T", "ʔ": "T", "x": "K", "r": "R",
               "g": "G"}  # fmt: skip
# What pypinyin gives for interjections without a vowel, as the nearest syllable that has marks.
_HUMMED = {"ń": "én", "ň": "ěn", "ǹ": "èn", "ḿ": "én", "m̀": "èn", "ńg": "éng", "ňg": "ěng", "ǹg": "èng"}
_INITIALS = ("zh", "ch", "sh", *"bpmfdtnlgkhjqxrzcsyw")
_HAN = r"\u4e00-\u9fff"
_LATIN = r"A-Za-z\u00c0-\u024f"
_LATIN_RUN = re.compile(rf"[{_LATIN}]+(?:['’ -]+[{_LATIN}]+)*'?")
_HAN_RUN = re.compile(rf"[{_HAN}]+|[^{_HAN}]", re.DOTALL)
_OWN_MARK = re.compile("|".join(re.escape(mark) for mark in sorted((*PHONES, *PINYIN), key=len, reverse=True)))
_DIGITS = str.maketrans("0123456789", "零一二三四五六七八九")


def english_marks(phonemes: str) -> str:
    """misaki's English phonemes as CMU marks; a mark's stress digit is that of the sign before its vowel."""
    out: list[str] = []
    stress = "0"
    skip = False
    for index, sign in enumerate(phonemes):
        if skip:
            skip = False
        elif sign in "ˈˌ":
            stress = "1" if sign == "ˈ" else "2"
        elif sign in _VOWELS:
            skip = sign in "əɜ" and phonemes[index + 1 : index + 2] == "ɹ"
            out.append(f"[{'ER' if skip else _VOWELS[sign]}{stress}]")
            stress = "0"
        elif sign in _CONSONANTS:
            out.append(f"[{_CONSONANTS[sign]}]")
        elif sign in _PUNCTUATION:
            while out and out[-1] == " ":
                out.pop()
            if out and out[-1] not in _PAUSES:
                out.append(_PUNCTUATION[sign])
        elif (sign.isspace() or sign in "-–") and out and out[-1] != " " and out[-1] not in _PAUSES:
            out.append(" ")
    return "".join(out).rstrip(" ")


def pinyin_marks(syllable: str, marks: AbstractSet[str]) -> list[str]:
    """One toned syllable (``xiǎo``) as marks; a final that is no mark is taken apart into the longest ones.

    A letter that is no mark at all ends it: what pypinyin returns for a character it does not know is no syllable.
    """
    syllable = _HUMMED.get(syllable, syllable)
    if "ü" in syllable or "ǜ" in syllable:
        syllable = syllable.replace("üè", "vè").replace("ǜe", "vè")
    out: list[str] = []
    initial = next((start for start in _INITIALS if syllable.startswith(start) and len(syllable) > len(start)), "")
    if initial:
        out.append(f"[{initial}]")
        syllable = syllable[len(initial) :]
    while syllable:
        size = next((size for size in range(len(syllable), 0, -1) if f"[{syllable[:size]}]" in marks), 0)
        if not size:
            break
        out.append(f"[{syllable[:size]}]")
        syllable = syllable[size:]
    return out


class MarkFrontend:
    """Converts normalised Chinese, English or mixed text; thread-safe after the first call."""

    languages = ("zh", "en")

    def __init__(self, marks: AbstractSet[str]) -> None:
        """``marks`` are those of the checkpoint's tokenizer."""
        self.marks = frozenset((*PHONES, *PINYIN)) & marks
        """Marks that a user may type: those of the pronunciation, not of breath or laughter."""

    @classmethod
    def of_name(cls, name: str | None, marks: AbstractSet[str]) -> MarkFrontend | None:
        """The front end that a checkpoint names, None for none. Raises CheckpointError for an unknown name."""
        if name is None:
            return None
        if name != NAME:
            raise CheckpointError(
                "checkpoint_corrupt", f"The checkpoint asks for the text front end {name!r}, which this version lacks."
            )
        return cls(marks)

    def convert(self, text: str) -> str:
        """Mark string of a normalised text; pronunciation marks in it stay, what has no sound is dropped."""
        out: list[str] = []
        start = 0
        for match in _OWN_MARK.finditer(text):
            out += [self._plain(text[start : match.start()]), match.group()]
            start = match.end()
        out.append(self._plain(text[start:]))
        return _tidy("".join(out))

    def unknown(self, text: str) -> str:
        """The letters of a text that `convert` drops, each once, in order: rare Han, other scripts."""
        letters = dict.fromkeys(re.findall(rf"[^\W\d_{_LATIN}]", _OWN_MARK.sub("", text)))
        return "".join(char for char in letters if not (re.match(f"[{_HAN}]", char) and _pinyin(char)))

    def _plain(self, text: str) -> str:
        if not re.search(rf"[{_HAN}]", text):
            return english_marks(self._english(text)) if re.search(rf"[{_LATIN}]", text) else self._chinese(text)
        out: list[str] = []
        start = 0
        for match in _LATIN_RUN.finditer(text):
            out += [self._chinese(text[start : match.start()]), english_marks(self._english(match.group()))]
            start = match.end()
        return "".join([*out, self._chinese(text[start:])])

    def _chinese(self, text: str) -> str:
        out: list[str] = []
        for piece in _HAN_RUN.findall(text.translate(_DIGITS)):
            if re.match(rf"[{_HAN}]", piece):
                for word in self._words(piece):
                    for syllable in _pinyin(word):
                        out += pinyin_marks(syllable, self.marks)
            elif piece in _PUNCTUATION and not (out and out[-1] in _PAUSES):
                out.append(_PUNCTUATION[piece])
        return "".join(out)

    @cached_property
    def _english(self) -> Callable[[str], str]:
        from hibari.g2p import G2P

        g2p: Callable[[str], str] = G2P(british=False)
        return g2p

    @cached_property
    def _words(self) -> Callable[[str], list[str]]:
        import jieba

        jieba.setLogLevel(logging.WARNING)
        tokenizer: Any = jieba.Tokenizer()
        # jieba reads its cache with marshal: keep it where only this user can write, not in the shared temp folder.
        folder = _private_cache()
        tokenizer.tmp_dir = str(folder)
        with contextlib.suppress(OSError, ValueError, EOFError, TypeError):  # then jieba makes it anew
            # In one go: jieba would read it piece by piece, which takes three times as long.
            tokenizer.FREQ, tokenizer.total = marshal.loads((folder / "jieba.cache").read_bytes())  # noqa: S302
            tokenizer.initialized = True
        tokenizer.initialize()
        cut: Callable[[str], list[str]] = tokenizer.lcut
        return cut


def _tidy(marks: str) -> str:
    """No punctuation at the start, one sign between two marks, no blank beside it."""
    marks = re.sub(r"^[,.?! ]+", "", marks)
    return re.sub(r" *([,.?!])[,.?! ]*", r"\1", marks).rstrip(" ")


@lru_cache(maxsize=4096)
def _pinyin(word: str) -> tuple[str, ...]:
    from pypinyin import Style, lazy_pinyin

    return tuple(lazy_pinyin(word, style=Style.TONE, errors="ignore"))


def _private_cache() -> Path:
    """A folder that only this user can write; a new one for each process where there is no writable home."""
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "cosyui"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError:
        return Path(tempfile.mkdtemp(prefix="cosyui-"))
    return folder if os.access(folder, os.W_OK) else Path(tempfile.mkdtemp(prefix="cosyui-"))
