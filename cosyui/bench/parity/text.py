"""Parity of text rules, tokenizer and features with golden data, for any folder of the same form."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cosyui.bench.parity.deviation import Deviation
from cosyui.model.tokenizer import TextTokenizer
from cosyui.speech import features
from cosyui.speech import upstream_text as upstream

Check = Callable[[Path, Path], Iterator[Deviation]]

MEL_TOLERANCE = 1e-3
FILTER_TOLERANCE = 1e-6
RESAMPLE_TOLERANCE = 1e-5
# Near-silent bins differ between Kaldi's own code and its port that made the golden file; the mean is 8e-6.
FBANK_TOLERANCE = 2e-3
FBANK_MEAN_TOLERANCE = 1e-4


def _load_json(path: Path) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return data


def _outcome(call: Callable[[], object]) -> dict[str, object]:
    """What a rule does, in the form of the golden files: its value or the name of the error it raises."""
    try:
        return {"value": call()}
    except (IndexError, KeyError, ValueError, TypeError, AttributeError) as error:
        return {"error": type(error).__name__}


def _exact(what: str, pairs: Sequence[tuple[object, object]]) -> Deviation:
    wrong = sum(1 for found, expected in pairs if found != expected)
    return Deviation(f"{what} ({len(pairs)})", float(wrong), 0.0)


def _count_words(text: str) -> int:
    return len(text.split())


def _tokenizer(checkpoint: Path) -> TextTokenizer:
    return TextTokenizer(checkpoint / "CosyVoice-BlankEN")


def _installed(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def check_tokenizer(checkpoint: Path, golden: Path) -> Iterator[Deviation]:
    """Ids of the added tokens, encodings and decodings."""
    data = _load_json(golden / "tokenizer.json")
    tokenizer = _tokenizer(checkpoint)
    yield _exact("sizes", [(tokenizer.size, data["len"]), (tokenizer.base_size, data["base_vocab"])])
    yield _exact("special ids", [(tokenizer.added.get(name), number) for name, number in data["special_ids"].items()])
    in_order = data["additional_special_tokens_in_order"]
    ids = [tokenizer.added.get(name, -1) for name in in_order]
    yield _exact("order of added tokens", [(ids, sorted(ids)), (len(set(ids)), len(in_order))])
    cases = data["cases"]
    yield _exact("encodings", [(tokenizer.encode(case["text"], control=True), case["ids"]) for case in cases])
    yield _exact("decodings", [(tokenizer.decode(case["ids"]), case["decoded"]) for case in cases])


def check_text_norm(checkpoint: Path, golden: Path) -> Iterator[Deviation]:
    """The reference's text frontend with wetext (only against the same version), without it, and switched off."""
    data = _load_json(golden / "text_norm.json")
    tokenizer = _tokenizer(checkpoint)
    cases = data["cases"]

    def count(text: str) -> int:
        return len(tokenizer.encode(text, control=True))

    def run(case: dict[str, Any], *, split: bool, frontend: bool = True, wetext: bool = False) -> dict[str, object]:
        return _outcome(
            partial(upstream.text_normalize, case["text"], count, split=split, frontend=frontend, wetext=wetext)
        )

    for name, check in (
        ("contains_chinese", upstream.contains_chinese),
        ("only_punct", upstream.is_only_punctuation),
    ):
        yield _exact(name, [(check(case["text"]), case[name]) for case in cases if name in case])
    for name, split in (("split", True), ("nosplit", False)):
        key = f"plain_{name}"
        yield _exact(key, [(run(case, split=split), case[key]) for case in cases if key in case])
        key = f"off_{name}"
        yield _exact(key, [(run(case, split=split, frontend=False), case[key]) for case in cases if key in case])
    wanted, found = data.get("versions", {}).get("wetext"), _installed("wetext")
    if wanted is None or wanted != found:
        yield Deviation(f"wetext_* left out: golden data has wetext {wanted}, installed is {found}", 0.0, 0.0)
        return
    raw = [
        (_outcome(partial(upstream.wetext_normalise, case["text"])), case["wetext_raw"])
        for case in cases
        if "wetext_raw" in case
    ]
    yield _exact("wetext_raw", raw)
    for name, split in (("split", True), ("nosplit", False)):
        key = f"wetext_{name}"
        yield _exact(key, [(run(case, split=split, wetext=True), case[key]) for case in cases if key in case])


def check_split_paragraph(checkpoint: Path, golden: Path) -> Iterator[Deviation]:
    """The reference's splitter with a word-counting tokenizer."""
    del checkpoint
    data = _load_json(golden / "split_paragraph.json")
    pairs: list[tuple[object, object]] = []
    for case in data["cases"]:
        found = _outcome(
            partial(
                upstream.split_paragraph,
                case["text"],
                _count_words,
                case["lang"],
                max_n=data["token_max_n"],
                min_n=data["token_min_n"],
                merge_len=data["merge_len"],
                comma_split=case["comma_split"],
            )
        )
        out = case["out"]
        pairs.append((found, out if isinstance(out, dict) else {"value": out}))
    yield _exact("segments", pairs)


