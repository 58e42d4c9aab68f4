from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import settings
from tokenizers import pre_tokenizers

from cosyui.model.tokenizer import TextTokenizer

# No deadline: the first example loads a grammar or a dictionary, and machines differ.
settings.register_profile("speech", deadline=None)
settings.load_profile("speech")

ORACLE = Path(__file__).parent.parent / "data" / "oracle"


@pytest.fixture(scope="session")
def toy_tokenizer() -> TextTokenizer:
    """The golden checkpoint's."""
    return TextTokenizer(ORACLE / "checkpoint" / "CosyVoice-BlankEN")


@pytest.fixture(scope="session")
def byte_tokenizer(tmp_path_factory: pytest.TempPathFactory) -> TextTokenizer:
    """One id a byte: the table of the embedded voice without its few merges."""
    folder = tmp_path_factory.mktemp("bytes") / "CosyVoice-BlankEN"
    folder.mkdir()
    vocab = {letter: number for number, letter in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    (folder / "vocab.json").write_text(json.dumps(vocab), encoding="utf-8")
    (folder / "merges.txt").write_text("#version: 0.2\n", encoding="utf-8")
    (folder / "tokenizer_config.json").write_text("{}", encoding="utf-8")
    return TextTokenizer(folder)
