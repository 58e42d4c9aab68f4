"""``python -m cosyui.bench voice``: speak held-out sentences in held-out voices and let judges listen.

English is judged by word error rate, Mandarin by the error of toneless pinyin (a recogniser's homophones do not count),
the voice by the similarity of the speech to its prompt and to the prompt of another voice.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from cosyui.bench.judges import (
    JUDGE_RATE,
    Naturalness,
    Speakers,
    Wave,
    Whisper,
    edit_distance,
    english_words,
    mandarin_syllables,
)
from cosyui.engine.config import EngineConfig
from cosyui.engine.engine import Engine
from cosyui.engine.request import SAMPLE_RATE, AudioChunk, Failed, Finished, Mode, PromptClip, SynthesisRequest
from cosyui.errors import InputError
from cosyui.speech.clip.intake import load_clip
from cosyui.speech.features import resample
from cosyui.speech.sound.audio_out import to_pcm16

EVALUATION = Path(__file__).resolve().parent.parent / "assets" / "evaluation"


@dataclass(frozen=True)
class Voice:
    name: str
    language: str
    clip: PromptClip


@dataclass(frozen=True)
class Sentence:
    """``spoken`` is what a person would say for ``text``: the judges' reference."""

    text: str
    spoken: str


@dataclass(frozen=True)
class Take:
    """One spoken sentence with what the judges said; ``errors`` of ``units`` words or syllables."""

    voice: str
    language: str
    text: str
    heard: str
    errors: int
    tone_errors: int
    units: int
    to_prompt: float
    to_other: float
    naturalness: float
    seconds: float
    rtf: float


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", default="embedded", help="model folder or repository (default: the embedded voice)")
    parser.add_argument("--set", type=Path, default=EVALUATION, help="folder with set.json and its clips")
    help_ = "JSON lines with lang, text and spoken to read instead of the set's sentences"
    parser.add_argument("--sentences", type=Path, help=help_)
    parser.add_argument("--count", type=int, default=24, help="sentences per language (default 24)")
    parser.add_argument("--mode", choices=[Mode.ZERO_SHOT, Mode.CROSS_LINGUAL], default=Mode.ZERO_SHOT)
    parser.add_argument("--stream", action="store_true", help="speak in streaming chunks")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", type=Path, help="folder for the audio and report.json")


def read_set(folder: Path, sentences: Path | None = None) -> tuple[list[Voice], dict[str, list[Sentence]]]:
    """Voices of an evaluation folder, and the sentences by language: its own, or those of a file of JSON lines."""
    data = json.loads((folder / "set.json").read_text(encoding="utf-8"))
    voices = []
    for entry in data["clips"]:
        clip, _ = load_clip(folder / entry["file"])
        clip = PromptClip(clip.samples, clip.sample_rate, entry["transcript"])
        voices.append(Voice(Path(entry["file"]).stem, entry["language"], clip))
    own = {language: [Sentence(text, text) for text in texts] for language, texts in data["sentences"].items()}
    return voices, own if sentences is None else read_sentences(sentences)


def read_sentences(file: Path) -> dict[str, list[Sentence]]:
    """Raises InputError when a line lacks lang, text or spoken."""
    found: dict[str, list[Sentence]] = defaultdict(list)
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
        try:
            entry = json.loads(line)
            found[entry["lang"]].append(Sentence(entry["text"], entry["spoken"]))
        except (ValueError, KeyError, TypeError):
            raise InputError("sentences_unreadable", f"Line {number} of {file} needs lang, text and spoken.") from None
    return dict(found)


def speak(engine: Engine, request: SynthesisRequest) -> tuple[Wave, float]:
    """Run one request to its end: the wave (S,) at 24 kHz and its real-time factor. (0 samples when it failed.)"""
    engine.submit(request)
    pcm, rtf = bytearray(), 0.0
    while engine.has_work:
        for event in engine.step():
            if isinstance(event, AudioChunk):
                pcm += event.pcm
            elif isinstance(event, Finished):
                rtf = event.stats.rtf
            elif isinstance(event, Failed):
                print(f"    failed: {event.code}: {event.message}")
    return (np.frombuffer(bytes(pcm), dtype="<i2") / 32768).astype(np.float32), rtf


def for_judges(wave: Wave, rate: int) -> Wave:
    resampled: Wave = resample(torch.from_numpy(wave)[None], rate, JUDGE_RATE)[0].numpy()
    return resampled


