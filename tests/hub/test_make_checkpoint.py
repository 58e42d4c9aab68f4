from __future__ import annotations

import argparse
import json
import math
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch

from cosyui.bench.checkpoint_layout import tensor_shapes
from cosyui.bench.make_checkpoint import FULL, add_arguments, make_checkpoint, run
from cosyui.errors import SetupError
from cosyui.hub import resolve
from cosyui.model.checkpoint import read_state
from cosyui.model.config import load_config
from cosyui.model.cosyvoice3 import load
from cosyui.model.tokenizer import END_OF_PROMPT, TextTokenizer

SHAPES = Path(__file__).parent.parent / "data" / "full_size_shapes.json"


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "tiny"
    make_checkpoint(folder, "tiny", seed=3)
    return folder


def test_full_size_has_the_released_names_and_shapes() -> None:
    computed = tensor_shapes(FULL)
    for file, released in json.loads(SHAPES.read_text()).items():
        assert list(computed[file]) == list(released)
        assert {name: list(shape) for name, shape in computed[file].items()} == released


def test_folder_is_complete_and_loads_strictly(tiny: Path) -> None:
    assert resolve(str(tiny)) == tiny
    model = load(tiny)
    assert model.config == load_config(tiny)
    assert model.tokenizer.size <= model.config.llm.text_vocab


def test_same_seed_same_files(tiny: Path, tmp_path: Path) -> None:
    for name, seed in (("same", 3), ("other", 4)):
        make_checkpoint(tmp_path / name, "tiny", seed)
    for file in ("flow.pt", "campplus.onnx", "speech_tokenizer_v3.onnx"):
        assert (tmp_path / "same" / file).read_bytes() == (tiny / file).read_bytes()
        assert (tmp_path / "other" / file).read_bytes() != (tiny / file).read_bytes()


def test_half_size_weights(tmp_path: Path) -> None:
    make_checkpoint(tmp_path, "tiny", dtype=torch.float16)
    state = read_state(tmp_path / "flow.pt")
    assert {name for name, tensor in state.items() if tensor.dtype != torch.float16} == {
        "decoder.estimator.rotary_embed.inv_freq"
    }


def test_weights_are_finite_and_not_degenerate(tiny: Path) -> None:
    for file in ("llm.pt", "flow.pt", "hift.pt"):
        for name, tensor in read_state(tiny / file).items():
            assert torch.isfinite(tensor).all(), name
            assert tensor.numel() == 1 or tensor.std() > 0, name


def test_special_speech_rows_hardly_compete(tiny: Path) -> None:
    config, rows = load_config(tiny).llm, read_state(tiny / "llm.pt")["llm_decoder.weight"].norm(dim=1)
    stop = config.speech_token_size + 1
    others = torch.cat([rows[config.speech_token_size : stop], rows[stop + 1 :]])
    assert others.max() < 0.2 * rows[: config.speech_token_size].min()
    assert rows[stop] > rows[: config.speech_token_size].min()


def test_tokenizer_merges_frequent_text_and_spells_the_rest(tiny: Path) -> None:
    tokenizer = TextTokenizer(tiny / "CosyVoice-BlankEN")
    assert len(tokenizer.encode("You are a helpful assistant." + END_OF_PROMPT, control=True)) == 7
    assert len(tokenizer.encode("今天的天气")) == 5
    text = "Zürich 鷹 😀\n\t~"
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert max(tokenizer.added.values()) == tokenizer.size - 1


@pytest.mark.parametrize("frames", [1, 2, 3, 4, 5, 101, 400])
def test_speech_tokenizer_signature(tiny: Path, frames: int) -> None:
    session = onnxruntime.InferenceSession(str(tiny / "speech_tokenizer_v3.onnx"))
    assert [(node.name, node.type) for node in session.get_inputs()] == [
        ("feats", "tensor(float)"),
        ("feats_length", "tensor(int32)"),
    ]
    feats = np.random.default_rng(frames).standard_normal((1, 128, frames)).astype(np.float32)
    (ids,) = session.run(None, {"feats": feats, "feats_length": np.array([frames], dtype=np.int32)})
    assert session.get_outputs()[0].name == "indices"
    assert ids.shape == (1, math.ceil(math.ceil(frames / 2) / 2))
    assert ids.min() >= 0
    assert ids.max() <= 6560
    assert frames < 100 or len(np.unique(ids)) > ids.size / 2


def test_speaker_encoder_signature(tiny: Path) -> None:
    session = onnxruntime.InferenceSession(str(tiny / "campplus.onnx"))
    fbank = np.random.default_rng(0).standard_normal((2, 300, 80)).astype(np.float32)
    (vectors,) = session.run(["output"], {"input": fbank})
    assert (vectors.shape, vectors.dtype) == ((2, 192), np.float32)
    assert np.abs(vectors[0] - vectors[1]).max() > 1e-3


def test_existing_files_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "llm.pt").write_text("precious")
    with pytest.raises(SetupError) as caught:
        make_checkpoint(tmp_path, "tiny")
    assert caught.value.code == "folder_not_empty"
    assert (tmp_path / "llm.pt").read_text() == "precious"


def test_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SetupError) as caught:
        make_checkpoint(tmp_path / "file" / "model", "tiny")
    assert caught.value.code == "outputs_not_writable"


def test_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    folder = tmp_path / "model"
    assert run(parser.parse_args([str(folder), "--size", "tiny", "--dtype", "float16"])) == 0
    assert "tiny random checkpoint, float16" in capsys.readouterr().out
    assert resolve(str(folder)) == folder
