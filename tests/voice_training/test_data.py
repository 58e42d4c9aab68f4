"""What a training row is made of: voices are never mixed, rows have the engine's layout, cuts and labels fit."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from cosyui.voice_training.feed import BUCKETS, NO_TARGET, Feed, Row, Voices, lay_out, validation_batches
from cosyui.voice_training.feed_process import read_batch, write_batch
from cosyui.voice_training.instructions import SYSTEM, prompt_ids
from cosyui.voice_training.layout import EOS, SOS, TASK, text_tokenizer
from cosyui.voice_training.make_data import STRETCH, group
from cosyui.voice_training.store import Store, timeline
from cosyui.voice_training.text_list import chinese, english
from cosyui.voice_training.utterances import Collection, Cut, Job, symbol_labels
from cosyui.voice_training.voices import HELD_OUT, PROSODY
from cosyui.voice_training.voices import Voices as VoiceMaker

VOICES, PER, TOKENS = 5, 4, 20


def write_ids(file: Path, first_voice: int = 0) -> None:
    """Every token and text id of voice v is v-specific: tokens 100 v .. 100 v + 99, text ids 300 + v."""
    count = VOICES * PER
    voices = np.repeat(np.arange(VOICES), PER)
    codes = np.concatenate([100 * (first_voice + v) + np.arange(TOKENS) for v in voices]).astype(np.int16)
    np.savez(
        file,
        codes=codes,
        emb=np.zeros((count, 192), np.float32),
        o=np.arange(count) * TOKENS,
        n=np.full(count, TOKENS),
        spk=voices,
        lang=np.arange(count) % 2,
        line=np.arange(count),
        text=np.repeat(300 + first_voice + voices, 6).astype(np.int16),
        to=np.arange(count + 1) * 6,
    )


@pytest.fixture
def feed(tmp_path: Path) -> Feed:
    write_ids(tmp_path / "d1.npz")
    write_ids(tmp_path / "d2.npz", first_voice=VOICES)
    write_ids(tmp_path / "val.npz", first_voice=2 * VOICES)
    voices = Voices(tmp_path)
    assert voices.scan() == 2 * VOICES
    return Feed(voices, prompt_ids(text_tokenizer()), budget=1024, seed=1)


def test_a_row_never_mixes_voices_and_never_shows_validation(feed: Feed) -> None:
    kinds = set()
    for _ in range(300):
        row = feed.row()
        speech = np.concatenate(row.speech)
        voices = set(speech // 100)
        text = row.text[row.text.index(feed.prompts.end) + 1 :]
        assert len(voices) == 1
        assert set(text) == {300 + next(iter(voices))}
        assert max(voices) < 2 * VOICES
        kinds.add((len(row.speech), row.prompt > 0))
    assert kinds == {(1, False), (2, False), (2, True), (3, True)}


def test_rows_are_laid_out_as_the_engine_asks(feed: Feed) -> None:
    batch = feed.batch()
    assert batch.ids.shape[1] in BUCKETS
    for kind, ids, targets in zip(batch.kind, batch.ids, batch.targets, strict=True):
        task = int(np.flatnonzero((ids == TASK) & (kind == 1))[0])
        end = int(np.flatnonzero(targets == EOS)[0])
        assert ids[0] == SOS
        assert kind[0] == kind[task] == 1
        assert not kind[1:task].any()
        assert feed.prompts.end in ids[1:task]
        np.testing.assert_array_equal(targets[task:end], ids[task + 1 : end + 1])  # the next token is the target
        assert (targets[:task] == NO_TARGET).all()
        assert (targets[end + 1 :] == NO_TARGET).all()
        assert not ids[end + 1 :].any()


def test_validation_judges_the_target_alone(feed: Feed, tmp_path: Path) -> None:
    batches = validation_batches(tmp_path, feed.prompts, size=8)
    assert sum(len(batch.ids) for batch in batches) == VOICES * PER
    assert ((batches[0].targets != NO_TARGET).sum(1) == TOKENS + 1).all()
    speech = batches[0].ids[batches[0].targets > 0]
    assert speech.size


def test_prompt_ids_are_what_a_user_would_get() -> None:
    tokenizer = text_tokenizer()
    prompts = prompt_ids(tokenizer)
    assert list(prompts.system) == tokenizer.encode(SYSTEM)
    assert [*prompts.system, prompts.end] == tokenizer.encode(f"{SYSTEM}<|endofprompt|>", control=True)
    assert prompts.end not in {number for ids in prompts.other for number in ids}


def test_batches_survive_the_pipe() -> None:
    row = Row((1, 2, 3), (np.arange(4, dtype=np.int16), np.arange(5, dtype=np.int16)), prompt=4)
    batch = lay_out([row, row], 256, codes=77)
    pipe = io.BytesIO()
    write_batch(pipe, batch)
    whole = pipe.getvalue()
    again = read_batch(io.BytesIO(whole))
    assert again is not None
    assert again.codes == 77
    for mine, theirs in ((batch.kind, again.kind), (batch.ids, again.ids), (batch.targets, again.targets)):
        np.testing.assert_array_equal(mine, theirs)
    assert read_batch(io.BytesIO(whole[:-1])) is None
    assert read_batch(io.BytesIO(b"")) is None


def write_data(file: Path, voices: int = 2, first: int = 0) -> None:
    collection = Collection(names=[f"v{v}" for v in range(voices)])
    for number in range(3 * voices):
        tokens = 4 + number
        wave = np.full(960 * tokens, 1000 * (first + number) + 1, np.int16)
        label = np.full(tokens, number, np.uint8)
        cut = Cut(wave, np.full(2 * tokens, 100, np.float16), label, label)
        job = Job([1], np.zeros(256, np.float32), 1.0, number, number // 3, 25, "en")
        collection.entries.append((job, cut, [300, 301, 302]))
    collection.write(file)


def test_store_joins_files_and_crops_stay_inside_an_utterance(tmp_path: Path) -> None:
    write_data(tmp_path / "a.pt")
    write_data(tmp_path / "b.pt", first=6)
    store = Store([tmp_path / "a.pt", tmp_path / "b.pt"], torch.device("cpu"))
    assert len(store) == 12
    assert store.voices.tolist() == [0] * 3 + [1] * 3 + [2] * 3 + [3] * 3
    chosen = torch.tensor([0, 11])
    wave, valid = store.crop(chosen, torch.tensor([960, 0]), 3840)
    assert valid.tolist() == [2880, 3840]
    assert wave[0, 2880:].abs().max() == 0
    torch.testing.assert_close(wave[:, 0] * 32768, torch.tensor([1.0, 11001.0]))
    seen = sorted(number for numbers, _ in store.equal_lengths(4) for number in numbers.tolist())
    assert seen == list(range(12))


def test_a_stretch_keeps_to_one_voice(tmp_path: Path) -> None:
    write_data(tmp_path / "a.pt", voices=3)
    store = Store([tmp_path / "a.pt"], torch.device("cpu"))
    bounds = torch.cat([store.offsets // 960, store.lengths.sum()[None] // 960])
    torch.manual_seed(0)
    index, utterances = timeline(store, 16, 12)
    spoken = torch.searchsorted(bounds, index, right=True) - 1
    for row, voice in zip(store.voices[spoken], store.voices[utterances[:, 0]], strict=True):
        assert (row == voice).all()


@pytest.mark.parametrize(
    ("symbols", "labels", "tones"),
    [
        ("ˈæb", [0, 2, 2, 3, 0], [0, 5, 5, 0, 0]),
        ("bæ↘", [0, 1, 2, 2, 0], [0, 0, 0, 4, 0]),
        ("ba→", [0, 1, 2, 2, 0], [0, 0, 1, 1, 0]),
        ("tʰa", [0, 1, 1, 3, 0], [0, 0, 0, 0, 0]),
    ],
)
def test_marks_take_the_sound_they_belong_to(symbols: str, labels: list[int], tones: list[int]) -> None:
    found = symbol_labels(symbols, [1, 2, 3])
    assert found[0].tolist() == labels
    assert found[1].tolist() == tones


def test_symbol_ids_follow_the_sound_not_the_mark() -> None:
    labels, _ = symbol_labels(["ˈ", "a"], [9, 4])
    assert labels.tolist() == [0, 4, 4, 0]


def test_batches_of_the_teacher_hold_equal_lengths() -> None:
    lengths = sorted([40, 41, 50, 52, 60, 100, 101, 400])
    batches = group(lengths, frames=200)
    assert [number for batch in batches for number in batch] == list(range(len(lengths)))
    for batch in batches:
        assert lengths[batch[-1]] - lengths[batch[0]] <= STRETCH
        assert len(batch) == 1 or len(batch) * lengths[batch[-1]] <= 200


def packs() -> dict[str, Any]:
    generator = np.random.default_rng(0)
    names = (*HELD_OUT, "af_a", "af_b", "am_a", "bm_b", "zf_a", "zf_b", "zm_a", "zm_b")
    return {name: generator.standard_normal((4, 256)).astype(np.float32) for name in names}


def test_training_voices_hold_nothing_of_a_held_out_pack() -> None:
    known = packs()
    for name in HELD_OUT:
        known[name][:] = np.nan
    training = VoiceMaker(known, np.random.default_rng(0))
    for _ in range(200):
        voice = training.draw()
        assert not np.isnan(voice.english).any()
        assert not np.isnan(voice.mandarin).any()
    tests = VoiceMaker(known, np.random.default_rng(0), test=True)
    assert all(np.isnan(tests.draw().english).all() for _ in range(20))


def test_mandarin_changes_the_prosody_alone() -> None:
    maker = VoiceMaker(packs(), np.random.default_rng(1))
    changed = 0
    for _ in range(40):
        voice = maker.draw()
        np.testing.assert_array_equal(voice.english[:, :PROSODY], voice.mandarin[:, :PROSODY])
        changed += not np.array_equal(voice.english, voice.mandarin)
        assert voice.style("zh", 99).shape == (256,)
    assert changed > 20


def test_sentences_are_filtered() -> None:
    assert english(["Hello there", "The NATO summit", "one", "café time", "It’s fine"]) == ["Hello there", "It's fine"]
    assert chinese(["你好世界", "短", "你好abc吗", "今天天气好吗？"]) == ["今天天气好吗？", "你好世界。"]
