"""Speak the text list with the teacher in thousands of made-up voices: ``python -m cosyui.voice_training.make_data``.

Each voice says ``--per`` sentences, English and Mandarin in turn. The last 3 % of the lines of a language (in a fixed
shuffle) are test text, 1.5 % of the rest validation text.
"""

from __future__ import annotations

import argparse
import gzip
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from cosyui.errors import EngineError
from cosyui.voice_training.layout import SAMPLE_RATE, guarded
from cosyui.voice_training.teacher import Encoded, Teacher, load_teacher
from cosyui.voice_training.teacher_fused import fuse
from cosyui.voice_training.utterances import Collection, Job, cut_batch
from cosyui.voice_training.voices import WARP, Voices, read_packs

LONGEST = 560
"""Teacher frames (14 s) of the longest utterance that is kept."""
STRETCH = 12
"""Frames that a closing pause may be stretched by: more changes the teacher's sound (its instance norms see it)."""
_BATCHES_LOST = 20


class Texts:
    """Lines of the list that one kind of data may use, dealt out in a random order, again and again."""

    def __init__(self, file: Path, kind: str, generator: np.random.Generator) -> None:
        with gzip.open(file, "rt", encoding="utf-8") as lines:
            self.lines: list[Any] = [json.loads(line) for line in lines]
        self.random = generator
        fixed = np.random.default_rng(12345)
        self.pools = {language: self._pool(language, kind, fixed) for language in ("en", "zh")}
        self.left: dict[str, list[int]] = {language: [] for language in self.pools}

    def _pool(self, language: str, kind: str, fixed: np.random.Generator) -> list[int]:
        numbers = [number for number, line in enumerate(self.lines) if line[0] == language]
        fixed.shuffle(numbers)
        test = len(numbers) * 97 // 100
        validation = test - test * 15 // 1000
        return {"train": numbers[:validation], "val": numbers[validation:test], "test": numbers[test:]}[kind]

    def next(self, language: str) -> int:
        if not self.left[language]:
            self.left[language] = [int(number) for number in self.random.permutation(self.pools[language])]
        return self.left[language].pop()


@dataclass
class Maker:
    """Draws jobs, speaks them, collects the utterances."""

    teacher: Teacher
    voices: Voices
    texts: Texts
    random: np.random.Generator
    args: argparse.Namespace

    def __post_init__(self) -> None:
        self.names = {number: sign for sign, number in self.teacher.vocabulary.items()}
        self.collection = Collection()
        self.samples = self.lost = 0
        self.began = time.time()

    def over(self) -> bool:
        now, seconds, until = time.time(), float(self.args.seconds), float(self.args.until)
        return now - self.began >= seconds or 0 < until <= now

    def jobs(self) -> list[Job]:
        """One round: ``--speakers`` new voices, ``--per`` sentences each."""
        jobs, vocabulary = [], self.teacher.vocabulary
        for _ in range(self.args.speakers):
            voice, number = self.voices.draw(), len(self.collection.names)
            speed = float(np.clip(self.random.normal(1.0, 0.08), 0.82, 1.22)) * WARP / voice.warp
            self.collection.names.append(voice.name)
            for sentence in range(self.args.per):
                language = ("en", "zh")[sentence % 2]
                line = self.texts.next(language)
                phonemes = [vocabulary[sign] for sign in self.texts.lines[line][2] if sign in vocabulary]
                style = voice.style(language, len(phonemes))
                jobs.append(Job(phonemes, style, speed, line, number, voice.warp, language))
        return sorted(jobs, key=lambda job: len(job.phonemes))

    def round(self) -> None:
        """Speak one round; when time is up the rest of it is dropped, what is spoken is kept."""
        encoded: list[tuple[int, Job, Encoded]] = []
        jobs = self.jobs()
        for at in range(0, len(jobs), self.args.texts):
            some = jobs[at : at + self.args.texts]
            styles: NDArray[np.float32] = np.stack([job.style for job in some])
            sides = self.teacher.encode([job.phonemes for job in some], styles, [job.speed for job in some])
            lengths = torch.stack([side.durations.sum() for side in sides]).tolist()
            encoded += [one for one in zip(lengths, some, sides, strict=True) if one[0] <= LONGEST]
        encoded.sort(key=lambda one: one[0])
        batches = group([length for length, _, _ in encoded], self.args.frames)
        # In random order, so that a round which is cut short holds utterances of all lengths.
        for number in self.random.permutation(len(batches)):
            if self.over() and self.args.kind == "train":
                break
            begin = time.time()
            self._speak([encoded[at] for at in batches[number]])
            if self.args.duty < 1:
                time.sleep((time.time() - begin) * (1 / self.args.duty - 1))

    def _speak(self, batch: Sequence[tuple[int, Job, Encoded]]) -> None:
        frames = (batch[-1][0] + 7) // 8 * 8
        jobs = [job for _, job, _ in batch]
        try:
            spoken = self.teacher.speak([side for _, _, side in batch], frames)
        except torch.OutOfMemoryError as error:  # other processes share the GPU: leave this batch out
            self.lost += 1
            print(f"batch of {len(batch)} x {frames} frames left out: out of memory", flush=True)
            torch.cuda.empty_cache()
            if self.lost > _BATCHES_LOST:
                raise EngineError("out_of_memory", "The teacher's batches do not fit: lower --frames.") from error
            return
        for job, cut in cut_batch(jobs, [length for length, _, _ in batch], spoken, self.names):
            self.collection.entries.append((job, cut, self.texts.lines[job.line][3]))
            self.samples += len(cut.wave)


