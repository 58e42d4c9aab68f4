"""Text to ids: Qwen2 byte-level BPE plus the tokens CosyVoice3 adds.

The BPE object knows no special token at all. Tokens are cut out of the text by our own split, which only knows the
ones that the caller permits, so a control token typed by a user can never become a control id: it is spelled in bytes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from cosyui.errors import CheckpointError
from cosyui.model.added_tokens import ADDED_TOKENS

END_OF_TEXT = "<|endoftext|>"
END_OF_PROMPT = "<|endofprompt|>"

# Qwen2's pre-tokenisation: contractions, letters with one leading mark, single digits, punctuation, blanks.
_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


class TextTokenizer:
    """The tokenizer of a ``CosyVoice-BlankEN`` folder (``vocab.json``, ``merges.txt``, ``tokenizer_config.json``).

    ``size`` is the number of ids including the added ones, ``base_size`` that of the BPE table alone. ``marks`` are
    the added tokens that a text may contain (``[breath]``, ``<strong>``, ``[AA1]``, ``[ǎo]``), ``controls`` those that
    only our own code may place (``<|endofprompt|>``). Instances are read-only and safe to share between threads.
    """

    def __init__(self, folder: Path) -> None:
        """Read the folder. Raises CheckpointError (``checkpoint_missing_file``, ``checkpoint_corrupt``)."""
        vocab = _read_vocab(folder / "vocab.json")
        merges = _read_merges(folder / "merges.txt", vocab)
        self._bpe = _build_bpe(vocab, merges)
        self.base_size = len(vocab)
        self._ids = _added_ids(vocab, folder / "tokenizer_config.json")
        self._tokens = {number: token for token, number in self._ids.items()}
        self.size = max(*self._ids.values(), *vocab.values()) + 1
        # A token that only this folder knows is none that a text may contain, whatever it looks like.
        self.marks = frozenset(token for token in ADDED_TOKENS if not token.startswith("<|"))
        self.controls = frozenset(self._ids) - self.marks
        self._split_marks = _splitter(self.marks)
        self._split_all = _splitter(self._ids)

    def encode(self, text: str, *, control: bool = False) -> list[int]:
        """Ids of ``text``; marks become one id each, control tokens too if ``control`` is set.

        Tokens are matched in the text as it stands, case-sensitive, before normalisation to NFC; the stretches between
        them are encoded independently of each other. Nothing is added at either end.
        """
        ids: list[int] = []
        for piece in (self._split_all if control else self._split_marks).split(text):
            number = self._ids.get(piece) if control or piece in self.marks else None
            if number is not None:
                ids.append(number)
            elif piece:
                ids.extend(self._bpe.encode(piece).ids)
        return ids

    def decode(self, ids: Iterable[int]) -> str:
        """The text of ``ids`` without the added tokens; broken UTF-8 becomes U+FFFD."""
        text: str = self._bpe.decode([number for number in ids if number not in self._tokens])
        return text

    def id_of(self, token: str) -> int:
        """The id of an added token such as ``<|endofprompt|>``. Raises CheckpointError if there is none."""
        try:
            return self._ids[token]
        except KeyError:
            raise CheckpointError("checkpoint_corrupt", f"The checkpoint's tokenizer has no token {token}.") from None

    @property
    def added(self) -> dict[str, int]:
        """All added tokens with their ids (a copy)."""
        return dict(self._ids)


def _splitter(tokens: Iterable[str]) -> re.Pattern[str]:
    """A pattern whose ``split`` keeps the tokens; the longest wins where several match."""
    return re.compile("(" + "|".join(re.escape(t) for t in sorted(tokens, key=len, reverse=True)) + ")")


def _build_bpe(vocab: dict[str, int], merges: list[tuple[str, str]]) -> Tokenizer:
    bpe = Tokenizer(models.BPE(vocab=vocab, merges=merges))
    bpe.normalizer = normalizers.NFC()
    bpe.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_SPLIT), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    bpe.decoder = decoders.ByteLevel()
    return bpe


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise CheckpointError(
            "checkpoint_missing_file", f"The model folder has no {path.parent.name}/{path.name}. Download it again."
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise _corrupt(path, str(error)) from error


def _corrupt(path: Path, why: str) -> CheckpointError:
    return CheckpointError(
        "checkpoint_corrupt", f"{path.parent.name}/{path.name} cannot be used: {why}. Download the model again."
    )


def _read_json(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(_read_text(path))
    except json.JSONDecodeError as error:
        raise _corrupt(path, f"it is not valid JSON ({error.msg}, line {error.lineno})") from error
    if not isinstance(data, dict):
        raise _corrupt(path, "it is not a JSON object")
    return data


def _read_vocab(path: Path) -> dict[str, int]:
    vocab = _read_json(path)
    if not all(isinstance(number, int) and number >= 0 for number in vocab.values()):
        raise _corrupt(path, "an id is not a whole number")
    if len(set(vocab.values())) != len(vocab):
        raise _corrupt(path, "an id occurs twice")
    missing = [letter for letter in pre_tokenizers.ByteLevel.alphabet() if letter not in vocab]
    if missing:
        raise _corrupt(path, f"{len(missing)} of the 256 byte letters are missing")
    return vocab


def _read_merges(path: Path, vocab: dict[str, int]) -> list[tuple[str, str]]:
    merges: list[tuple[str, str]] = []
    for number, line in enumerate(_read_text(path).split("\n"), start=1):
        if not line.strip() or (number == 1 and line.startswith("#version")):
            continue
        pair = line.rstrip("\r").split(" ")
        if len(pair) != 2 or not {pair[0], pair[1], pair[0] + pair[1]} <= vocab.keys():
            raise _corrupt(path, f"line {number} does not fit vocab.json")
        merges.append((pair[0], pair[1]))
    return merges


def _added_ids(vocab: dict[str, int], config_path: Path) -> dict[str, int]:
    """Ids of ``<|endoftext|>`` and the 280 added tokens: those the folder already knows, then consecutive new ones."""
    known: dict[str, int] = {}
    declared = _read_json(config_path).get("added_tokens_decoder", {})
    try:
        known.update((str(entry["content"]), int(number)) for number, entry in declared.items())
    except (AttributeError, KeyError, TypeError, ValueError):
        raise _corrupt(config_path, "added_tokens_decoder is not a table of tokens") from None
    ids = dict(known)
    free = max(*vocab.values(), *known.values(), -1) + 1
    for token in (END_OF_TEXT, *ADDED_TOKENS):
        if token in ids:
            continue
        ids[token] = vocab.get(token, free)
        free += ids[token] == free
    if len(set(ids.values())) != len(ids):
        raise _corrupt(config_path, "two added tokens share an id")
    return ids
