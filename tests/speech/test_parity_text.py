"""The text and feature checks of the parity tool: they hold for golden data and notice what is changed."""

from __future__ import annotations

import json
from importlib import metadata
from pathlib import Path

import numpy as np
import pytest
import torch

from cosyui.bench.parity.text import CHECKS
from cosyui.speech import features
from cosyui.speech import upstream_text as upstream

ORACLE = Path(__file__).parent.parent / "data" / "oracle"
TEXT_FILES = [name for name in CHECKS if name.endswith(".json")]


def golden(name: str) -> dict:
    return json.loads((ORACLE / "golden" / name).read_text(encoding="utf-8"))


def run(name: str, folder: Path) -> list:
    return list(CHECKS[name](ORACLE / "checkpoint", folder))


@pytest.mark.parametrize("name", TEXT_FILES)
def test_golden_text_holds(name: str) -> None:
    assert [deviation for deviation in run(name, ORACLE / "golden") if not deviation.ok] == []


CHANGES = {
    "tokenizer.json": lambda data: data.update(len=data["len"] + 1),
    "text_norm.json": lambda data: data["cases"][0]["plain_split"].update(value=["x"]),
    "split_paragraph.json": lambda data: data["cases"][0]["out"].pop(),
    "text_helpers.json": lambda data: data["replace_blank"][-1]["out"].update(error="KeyError"),
}


@pytest.mark.parametrize("name", TEXT_FILES)
def test_a_changed_expectation_is_noticed(name: str, tmp_path: Path) -> None:
    data = golden(name)
    CHANGES[name](data)
    (tmp_path / name).write_text(json.dumps(data), encoding="utf-8")
    assert [deviation.error for deviation in run(name, tmp_path) if not deviation.ok] == [1.0]


def test_another_wetext_leaves_only_the_version_free_cases(tmp_path: Path) -> None:
    data = golden("text_norm.json")
    data["versions"]["wetext"] = "0.0.0"
    for case in data["cases"]:
        case["wetext_raw"] = {"value": "differs"}
    (tmp_path / "text_norm.json").write_text(json.dumps(data), encoding="utf-8")
    deviations = run("text_norm.json", tmp_path)
    assert all(deviation.ok for deviation in deviations)
    assert "0.0.0" in deviations[-1].what
    assert metadata.version("wetext") in deviations[-1].what


def synthetic(folder: Path) -> None:
    """A golden folder with other waves and lengths than the oracle's, from our own features."""
    noise = torch.randn(1, 9000, generator=torch.Generator().manual_seed(3)) * 0.1
    mel, log_mel = features.mel_24k, features.whisper_log_mel
    np.savez(folder / "mel24k.npz", wav=noise, mel=mel(noise), n_odd=5001, mel_odd=mel(noise[:, :5001]),
             filterbank=features.slaney_filters(24_000, 1920, 80))  # fmt: skip
    np.savez(folder / "whisper128.npz", wav=noise, logmel=log_mel(noise), n_odd=4321,
             logmel_odd=log_mel(noise[:, :4321]), filterbank=features.slaney_filters(16_000, 400, 128))  # fmt: skip
    wave = noise[0].numpy()
    plain = features.kaldi_fbank(wave, subtract_mean=False)
    np.savez(folder / "fbank80.npz", wav=noise, fbank=plain, n_odd=4444,
             fbank_mean_subtracted=features.kaldi_fbank(wave),
             fbank_odd=features.kaldi_fbank(wave[:4444], subtract_mean=False))  # fmt: skip
    np.savez(folder / "resample.npz", wav_24k=noise, noise=noise,
             to_16k=features.resample(noise, 24_000, 16_000, "sinc"),
             noise_32000_to_24000=features.resample(noise, 32_000, 24_000, "sinc"))  # fmt: skip


ARRAYS = {"mel24k.npz": "mel_odd", "whisper128.npz": "logmel", "fbank80.npz": "fbank", "resample.npz": "to_16k"}


@pytest.mark.parametrize(("name", "key"), ARRAYS.items())
def test_feature_checks_hold_on_another_folder_and_notice_a_change(name: str, key: str, tmp_path: Path) -> None:
    synthetic(tmp_path)
    assert [deviation for deviation in run(name, tmp_path) if not deviation.ok] == []
    with np.load(tmp_path / name) as file:
        arrays = dict(file)
    arrays[key][..., -1] += 0.01
    np.savez(tmp_path / name, **arrays)
    assert [deviation for deviation in run(name, tmp_path) if not deviation.ok]
    arrays[key] = arrays[key][..., :-1]
    np.savez(tmp_path / name, **arrays)
    assert float("inf") in [deviation.error for deviation in run(name, tmp_path)]


def test_upstream_faults_are_kept_where_parity_needs_them() -> None:
    with pytest.raises(IndexError):
        upstream.text_normalize("   ", len, wetext=False)
    with pytest.raises(IndexError):
        upstream.split_paragraph("？”她说。", len)
    assert upstream.text_normalize("a <|b|> 3", len) == ["a <|b|> 3"]
    assert upstream.spell_out_number("1,234") == "one,two hundred and thirty-four"