def heard_errors(text: str, heard: str, language: str) -> tuple[int, int, int]:
    """Errors, errors with tone (the same in English), and units of the reference."""
    if language == "en":
        words = english_words(text)
        wrong = edit_distance(words, english_words(heard))
        return wrong, wrong, len(words)
    plain = [mandarin_syllables(t) for t in (text, heard)]
    toned = [mandarin_syllables(t, tone=True) for t in (text, heard)]
    return edit_distance(*plain), edit_distance(*toned), len(plain[0])


def takes(args: argparse.Namespace) -> Iterator[Take]:
    """Speak and judge, one sentence after another; voices take turns within their language."""
    voices, sentences = read_set(args.set, args.sentences)
    engine = Engine(EngineConfig(model=args.model, device=args.device, threads=args.threads))
    whisper, speakers, naturalness = Whisper(args.threads), Speakers(), Naturalness()
    vectors = {voice.name: speakers(for_judges(voice.clip.samples, voice.clip.sample_rate)) for voice in voices}
    for language, texts in sentences.items():
        own = [voice for voice in voices if voice.language == language]
        for index, sentence in enumerate(texts[: args.count]):
            voice, other = own[index % len(own)], own[(index + 1) % len(own)]
            request = SynthesisRequest(
                id=f"{language}{index:02d}",
                text=sentence.text,
                mode=args.mode,
                prompt=voice.clip,
                seed=args.seed + index,
                language=language,
                stream=args.stream,
            )
            wave, rtf = speak(engine, request)
            if args.out:
                save(args.out / f"{request.id}_{voice.name}.wav", wave)
            if len(wave) < SAMPLE_RATE // 10:
                wave = np.zeros(SAMPLE_RATE, dtype=np.float32)
            yield judge(voice, other, sentence, language, wave, rtf, vectors, (whisper, speakers, naturalness))


def judge(
    voice: Voice,
    other: Voice,
    sentence: Sentence,
    language: str,
    wave: Wave,
    rtf: float,
    vectors: dict[str, NDArray[np.float32]],
    judges: tuple[Whisper, Speakers, Naturalness],
) -> Take:
    whisper, speakers, naturalness = judges
    listened = for_judges(wave, SAMPLE_RATE)
    heard = whisper(listened, language)
    errors, tone_errors, units = heard_errors(sentence.spoken, heard, language)
    vector = speakers(listened) if np.abs(listened).max() > 0 else np.zeros(256, dtype=np.float32)
    return Take(
        voice=voice.name,
        language=language,
        text=sentence.text,
        heard=heard,
        errors=errors,
        tone_errors=tone_errors,
        units=units,
        to_prompt=float(vector @ vectors[voice.name]),
        to_other=float(vector @ vectors[other.name]),
        naturalness=naturalness(listened),
        seconds=len(wave) / SAMPLE_RATE,
        rtf=rtf,
    )


def save(path: Path, wave: Wave) -> None:
    import wave as wav

    path.parent.mkdir(parents=True, exist_ok=True)
    with wav.open(str(path), "wb") as file:
        file.setparams((1, 2, SAMPLE_RATE, 0, "NONE", "not compressed"))
        file.writeframes(to_pcm16(wave))


def summary(done: list[Take], language: str) -> str:
    """One line of the table for a language."""
    mine = [take for take in done if take.language == language]
    units = sum(take.units for take in mine)
    error = 100 * sum(take.errors for take in mine) / units
    tones = 100 * sum(take.tone_errors for take in mine) / units
    what = f"WER {error:5.1f} %" if language == "en" else f"pinyin error {error:5.1f} % (with tone {tones:.1f} %)"
    prompt, other = (float(np.mean([getattr(take, name) for take in mine])) for name in ("to_prompt", "to_other"))
    closer = sum(take.to_prompt > take.to_other for take in mine)
    mos = float(np.mean([take.naturalness for take in mine]))
    rtf = sum(take.rtf * take.seconds for take in mine) / sum(take.seconds for take in mine)
    return (
        f"{language}: {what} of {units}, n {len(mine)}; similarity to the prompt {prompt:.3f}, to another voice "
        f"{other:.3f}, own closer {closer}/{len(mine)}; naturalness {mos:.2f}; RTF {rtf:.2f}"
    )


def run(args: argparse.Namespace) -> int:
    """Print a line per sentence and a summary per language; write report.json with ``--out``."""
    began, done = time.time(), []
    for take in takes(args):
        done.append(take)
        print(f"{take.language} {take.voice} {take.errors}/{take.units} {take.text!r} heard {take.heard!r}", flush=True)
    for language in sorted({take.language for take in done}):
        print(summary(done, language))
    print(f"{time.time() - began:.0f} s")
    if args.out:
        report = [asdict(take) for take in done]
        (args.out / "report.json").write_text(json.dumps(report, ensure_ascii=False, indent=1), encoding="utf-8")
    return 0