def group(lengths: Sequence[int], frames: int) -> list[range]:
    """Batches of neighbours in sorted ``lengths``: at most ``frames`` in all, lengths apart by STRETCH at most."""
    batches, begin = [], 0
    while begin < len(lengths):
        end = begin + 1
        while (
            end < len(lengths)
            and (end + 1 - begin) * lengths[end] <= frames
            and lengths[end] - lengths[begin] <= STRETCH
        ):
            end += 1
        batches.append(range(begin, end))
        begin = end
    return batches


def shard_file(out: Path, shard: int) -> Path:
    return out.with_name(f"{out.name}_{shard:03d}.pt")


def make(args: argparse.Namespace) -> None:
    """All rounds, written as one file or as one every ``--shard-seconds``."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.backends.cuda.matmul.allow_tf32 = True
    torch.backends.cudnn.allow_tf32 = True
    torch.manual_seed(args.seed)
    shard = 0
    while args.shard_seconds and shard_file(args.out, shard).exists():
        shard += 1  # go on behind what an earlier start left
    generator = np.random.default_rng([args.seed, shard])
    packs = read_packs(args.teacher / "voices.npz")
    teacher = load_teacher(args.teacher, device)
    if device.type == "cuda":
        fuse(teacher, compiled=not args.no_compile)
    maker = Maker(
        teacher,
        Voices(packs, generator, test=args.kind == "test"),
        Texts(args.text, args.kind, generator),
        generator,
        args,
    )
    rounds, shard_began = 0, time.time()
    while maker.samples < args.hours * 3600 * SAMPLE_RATE and rounds < args.max_rounds and not maker.over():
        if args.shard_seconds and time.time() - shard_began > args.shard_seconds:
            maker.collection.write(shard_file(args.out, shard))
            maker.collection, shard, shard_began = Collection(), shard + 1, time.time()
        maker.round()
        rounds += 1
        seconds = time.time() - maker.began
        speech = maker.samples / SAMPLE_RATE
        print(f"round {rounds}: {speech / 3600:.2f} h, {speech / seconds:.0f} x real time", flush=True)
    last = shard_file(args.out, shard) if args.shard_seconds else args.out
    maker.collection.write(last)


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Speak the text list with the teacher in made-up voices.")
    parser.add_argument("out", type=Path, help="file to write (with --shard-seconds: its beginning, without suffix)")
    parser.add_argument("--teacher", type=Path, default=Path("teacher"), help="config.json, kokoro-w8.npz, voices.npz")
    parser.add_argument("--text", type=Path, default=Path("text.jsonl.gz"), help="text list")
    parser.add_argument("--kind", choices=("train", "val", "test"), default="train", help="which texts and voices")
    parser.add_argument("--hours", type=float, default=40.0, help="hours of speech")
    parser.add_argument("--seconds", type=float, default=1e9, help="seconds of work")
    parser.add_argument("--until", type=float, default=0.0, help="unix time to stop at")
    parser.add_argument("--max-rounds", type=int, default=10**6, help="rounds of new voices")
    parser.add_argument("--shard-seconds", type=float, default=0.0, help="seconds of work in a file (0: one file)")
    parser.add_argument("--no-compile", action="store_true", help="do not use torch.compile")
    parser.add_argument("--duty", type=float, default=1.0, help="share of the time that may be spent computing")
    parser.add_argument("--seed", type=int, default=1, help="seed of voices, texts and speeds")
    parser.add_argument("--speakers", type=int, default=192, help="voices in a round")
    parser.add_argument("--per", type=int, default=8, help="sentences of a voice")
    parser.add_argument("--texts", type=int, default=256, help="texts encoded at once")
    parser.add_argument("--frames", type=int, default=24_000, help="teacher frames (40 a second) spoken at once")
    make(parser.parse_args(argv))


if __name__ == "__main__":
    sys.exit(guarded(main))
