from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from cosyui.errors import CheckpointError
from cosyui.model.config import CONFIG_FILE, TEXT_MODEL_CONFIG, ModelConfig, load_config
from cosyui.model.yaml_data import ARGS, TAG, Unresolved, read_yaml

ORIGINAL = Path(__file__).parent.parent / "data" / "oracle" / "checkpoint"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / TEXT_MODEL_CONFIG).parent.mkdir()
    for name in (CONFIG_FILE, TEXT_MODEL_CONFIG):
        shutil.copyfile(ORIGINAL / name, tmp_path / name)
    return tmp_path


def edit(folder: Path, old: str, new: str) -> None:
    path = folder / CONFIG_FILE
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def code_of(folder: Path) -> tuple[str, str]:
    with pytest.raises(CheckpointError) as caught:
        load_config(folder)
    return caught.value.code, caught.value.message


def test_sizes_come_from_both_files(folder: Path) -> None:
    config = load_config(folder)
    llm, flow, hift = config.llm, config.flow, config.vocoder
    assert (llm.hidden, llm.layers, llm.heads, llm.kv_heads, llm.head_dim, llm.mlp) == (96, 3, 6, 2, 16, 160)
    assert (llm.text_vocab, llm.speech_vocab, llm.speech_token_size) == (1184, 6761, 6561)
    assert (llm.rope_theta, llm.rms_eps, llm.mix_ratio) == (1e6, 1e-6, (5, 15))
    assert (llm.sampling.top_p, llm.sampling.top_k, llm.sampling.win_size, llm.sampling.tau_r) == (0.8, 25, 10, 0.1)
    assert (flow.dim, flow.depth, flow.heads, flow.dim_head, flow.pre_lookahead_channels) == (64, 3, 4, 16, 48)
    assert (flow.chunk_frames, flow.cfg_rate, flow.t_scheduler, flow.spk_dim) == (50, 0.7, "cosine", 192)
    assert (hift.base_channels, hift.f0_channels, hift.istft_n_fft, hift.istft_hop) == (32, 32, 16, 4)
    assert hift.source_resblock_dilation_sizes == ((1, 3, 5),) * 3
    assert (config.mel.hop, config.mel.fmax, config.sample_rate) == (480, 12000.0, 24000)
    assert (config.text_frontend, config.demo_voice, llm.min_token_text_ratio, llm.max_token_text_ratio) == (
        None,
        False,
        2.0,
        20.0,
    )


def test_keys_of_ours(folder: Path) -> None:
    text = (folder / CONFIG_FILE).read_text()
    ours = "text_frontend: cosyui-marks-v1\nmin_token_text_ratio: 0.5\nmax_token_text_ratio: 8\ndemo_voice: true\n"
    (folder / CONFIG_FILE).write_text(text + ours + "instruct_supported: false\nlanguages: [en, zh]\n")
    config = load_config(folder)
    assert (config.text_frontend, config.demo_voice, config.instruct_supported) == ("cosyui-marks-v1", True, False)
    assert (config.llm.min_token_text_ratio, config.llm.max_token_text_ratio) == (0.5, 8.0)
    assert config.languages == ("en", "zh")


def test_nothing_of_the_file_is_executed(folder: Path, tmp_path: Path) -> None:
    trap = tmp_path / "executed"
    text = (folder / CONFIG_FILE).read_text()
    (folder / CONFIG_FILE).write_text(text + f"__trap: !apply:os.mkdir ['{trap}']\n__other: !new:no.such.Class {{}}\n")
    assert isinstance(load_config(folder), ModelConfig)
    assert not trap.exists()


