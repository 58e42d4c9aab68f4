"""The text list: ``python -m cosyui.voice_training.text_list SENTENCES OUT.jsonl.gz``.

SENTENCES is a folder with sentence files of Common Voice (CC0), one sentence a line: ``en*.txt``, ``zh-CN*.txt`` and
``zh-TW*.txt`` (turned to simplified characters). A line of the list is ``[language, text, teacher's phonemes, ids]``.
Needs hibari-tts, misaki[zh] and opencc beside the packages of the text front end.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from cosyui.speech.marks import MarkFrontend, english_marks
from cosyui.voice_training.layout import guarded, text_tokenizer

_ENGLISH = re.compile(r"[A-Za-z ,.'?!;:\"-]+")
_ACRONYM = re.compile(r"\b[A-Z]{2,}\b")
_CHINESE = re.compile(r"[\u4e00-\u9fff，。！？、；：]+")
_QUOTES = str.maketrans({"’": "'", "“": '"', "”": '"', "—": ", "})
LONGEST_PHONEMES = 240
FEWEST_IDS = 4


def sentences(folder: Path, pattern: str) -> Iterator[str]:
    """Every sentence of the files that match, blanks made single."""
    for file in sorted(folder.glob(pattern)):
        for line in file.read_text(encoding="utf-8").splitlines():
            if line.strip():
                yield re.sub(r"\s+", " ", line.strip())


def english(lines: Iterable[str]) -> list[str]:
    """Sentences of 2 to 22 words in plain letters without acronyms, sorted, each once."""
    plain = (line.translate(_QUOTES) for line in lines)
    return sorted(
        {
            line
            for line in plain
            if 2 <= len(line.split()) <= 22 and _ENGLISH.fullmatch(line) and not _ACRONYM.search(line)
        }
    )


def chinese(lines: Iterable[str]) -> list[str]:
    """Sentences of 4 to 40 characters in Han and Chinese punctuation, closed by a full stop, sorted, each once."""
    kept = {line for line in lines if 4 <= len(line) <= 40 and _CHINESE.fullmatch(line)}
    return sorted({line if line[-1] in "。！？" else f"{line}。" for line in kept})


def joined(lines: list[str], draw: random.Random) -> Iterator[str]:
    """Short lines are now and then joined by two or three, so that longer utterances occur."""
    at = 0
    while at < len(lines):
        count = draw.choice([1, 1, 2, 2, 3]) if len(lines[at]) < 16 else 1
        yield "".join(lines[at : at + count])[:60]
        at += count


class Lines:
    """Text to the lines of the list, with the teacher's symbol table and the checkpoint's tokenizer."""

    def __init__(self, vocabulary: dict[str, int]) -> None:
        from hibari.g2p import G2P
        from misaki.zh import ZHG2P  # type: ignore[import-not-found, unused-ignore]

        self.vocabulary, self.tokenizer = vocabulary, text_tokenizer()
        self.marks = MarkFrontend(self.tokenizer.marks)
        self.to_phonemes: dict[str, Callable[[str], Any]] = {"en": G2P(british=False), "zh": ZHG2P()}

    def line(self, language: str, text: str) -> list[Any] | None:
        """None for a text that is too long or too short. Marks of English come from the teacher's own phonemes."""
        found = self.to_phonemes[language](text)
        phonemes = "".join(c for c in (found if isinstance(found, str) else found[0]) if c in self.vocabulary)
        marks = english_marks(phonemes) if language == "en" else self.marks.convert(text)
        ids = self.tokenizer.encode(marks)
        if not FEWEST_IDS <= len(phonemes) <= LONGEST_PHONEMES or len(ids) < FEWEST_IDS:
            return None
        return [language, text, phonemes, ids]


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Make the phonemised text list from sentence files.")
    parser.add_argument("sentences", type=Path, help="folder with en*.txt, zh-CN*.txt, zh-TW*.txt")
    parser.add_argument("out", type=Path, help="file to write, e.g. text.jsonl.gz")
    parser.add_argument("--teacher", type=Path, default=Path("teacher"), help="folder with the teacher's config.json")
    parser.add_argument("--limit", type=int, help="at most so many sentences a language")
    args = parser.parse_args(argv)
    from opencc import OpenCC

    convert = OpenCC("tw2s").convert
    lines = Lines(json.loads((args.teacher / "config.json").read_text(encoding="utf-8"))["vocab"])
    draw, folder = random.Random(1), args.sentences
    texts = {"en": english(sentences(folder, "en*.txt"))}
    taiwan = map(convert, sentences(folder, "zh-TW*.txt"))
    texts["zh"] = chinese([*sentences(folder, "zh-CN*.txt"), *taiwan])
    for language in ("en", "zh"):
        draw.shuffle(texts[language])
    texts["zh"] = list(joined(texts["zh"], draw))
    with gzip.open(args.out, "wt", encoding="utf-8") as out:
        for language, all_texts in texts.items():
            made = [line for text in all_texts[: args.limit] if (line := lines.line(language, text))]
            out.writelines(json.dumps(line, ensure_ascii=False, separators=(",", ":")) + "\n" for line in made)
            print(f"{language}: {len(made)} lines of {len(all_texts)} sentences")


if __name__ == "__main__":
    sys.exit(guarded(main))
