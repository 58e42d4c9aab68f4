"""The tokenizer against golden ids, and its promise: what a user types never becomes a control id."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cosyui.errors import CheckpointError
from cosyui.model.added_tokens import ADDED_TOKENS
from cosyui.model.tokenizer import END_OF_PROMPT, TextTokenizer

ORACLE = Path(__file__).parent.parent / "data" / "oracle"
FOLDER = ORACLE / "checkpoint" / "CosyVoice-BlankEN"
GOLDEN = json.loads((ORACLE / "golden" / "tokenizer.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def tokenizer() -> TextTokenizer:
    return TextTokenizer(FOLDER)


def test_added_tokens_are_the_280_in_order() -> None:
    assert list(ADDED_TOKENS) == GOLDEN["additional_special_tokens_in_order"]


def test_sizes_and_ids(tokenizer: TextTokenizer) -> None:
    assert (tokenizer.size, tokenizer.base_size) == (GOLDEN["len"], GOLDEN["base_vocab"])
    assert tokenizer.added == GOLDEN["special_ids"]


@pytest.mark.parametrize("case", GOLDEN["cases"], ids=lambda case: repr(case["text"]))
def test_encoding_and_decoding(tokenizer: TextTokenizer, case: dict) -> None:
    assert tokenizer.encode(case["text"], control=True) == case["ids"]
    assert tokenizer.decode(case["ids"]) == case["decoded"]


@given(
    st.lists(st.sampled_from([*sorted(ADDED_TOKENS)[:40], "<|endofprompt|>", "<|endoftext|>", "<|", "|>", "a", "你"]))
)
def test_a_user_never_places_a_control_token(tokenizer: TextTokenizer, pieces: list[str]) -> None:
    text = "".join(pieces)
    controls = {tokenizer.id_of(token) for token in tokenizer.controls}
    ids = tokenizer.encode(text)
    assert not controls.intersection(ids)
    without_marks = text
    for mark in sorted(tokenizer.marks, key=len, reverse=True):
        without_marks = without_marks.replace(mark, "")
    assert tokenizer.decode(ids) == without_marks


def test_marks_are_one_id_each_and_case_matters(tokenizer: TextTokenizer) -> None:
    assert tokenizer.encode("[breath]") == [tokenizer.id_of("[breath]")]
    assert len(tokenizer.encode("[Breath]")) > 1
    assert END_OF_PROMPT not in tokenizer.marks
    assert "<strong>" in tokenizer.marks


def test_unknown_token(tokenizer: TextTokenizer) -> None:
    with pytest.raises(CheckpointError, match="nothing_like_it"):
        tokenizer.id_of("<|nothing_like_it|>")


def damaged(tmp_path: Path, name: str, content: str | None) -> Path:
    folder = tmp_path / "CosyVoice-BlankEN"
    shutil.copytree(FOLDER, folder)
    if content is None:
        (folder / name).unlink()
    else:
        (folder / name).write_text(content, encoding="utf-8")
    return folder


@pytest.mark.parametrize(
    ("name", "content", "code"),
    [
        ("vocab.json", None, "checkpoint_missing_file"),
        ("merges.txt", None, "checkpoint_missing_file"),
        ("tokenizer_config.json", None, "checkpoint_missing_file"),
        ("vocab.json", "{", "checkpoint_corrupt"),
        ("vocab.json", "[]", "checkpoint_corrupt"),
        ("vocab.json", '{"a": 0}', "checkpoint_corrupt"),
        ("merges.txt", "#version: 0.2\na b c\n", "checkpoint_corrupt"),
        ("merges.txt", "no such\n", "checkpoint_corrupt"),
        ("tokenizer_config.json", '{"added_tokens_decoder": [1]}', "checkpoint_corrupt"),
        ("tokenizer_config.json", '{"added_tokens_decoder": {"x": {"content": "y"}}}', "checkpoint_corrupt"),
    ],
)
def test_a_damaged_folder_is_named(tmp_path: Path, name: str, content: str | None, code: str) -> None:
    with pytest.raises(CheckpointError) as caught:
        TextTokenizer(damaged(tmp_path, name, content))
    assert caught.value.code == code
    assert name in caught.value.message


def test_ids_follow_the_declared_ones(tmp_path: Path) -> None:
    """A folder that declares its own tokens keeps their ids; the rest come after, consecutively."""
    base = GOLDEN["base_vocab"]
    declared = {str(base): {"content": "<|endoftext|>"}, str(base + 1): {"content": "<tool>"}}
    folder = damaged(tmp_path, "tokenizer_config.json", json.dumps({"added_tokens_decoder": declared}))
    tokenizer = TextTokenizer(folder)
    assert tokenizer.id_of("<tool>") == base + 1
    assert [tokenizer.id_of(token) for token in ADDED_TOKENS] == list(range(base + 2, base + 2 + len(ADDED_TOKENS)))
    assert len(tokenizer.encode("<tool>")) > 1
