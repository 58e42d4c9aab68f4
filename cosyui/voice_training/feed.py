"""Training rows for the LLM, made in processes of their own without torch.

A row is ``[sos] system [instruction] <|endofprompt|> (prompt text) text [task] (prompt speech) speech [eos]``: all
utterances of a row are of one voice. `cosyui.voice_training.feed_process` runs it beside the trainer.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cosyui.voice_training.instructions import PromptIds
from cosyui.voice_training.layout import EOS, SOS, TASK, VALIDATION

Codes = NDArray[np.int16]

BUCKETS = (256, 384, 576, 1024)
"""Row lengths; a batch holds rows of one bucket."""
PUNCTUATION_BELOW = 33
"""Text ids of single punctuation marks, in this byte-level vocabulary, are below it."""
NO_TARGET = -100


@dataclass(frozen=True)
class Utterance:
    codes: Codes
    text: tuple[int, ...]
    language: int


@dataclass(frozen=True)
class Row:
    """``text`` ids up to the task token; ``speech`` of each utterance; its first ``prompt`` tokens are a prompt."""

    text: tuple[int, ...]
    speech: tuple[Codes, ...]
    prompt: int

    def __len__(self) -> int:
        return 2 + len(self.text) + sum(map(len, self.speech))


@dataclass(frozen=True)
class Batch:
    """(B, L) int16 each: ``kind`` 1 = speech table, 0 = text table; ``ids``; ``targets``, NO_TARGET where none.

    ``codes``: speech tokens known to the feed when the batch was made.
    """

    kind: NDArray[np.int16]
    ids: NDArray[np.int16]
    targets: NDArray[np.int16]
    codes: int = 0


def rows_of(budget: int) -> dict[int, int]:
    """Rows of a batch for each bucket, so that a batch has about ``budget`` positions."""
    return {length: max(1, -(-budget // length)) for length in BUCKETS}


class Voices:
    """The id files of a folder as voices with three utterances or more; takes up new files as they appear."""

    def __init__(self, folder: Path, *, validation: bool = False) -> None:
        self.folder, self.validation = folder, validation
        self.seen: set[Path] = set()
        self.voices: list[list[Utterance]] = []
        self.codes = 0
        self.slow_and_fast: dict[int, tuple[float, float]] = {}
        """Tokens per text id below which an utterance counts as fast and above which as slow, by language."""
        self._rates: dict[int, list[float]] = defaultdict(list)

    def scan(self) -> int:
        """Read new files; returns the number of voices."""
        for file in sorted(self.folder.glob("*.npz")):
            if file not in self.seen and (file.stem == VALIDATION) == self.validation:
                self.seen.add(file)
                self._read(file)
        for language, rates in self._rates.items():
            if len(rates) > 200:
                fast, slow = np.quantile(rates, (0.12, 0.88))
                self.slow_and_fast[language] = (float(fast), float(slow))
        return len(self.voices)

    def _read(self, file: Path) -> None:
        data = dict(np.load(file))
        codes, text = data["codes"], data["text"].tolist()
        first, count, bounds = data["o"].tolist(), data["n"].tolist(), data["to"].tolist()
        of_voice: dict[int, list[Utterance]] = defaultdict(list)
        for number, (voice, language) in enumerate(zip(data["spk"].tolist(), data["lang"].tolist(), strict=True)):
            ids = tuple(text[bounds[number] : bounds[number + 1]])
            if len(ids) < 3 or not 15 <= count[number] <= 700:
                continue
            speech = codes[first[number] : first[number] + count[number]]
            of_voice[voice].append(Utterance(speech, ids, language))
            self._rates[language].append(len(speech) / len(ids))
        self.voices += [mine for mine in of_voice.values() if len(mine) >= 3]
        self.codes += len(codes)


class Feed:
    """Draws rows and packs them into batches of one bucket."""

    def __init__(self, voices: Voices, prompts: PromptIds, budget: int, seed: int) -> None:
        self.voices, self.prompts, self.random = voices, prompts, random.Random(seed)
        self.wanted = rows_of(budget)
        self.waiting: dict[int, list[Row]] = {length: [] for length in BUCKETS}

    def batch(self) -> Batch:
        """The next full batch of any bucket."""
        while True:
            row = self.row()
            bucket = next((length for length in BUCKETS if len(row) <= length), None)
            if bucket is None:
                continue
            self.waiting[bucket].append(row)
            if len(self.waiting[bucket]) == self.wanted[bucket]:
                rows, self.waiting[bucket] = self.waiting[bucket], []
                return lay_out(rows, bucket, codes=self.voices.codes)

    def row(self) -> Row:
        """One example: mostly prompt + target, else targets alone, some of those with an instruction."""
        prompts, chosen = self._utterances()
        system = self._system(chosen, alone=prompts == 0)
        texts = [list(utterance.text) for utterance in chosen]
        speech = [utterance.codes for utterance in chosen]
        # A transcript without its full stop, and now and then a text without one.
        if prompts and self._chance(0.15) and texts[prompts - 1][-1] < PUNCTUATION_BELOW:
            texts[prompts - 1].pop()
        if self._chance(0.07) and len(texts[-1]) > 4 and texts[-1][-1] < PUNCTUATION_BELOW:
            texts[-1].pop()
        # A prompt clip that was cut closer, or with less silence at its end.
        if prompts and self._chance(0.4):
            speech[0] = speech[0][self.random.randrange(4) :]
        if prompts and self._chance(0.4):
            speech[prompts - 1] = speech[prompts - 1][: -self.random.randrange(1, 5)]
        text = (*system, self.prompts.end, *(number for ids in texts for number in ids))
        return Row(text, tuple(speech), sum(map(len, speech[:prompts])))

    def _chance(self, share: float) -> bool:
        return self.random.random() < share

    def _utterances(self) -> tuple[int, list[Utterance]]:
        """How many are the prompt, and all utterances of the row: of one voice, none twice."""
        voice = self.random.choice(self.voices.voices)
        shapes, shares = ((1, 1), (1, 2), (2, 1), (0, 2), (0, 1)), (0.48, 0.12, 0.10, 0.08, 0.22)
        prompts, targets = self.random.choices(shapes, shares)[0]
        if prompts + targets > len(voice):
            prompts, targets = min(prompts, 1), 1
        chosen = self.random.sample(voice, prompts + targets)
        if targets == 2 and chosen[-1].language != chosen[-2].language and self._chance(0.7):
            taken = set(map(id, chosen))
            same = [u for u in voice if u.language == chosen[-2].language and id(u) not in taken]
            if same:
                chosen[-1] = self.random.choice(same)
        return prompts, chosen

    def _system(self, chosen: Sequence[Utterance], *, alone: bool) -> tuple[int, ...]:
        if alone and self._chance(0.3):
            return self.random.choice(self._instructions(chosen))
        if self._chance(0.03):  # bytes of an unknown instruction change nothing
            return (*self.prompts.system, *(self.random.randrange(256) for _ in range(self.random.randrange(1, 30))))
        return self.prompts.system

    def _instructions(self, chosen: Sequence[Utterance]) -> tuple[tuple[int, ...], ...]:
        """Those that are true of the utterance: 'fast' and 'slow' by its rate; the others carry no promise."""
        utterance, bounds = chosen[0], self.voices.slow_and_fast.get(chosen[0].language)
        if len(chosen) > 1 or bounds is None:
            return self.prompts.other
        rate = len(utterance.codes) / len(utterance.text)
        if rate < bounds[0]:
            return self.prompts.fast
        return self.prompts.slow if rate > bounds[1] else self.prompts.other


def lay_out(rows: Sequence[Row], length: int, *, only_target: bool = False, codes: int = 0) -> Batch:
    """Rows side by side, right-padded to ``length``. With ``only_target`` the prompt's speech is no target."""
    shape = (len(rows), length)
    ids, kind = np.zeros(shape, np.int16), np.ones(shape, np.int16)
    targets = np.full(shape, NO_TARGET, np.int16)
    for index, row in enumerate(rows):
        task = 1 + len(row.text)
        ids[index, 0], ids[index, task] = SOS, TASK
        ids[index, 1:task], kind[index, 1:task] = row.text, 0
        speech = np.concatenate(row.speech)
        end = task + len(speech)
        ids[index, task + 1 : end + 1] = speech
        targets[index, task:end], targets[index, end] = speech, EOS
        if only_target:
            targets[index, task : task + row.prompt] = NO_TARGET
    return Batch(kind, ids, targets, codes)


def validation_batches(folder: Path, prompts: PromptIds, *, size: int = 64, count: int = 4) -> list[Batch]:
    """Prompt + target pairs of the validation file; the loss is taken on the target only. Empty without that file."""
    voices, length, draw = Voices(folder, validation=True), 576, random.Random(5)
    voices.scan()
    rows = []
    for voice in voices.voices:
        for number, target in enumerate(voice):
            prompt = voice[draw.choice([other for other in range(len(voice)) if other != number])]
            text = (*prompts.system, prompts.end, *prompt.text, *target.text)
            row = Row(text, (prompt.codes, target.codes), len(prompt.codes))
            if len(row) <= length:
                rows.append(row)
    draw.shuffle(rows)
    rows = rows[: size * count]
    return [lay_out(rows[at : at + size], length, only_target=True) for at in range(0, len(rows), size)]
