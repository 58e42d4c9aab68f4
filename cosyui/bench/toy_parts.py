"""The small files around random weights: a byte-level BPE of Qwen2's form, two ONNX encoders of released signature."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cosyui.errors import SetupError

# Frequent words and characters, so that texts get about as many ids as with a real tokenizer.
_WORDS = """
You are a helpful assistant. the of and to in is that it was for on as with be at by this had not but from or have an
they which one you were all her she there would their we him been has when who will no more if out so up said what its
about than into them can only other time new some could these two may first then do any like my now over such our man
me even most made after also did many off before must well back through years much where your way down should because
long each just state those people too mister how good make world still see own work men day get here old both between
life being under three never know same last another while us might great year since against go came right used take
hello please thank voice speech today weather
"""
_CHARACTERS = (
    "的一是不了在人有我他这个们中来上大为和国地到以说时要就出会可也你对生能而子那得于着下自之年过发后作里用道行所然家种事成方多经么去法学"
    "如都同现当没动面起看定天分还进好小部其些主样理心她本前开但因只从想实日军者意无力它与长把机十民第公此已工使情明性知全三又关点正业外将"
    "两高间由问很最重并物手应战向头文体政美相见被利什二等产或新己制身果加西斯月话合回特代内信表化老给世位次度门任常先海通教儿原东声提立及"
    "比员解水名真论处走义各入几口认条平系气题活尔更别打女变四神总何电数安少报才结反受目太量再感建务做接必场件计管期市直德资命山金指克许统"
    "区保至队形社便空决治展马科司五基眼书非则听白却界达光放强即像难且权思王象完设式色路记南品住告类求据程北边死张该交规万取拉格望觉术领共确"
    "传师观清今切院让识候带导争运您好吗呢谢请语音"
)


def write_tokenizer(folder: Path) -> int:
    """Write ``vocab.json``, ``merges.txt`` and ``tokenizer_config.json``; return the size of the base vocabulary.

    The 280 tokens that CosyVoice3 adds are not in these files: a loader appends them after the base vocabulary.
    """
    letters = _byte_letters()
    vocab = {letters[byte]: index for index, byte in enumerate(sorted(letters))}
    merges: list[str] = []
    words = _WORDS.split()
    # A merge that comes first wins: words with their space go before bare ones, so that they become one id.
    for text in [*(f" {word}" for word in words), *words, *_CHARACTERS]:
        pieces = [letters[byte] for byte in text.encode()]
        whole = pieces[0]
        for piece in pieces[1:]:
            if whole + piece not in vocab:
                vocab[whole + piece] = len(vocab)
                merges.append(f"{whole} {piece}")
            whole += piece
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "vocab.json").write_text(json.dumps(vocab, ensure_ascii=False), encoding="utf-8")
    (folder / "merges.txt").write_text("\n".join(["#version: 0.2", *merges]) + "\n", encoding="utf-8")
    declared = {str(len(vocab) + index): _special(token) for index, token in enumerate(_DECLARED)}
    config = {
        "added_tokens_decoder": declared,
        "additional_special_tokens": _DECLARED[1:],
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
        "tokenizer_class": "Qwen2Tokenizer",
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=2), encoding="utf-8")
    return len(vocab)


_DECLARED = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]


def _special(token: str) -> dict[str, Any]:
    flags = dict.fromkeys(("lstrip", "normalized", "rstrip", "single_word"), False)
    return {"content": token, **flags, "special": True}


def _byte_letters() -> dict[int, str]:
    """The letter that stands for each byte in a byte-level BPE: itself if printable, else one from U+0100 on."""
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [byte for byte in range(256) if byte not in printable]
    return {byte: chr(byte) for byte in printable} | {byte: chr(256 + index) for index, byte in enumerate(others)}


def write_speaker_encoder(file: Path, rng: np.random.Generator) -> None:
    """``input`` float (B,T,80) -> ``output`` float (B,192): a random layer averaged over time, then a projection."""
    helper, _ = _onnx()
    nodes = [
        helper.make_node("MatMul", ["input", "w1"], ["h1"]),
        helper.make_node("Tanh", ["h1"], ["h2"]),
        helper.make_node("ReduceMean", ["h2"], ["h3"], axes=[1], keepdims=0),
        helper.make_node("MatMul", ["h3", "w2"], ["output"]),
    ]
    weights = {"w1": _random(rng, 80, 256, scale=0.3), "w2": _random(rng, 256, 192, scale=4.0)}
    _save(file, nodes, {"input": ("float", ["B", "T", 80])}, {"output": ("float", ["B", 192])}, weights)


def write_speech_tokenizer(file: Path, rng: np.random.Generator) -> None:
    """``feats`` float (1,128,T), ``feats_length`` int32 (1) -> ``indices`` int64 (1,N), N = ceil(ceil(T/2)/2).

    Two strided convolutions and eight ternary digits, so ids in 0..6560 follow the sound.
    """
    helper, _ = _onnx()
    stride: dict[str, Any] = {"strides": [2], "pads": [1, 1], "kernel_shape": [3]}
    nodes = [
        helper.make_node("Conv", ["feats", "w1"], ["h1"], **stride),
        helper.make_node("Tanh", ["h1"], ["h2"]),
        helper.make_node("Conv", ["h2", "w2"], ["h3"], **stride),
        helper.make_node("Tanh", ["h3"], ["h4"]),
        helper.make_node("Mul", ["h4", "spread"], ["h5"]),
        helper.make_node("Round", ["h5"], ["digits"]),
        helper.make_node("Transpose", ["digits"], ["h6"], perm=[0, 2, 1]),
        helper.make_node("MatMul", ["h6", "powers"], ["h7"]),
        helper.make_node("Add", ["h7", "middle"], ["h8"]),
        helper.make_node("Cast", ["h8"], ["all_ids"], to=7),
        helper.make_node("Add", ["feats_length", "three"], ["n1"]),
        helper.make_node("Div", ["n1", "four"], ["count"]),
        helper.make_node("Slice", ["all_ids", "zero", "count", "axis"], ["indices"]),
    ]
    weights: dict[str, NDArray[Any]] = {
        "w1": _random(rng, 64, 128, 3, scale=2.0),
        "w2": _random(rng, 8, 64, 3, scale=1.5),
        "spread": np.array([1.4], dtype=np.float32),
        "powers": (3.0 ** np.arange(8)).astype(np.float32),
        "middle": np.array([3280.0], dtype=np.float32),
        "three": np.array([3], dtype=np.int32),
        "four": np.array([4], dtype=np.int32),
        "zero": np.array([0], dtype=np.int32),
        "axis": np.array([1], dtype=np.int32),
    }
    inputs: dict[str, tuple[str, list[Any]]] = {"feats": ("float", [1, 128, "T"]), "feats_length": ("int32", [1])}
    _save(file, nodes, inputs, {"indices": ("int64", [1, "N"])}, weights)


def _random(rng: np.random.Generator, *shape: int, scale: float) -> NDArray[np.float32]:
    fan_in = shape[0] if len(shape) == 2 else int(np.prod(shape[1:]))
    values: NDArray[np.float64] = rng.standard_normal(shape) * (scale / fan_in**0.5)
    return values.astype(np.float32)


def _onnx() -> tuple[Any, Any]:
    try:
        from onnx import helper, numpy_helper
    except ImportError as error:
        message = "make-checkpoint needs the package onnx: install it with `pip install onnx`."
        raise SetupError("package_missing", message) from error
    return helper, numpy_helper


def _save(
    file: Path,
    nodes: list[Any],
    inputs: dict[str, tuple[str, list[Any]]],
    outputs: dict[str, tuple[str, list[Any]]],
    weights: dict[str, NDArray[Any]],
) -> None:
    helper, numpy_helper = _onnx()
    types = {"float": 1, "int32": 6, "int64": 7}

    def describe(table: dict[str, tuple[str, list[Any]]]) -> list[Any]:
        return [helper.make_tensor_value_info(name, types[kind], shape) for name, (kind, shape) in table.items()]

    constants = [numpy_helper.from_array(value, name) for name, value in weights.items()]
    graph = helper.make_graph(nodes, file.stem, describe(inputs), describe(outputs), constants)
    # Old versions of both, so that any ONNX Runtime of the last years opens the file.
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    file.write_bytes(model.SerializeToString())
