"""A deployment's own pronunciations: words, and the marks or the respelling that are spoken in their place."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Self

from cosyui.errors import SetupError
from cosyui.speech.text.markup import ALL_MARKS, MARK_PATTERN, clean_marks, remarks
from cosyui.speech.text.sanitise import sanitise

MAX_BYTES = 256 << 10
MAX_ENTRIES = 5_000
MAX_WORD, MAX_SPOKEN = 60, 400

# What no entry may reach into: the model's marks, links, mail addresses, names with dots in them.
_ADDRESS = (
    r"(?:https?://|ftp://|www\.)[!-~]+|(?<![\w.%+-])[A-Za-z0-9._%+-]{1,64}@[A-Za-z0-9.-]+"
    r"|(?<![A-Za-z0-9.-])[A-Za-z0-9-]{1,63}(?:\.[A-Za-z0-9-]{1,63}){1,8}"
)
_KEPT = re.compile(f"{MARK_PATTERN.pattern}|{_ADDRESS}")
_WORD_START = re.compile(r"(?<![A-Za-z0-9])[!-~]|[^\x00-\x7f]")
_LATIN = re.compile("[A-Za-z0-9]")


class Lexicon:
    """Entries of word and spoken form; read-only, safe to share between threads."""

    def __init__(self, entries: Iterable[tuple[str, str]]) -> None:
        """A word in Latin letters is matched whole, and in any case unless it is written in capitals alone."""
        self._exact: dict[str, str] = {}
        self._folded: dict[str, str] = {}
        for word, spoken in entries:
            if word.isupper():
                self._exact[word] = spoken
            else:
                self._folded[_lower(word)] = spoken
        # By first letter, the lengths of the words that begin with it: what is tried at a place, the longest first.
        lengths: dict[str, set[int]] = {}
        for word in {*map(_lower, self._exact), *self._folded}:
            lengths.setdefault(word[0], set()).add(len(word))
        self._lengths = {first: sorted(known, reverse=True) for first, known in lengths.items()}

    def __len__(self) -> int:
        return len(self._exact) + len(self._folded)

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read a file of lines ``word = marks or respelling``; blank lines and ``#`` comments are skipped.

        Raises SetupError ``lexicon_invalid`` that names the line and what is wrong with it.
        """
        try:
            if path.stat().st_size > MAX_BYTES:
                raise SetupError("lexicon_invalid", f"{path.name} is larger than {MAX_BYTES >> 10} KiB.")
            lines = path.read_text(encoding="utf-8-sig").splitlines()
        except UnicodeDecodeError as error:
            raise SetupError("lexicon_invalid", f"{path.name} is not UTF-8 (byte {error.start}).") from None
        except OSError as error:
            raise SetupError("lexicon_invalid", f"{path.name} cannot be read: {error.strerror}.") from None
        entries: dict[str, str] = {}
        for number, line in enumerate(lines, start=1):
            if line.strip() and not line.lstrip().startswith("#"):
                word, spoken = _entry(line, f"{path.name}, line {number}")
                if word in entries:
                    raise SetupError("lexicon_invalid", f"{path.name}, line {number}: {word!r} is there twice.")
                entries[word] = spoken
        if len(entries) > MAX_ENTRIES:
            raise SetupError("lexicon_invalid", f"{path.name} has more than {MAX_ENTRIES} entries.")
        return cls(entries.items())

    def apply(self, text: str) -> str:
        """``text`` with its words replaced, the longest first; what was put in is not looked at again."""
        if not self._lengths:
            return text
        pieces: list[str] = []
        start = 0
        for match in _KEPT.finditer(text):
            pieces += [self._replace(text[start : match.start()]), match.group()]
            start = match.end()
        return "".join([*pieces, self._replace(text[start:])])

    def _replace(self, text: str) -> str:
        lowered = _lower(text)
        pieces: list[str] = []
        start = 0
        for match in _WORD_START.finditer(lowered):
            at = match.start()
            if at < start:
                continue
            for length in self._lengths.get(match.group(), ()):
                spoken = self._spoken(text, lowered, at, at + length)
                if spoken is not None:
                    pieces += [text[start:at], spoken]
                    start = at + length
                    break
        return "".join([*pieces, text[start:]])

    def _spoken(self, text: str, lowered: str, start: int, end: int) -> str | None:
        if _LATIN.fullmatch(text, end - 1, end) and _LATIN.match(text, end):
            return None  # the word goes on
        return self._exact.get(text[start:end]) or self._folded.get(lowered[start:end])


def _lower(text: str) -> str:
    """Small letters, each in the place of its capital."""
    lowered = text.lower()
    return lowered if len(lowered) == len(text) else "".join(c.lower() if len(c.lower()) == 1 else c for c in text)


def _entry(line: str, where: str) -> tuple[str, str]:
    """Word and spoken form of a line. Raises SetupError."""

    def wrong(why: str) -> SetupError:
        return SetupError("lexicon_invalid", f"{where}: {why}")

    word, equals, spoken = (sanitise(part) for part in line.partition("="))
    if not equals:
        raise wrong("it must be a word, =, and how it is spoken, such as SQL = sequel.")
    if not word or not spoken:
        raise wrong(f"there is nothing {'before' if not word else 'after'} the =.")
    if len(word) > MAX_WORD or len(spoken) > MAX_SPOKEN:
        raise wrong(f"a word has at most {MAX_WORD} characters and its spoken form {MAX_SPOKEN}.")
    if not word[0].isalnum() or MARK_PATTERN.search(word) or _KEPT.search(word):
        raise wrong(f"{word!r} is no word; marks and addresses cannot be replaced.")
    removed: list[str] = []
    cleaned = " ".join(clean_marks(spoken, ALL_MARKS, removed).split())
    if removed:
        raise wrong(" ".join(str(remark) for remark in remarks(removed)))
    if not any(char.isalnum() for char in cleaned):
        raise wrong("nothing in its spoken form makes a sound.")
    return word, cleaned