@pytest.mark.parametrize(
    ("old", "new", "key"),
    [
        ("            depth: 3\n", "", "flow.decoder.estimator.depth"),
        ("            depth: 3\n", "            depth: three\n", "flow.decoder.estimator.depth"),
        ("            depth: 3\n", "            depth: 0\n", "flow.decoder.estimator.depth"),
        ("            depth: 3\n", "            depth: true\n", "flow.decoder.estimator.depth"),
        ("        top_p: 0.8", "        top_p: .nan", "llm.sampling.top_p"),
        ("    mix_ratio: [5, 15]", "    mix_ratio: [5]", "llm.mix_ratio"),
        ("t_scheduler: 'cosine'", "t_scheduler: 'sine'", "flow.decoder.cfm_params.content.t_scheduler"),
        ("!ref <chunk_size> * <token_mel_ratio>", "!ref <chunk_size> * <nothing>", "static_chunk_size"),
        ("chunk_size: 25", "chunk_size: !ref <chunk_size>", "static_chunk_size"),
        ("upsample_kernel_sizes: [16, 11, 7]", "upsample_kernel_sizes: [16, 11]", "hift.upsample_kernel_sizes"),
        ("    upsample_rates: [8, 5, 3]", "    upsample_rates: [8, 5, 2]", "hift.upsample_rates"),
        ("llm_input_size: 96", "llm_input_size: 97", "llm.llm_input_size"),
        ("    vocab_size: 6561", "    vocab_size: 4096", "flow.vocab_size"),
        ("feat_extractor: ", "other_extractor: ", "feat_extractor"),
    ],
)
def test_wrong_key_is_named(folder: Path, old: str, new: str, key: str) -> None:
    edit(folder, old, new)
    code, message = code_of(folder)
    assert code == "checkpoint_config"
    assert key in message
    assert CONFIG_FILE in message


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"a: [1, 2", "not readable as YAML"),
        (b"- 1\n- 2\n", "not a mapping"),
        (b"\xff\xfe\x00", "utf-8"),
        (b"x: !!python/object/apply:os.getcwd []\n", "not readable as YAML"),
        (b"[" * 2000, "not readable as YAML"),
        (b"a: b\n" * 300_000, "too large"),
    ],
    ids=["cut off", "list", "binary", "python tag", "nested", "large"],
)
def test_unreadable_yaml(folder: Path, content: bytes, said: str) -> None:
    (folder / CONFIG_FILE).write_bytes(content)
    code, message = code_of(folder)
    assert (code, said in message) == ("checkpoint_config", True), message


@pytest.mark.parametrize("name", [CONFIG_FILE, TEXT_MODEL_CONFIG])
def test_missing_file_is_named(folder: Path, name: str) -> None:
    (folder / name).unlink()
    code, message = code_of(folder)
    assert (code, name in message) == ("checkpoint_missing_file", True)


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"num_hidden_layers": None}, "num_hidden_layers"),
        ({"num_key_value_heads": 4}, "num_key_value_heads"),
        ({"rope_theta": -1}, "rope_theta"),
        ({"hidden_size": "96"}, "hidden_size"),
    ],
)
def test_text_model_config_is_checked(folder: Path, changes: dict[str, object], key: str) -> None:
    path = folder / TEXT_MODEL_CONFIG
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
    code, message = code_of(folder)
    assert (code, key in message, "config.json" in message) == ("checkpoint_config", True, True)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("x: !ref <a>", 3),
        ("x: !ref <a> * <b>", 15),
        ("x: !ref (<a> + 1) * -<b> // 3 % 4 - 0.5", (3 + 1) * -5 // 3 % 4 - 0.5),
        ("x: !ref <deep[list][1]>", 8),
        ("x: !ref <chain>", 3),
        ("x: !copy <deep>", {"list": [7, 8]}),
        ("x: 1e-06", 1e-6),
        ("x: -2E5", -2e5),
        ("x: !new:a.b.C\n  k: !ref <b>", {TAG: "new:a.b.C", "k": 5}),
        ("x: !apply:f [1, !ref <a>]", {TAG: "apply:f", ARGS: [1, 3]}),
        ("x: !name:f", {TAG: "name:f", ARGS: ""}),
    ],
)
def test_yaml_values(text: str, value: object) -> None:
    data = read_yaml(f"a: 3\nb: 5\ndeep: {{list: [7, 8]}}\nchain: !ref <a>\n{text}\n")
    assert data["x"] == value


@pytest.mark.parametrize(
    "reference",
    [
        "<none>",
        "<a> ** 99",
        "<a> / 0",
        "<word> * 2",
        "__import__('os').getcwd()",
        "<x>",
        "<a> +",
        "<a>/model",
        "1+" * 500,
    ],
)
def test_unresolvable_reference_stays_data(reference: str) -> None:
    data = read_yaml(f"a: 3\nword: text\nx: !ref {reference}\n")
    assert isinstance(data["x"], Unresolved)


def test_shared_parts_do_not_multiply() -> None:
    levels = "\n".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 40))
    data = read_yaml(f"a0: &a0 [1]\n{levels}\n")
    assert data["a39"][0] is data["a39"][8]