def check_text_helpers(checkpoint: Path, golden: Path) -> Iterator[Deviation]:
    """The reference's small text rules."""
    del checkpoint
    data = _load_json(golden / "text_helpers.json")
    for name in ("spell_out_number", "replace_blank", "remove_bracket", "replace_corner_mark"):
        rule: Callable[[str], str] = getattr(upstream, name)
        pairs: list[tuple[object, object]] = []
        for case in data.get(name, []):
            out = case["out"]
            found = _outcome(partial(rule, case["in"]))
            pairs.append((found, out if isinstance(out, dict) else {"value": out}))
        yield _exact(name, pairs)


def _difference(found: NDArray[Any] | Tensor, expected: NDArray[Any]) -> float:
    """Largest absolute difference; infinity when the shapes differ."""
    found = np.asarray(found)
    if found.shape != expected.shape:
        return float("inf")
    return float(np.abs(found.astype(np.float64) - expected).max(initial=0.0))


def _check_log_mel(path: Path, key: str, transform: Callable[[Tensor], Tensor], filters: Tensor) -> Iterator[Deviation]:
    with np.load(path) as data:
        wave = torch.from_numpy(data["wav"])
        odd = int(data["n_odd"])
        yield Deviation("filterbank", _difference(filters, data["filterbank"]), FILTER_TOLERANCE)
        yield Deviation(key, _difference(transform(wave), data[key]), MEL_TOLERANCE)
        yield Deviation(f"{key}_odd", _difference(transform(wave[:, :odd]), data[f"{key}_odd"]), MEL_TOLERANCE)
        twice = transform(torch.cat([wave, 0.5 * wave]))
        yield Deviation(f"{key} in a batch", _difference(twice[:1], data[key]), MEL_TOLERANCE)


def check_mel_24k(checkpoint: Path, golden: Path) -> Iterator[Deviation]:
    """24 kHz mel."""
    del checkpoint
    filters = features.slaney_filters(features.MEL_RATE, 1920, features.MEL_BINS)
    yield from _check_log_mel(golden / "mel24k.npz", "mel", features.mel_24k, filters)


def check_whisper(checkpoint: Path, golden: Path) -> Iterator[Deviation]:
    """Whisper's log-mel."""
    del checkpoint
    filters = features.slaney_filters(features.SPEECH_RATE, 400, features.WHISPER_BINS)
    yield from _check_log_mel(golden / "whisper128.npz", "logmel", features.whisper_log_mel, filters)


def check_fbank(checkpoint: Path, golden: Path) -> Iterator[Deviation]:
    """Kaldi fbank; against Kaldi's native code too when the golden file has it."""
    del checkpoint
    if _installed("kaldi-native-fbank") is None:
        yield Deviation("fbank cannot be checked: install kaldi-native-fbank", float("nan"), FBANK_TOLERANCE)
        return
    with np.load(golden / "fbank80.npz") as data:
        wave = data["wav"][0]
        plain = features.kaldi_fbank(wave, subtract_mean=False)
        centred = features.kaldi_fbank(wave)
        odd = features.kaldi_fbank(wave[: int(data["n_odd"])], subtract_mean=False)
        yield Deviation("fbank", _difference(plain, data["fbank"]), FBANK_TOLERANCE)
        if plain.shape == data["fbank"].shape:
            yield Deviation("fbank mean error", float(np.abs(plain - data["fbank"]).mean()), FBANK_MEAN_TOLERANCE)
        yield Deviation("mean subtracted", _difference(centred, data["fbank_mean_subtracted"]), FBANK_TOLERANCE)
        yield Deviation("fbank_odd", _difference(odd, data["fbank_odd"]), FBANK_TOLERANCE)
        if "fbank_kaldi_native" in data:
            yield Deviation("kaldi native", _difference(plain, data["fbank_kaldi_native"]), FILTER_TOLERANCE)


def check_resample(checkpoint: Path, golden: Path) -> Iterator[Deviation]:
    """The windowed-sinc resampler."""
    del checkpoint
    with np.load(golden / "resample.npz") as data:
        for key in data.files:
            case = _resample_case(key, data)
            if case is None:
                continue
            wave, from_rate, to_rate = case
            found = features.resample(torch.from_numpy(wave), from_rate, to_rate, "sinc")
            yield Deviation(key, _difference(found, data[key]), RESAMPLE_TOLERANCE)


def _resample_case(key: str, data: Any) -> tuple[NDArray[np.float32], int, int] | None:
    """Input and rates of one array of resample.npz, from its name; None for an array that is itself an input."""
    if key == "to_16k":
        return data["wav_24k"], 24_000, 16_000
    if key.startswith("back_24k_of_first_"):
        return data["to_16k"][:, : int(key.rsplit("_", 1)[1])], 16_000, 24_000
    if key.startswith("noise_") and "_to_" in key:
        from_rate, to_rate = key.removeprefix("noise_").split("_to_")
        return data["noise"], int(from_rate), int(to_rate)
    return None


CHECKS: dict[str, Check] = {
    "tokenizer.json": check_tokenizer,
    "text_norm.json": check_text_norm,
    "split_paragraph.json": check_split_paragraph,
    "text_helpers.json": check_text_helpers,
    "mel24k.npz": check_mel_24k,
    "whisper128.npz": check_whisper,
    "fbank80.npz": check_fbank,
    "resample.npz": check_resample,
}
"""Golden file name -> check(checkpoint folder, golden folder)."""
