from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from cosyui.errors import CheckpointError
from cosyui.model.checkpoint import fold_weight_norm, load_into, read_state


class Trap:
    """Unpickling this would run code."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> Any:
        return Path.touch, (self.marker,)


def save(path: Path, content: object, **options: Any) -> Path:
    torch.save(content, path, **options)
    return path


def error_of(path: Path) -> CheckpointError:
    with pytest.raises(CheckpointError) as caught:
        read_state(path)
    assert str(path) in caught.value.message
    return caught.value


def test_reads_tensors_and_drops_what_is_not_used(tmp_path: Path) -> None:
    weight = torch.randn(3, 2)
    state = {"llm.model.lm_head.weight": weight, "llm.model.model.norm.weight": weight[0], "epoch": 3, "step": 7}
    read = read_state(save(tmp_path / "llm.pt", state))
    assert list(read) == ["llm.model.model.norm.weight"]
    assert torch.equal(read["llm.model.model.norm.weight"], weight[0])


def test_generator_is_taken_out_of_names(tmp_path: Path) -> None:
    read = read_state(save(tmp_path / "hift.pt", {"generator.conv_pre.bias": torch.ones(2)}))
    assert list(read) == ["conv_pre.bias"]


def test_old_file_format_is_read(tmp_path: Path) -> None:
    path = save(tmp_path / "flow.pt", {"a": torch.arange(3.0)}, _use_new_zipfile_serialization=False)
    assert read_state(path)["a"].tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "empty"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n", "Git LFS"),
        (b"<html>not found</html>", "not readable"),
        (b"PK\x03\x04" + bytes(200), "not readable"),
        (bytes(5000), "not readable"),
        (pickle.dumps({"a": 1}, protocol=2), "not readable"),
    ],
    ids=["empty", "pointer", "html", "broken zip", "zeros", "pickle"],
)
def test_damaged_file(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "flow.pt"
    path.write_bytes(content)
    error = error_of(path)
    assert (error.code, said in error.message) == ("checkpoint_corrupt", True), error.message


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9, 0.999])
def test_cut_off_file(tmp_path: Path, share: float) -> None:
    path = save(tmp_path / "flow.pt", {f"t{n}": torch.randn(50, 50) for n in range(20)})
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])
    assert error_of(path).code == "checkpoint_corrupt"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ([torch.ones(1)], "a list"),
        ({"a": torch.ones(1), "b": "text"}, "'b' is no tensor"),
        ({"state_dict": {"a": torch.ones(1)}}, "'state_dict' is no tensor"),
        ({}, "no tensor"),
        (torch.ones(2), "a Tensor"),
    ],
    ids=["list", "text inside", "nested", "nothing", "tensor"],
)
def test_other_content(tmp_path: Path, content: object, said: str) -> None:
    error = error_of(save(tmp_path / "llm.pt", content))
    assert (error.code, said in error.message) == ("checkpoint_corrupt", True), error.message


def test_code_in_a_file_is_not_run(tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    assert error_of(save(tmp_path / "llm.pt", {"a": Trap(marker)})).code == "checkpoint_corrupt"
    assert not marker.exists()


def test_missing_file(tmp_path: Path) -> None:
    assert error_of(tmp_path / "llm.rl.pt").code == "checkpoint_missing_file"


@pytest.mark.parametrize("modern", [True, False])
@pytest.mark.parametrize("name", ["conv", "f0_predictor.condnet.0"])
def test_weight_norm_is_folded_as_pytorch_computes_it(modern: bool, name: str) -> None:
    torch.manual_seed(1)
    conv = nn.Conv1d(3, 5, 4)
    normed = torch.nn.utils.parametrizations.weight_norm(conv)
    normed.parametrizations.weight.original0.data *= 1.7
    state = {f"{name}.{key}": value.detach() for key, value in normed.state_dict().items()}
    if not modern:
        new_to_old = {"parametrizations.weight.original0": "weight_g", "parametrizations.weight.original1": "weight_v"}
        for new, old in new_to_old.items():
            state[f"{name}.{old}"] = state.pop(f"{name}.{new}")
    folded = fold_weight_norm(state)
    assert set(folded) == {f"{name}.weight", f"{name}.bias"}
    torch.testing.assert_close(folded[f"{name}.weight"].float(), conv.weight.detach(), rtol=1e-6, atol=1e-7)


def test_pitch_net_is_folded_in_float64() -> None:
    g, v = torch.rand(4, 1, 1).half(), torch.randn(4, 3, 2).half()
    names = "parametrizations.weight.original0", "parametrizations.weight.original1"
    parts = ("f0_predictor.c", "conv")
    state = {f"{part}.{name}": value for part in parts for name, value in zip(names, (g, v), strict=True)}
    folded = fold_weight_norm({**state, "f0_predictor.c.bias": torch.ones(4).half()})
    exact = g.double() * v.double() / v.double().square().sum((1, 2), keepdim=True).sqrt()
    assert folded["f0_predictor.c.weight"].dtype == folded["f0_predictor.c.bias"].dtype == torch.float64
    torch.testing.assert_close(folded["f0_predictor.c.weight"], exact, rtol=1e-14, atol=0)
    assert folded["conv.weight"].dtype == torch.float32
    assert torch.equal(folded["conv.weight"], exact.float())


def test_half_a_pair_is_left_for_the_strict_load() -> None:
    state = {"a.weight_g": torch.ones(2, 1, 1)}
    assert fold_weight_norm(state) == state


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 2)
        self.exact = nn.Linear(2, 1, dtype=torch.float64)
        self.register_buffer("table", torch.zeros(4))


def net_state() -> dict[str, Tensor]:
    return {name: torch.randn_like(value) for name, value in Net().state_dict().items()}


def test_loads_into_a_module_without_memory() -> None:
    with torch.device("meta"):
        net = Net()
    state = net_state()
    load_into(net, state, Path("flow.pt"), torch.float16)
    assert net.linear.weight.dtype == torch.float16
    assert net.exact.weight.dtype == torch.float64
    assert net.get_buffer("table").dtype == torch.float32
    assert torch.equal(net.linear.weight, state["linear.weight"].half())
    assert torch.equal(net.get_buffer("table"), state["table"])


def test_module_does_not_depend_on_the_file(tmp_path: Path) -> None:
    state = net_state()
    path = save(tmp_path / "flow.pt", state)
    net = Net()
    load_into(net, read_state(path), path, torch.float32)
    with path.open("r+b") as stream:
        stream.write(bytes(path.stat().st_size))
    assert torch.equal(net.linear.weight, state["linear.weight"])


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"linear.weight": None}, "linear.weight is missing (expected shape [2, 3])"),
        ({"more.bias": torch.ones(7)}, "more.bias of shape [7] is not part of the model"),
        ({"linear.weight": torch.ones(3, 2)}, "linear.weight has shape [3, 2], expected [2, 3]"),
        ({"table": torch.ones(4, dtype=torch.int64)}, "table has type torch.int64, expected torch.float32"),
    ],
    ids=["missing", "extra", "misshapen", "type"],
)
def test_strict(changes: dict[str, Tensor | None], said: str) -> None:
    state = {name: value for name, value in {**net_state(), **changes}.items() if value is not None}
    with pytest.raises(CheckpointError) as caught:
        load_into(Net(), state, Path("models/flow.pt"), torch.float32)
    assert caught.value.code == "checkpoint_tensor"
    assert said in caught.value.message
    assert "models/flow.pt" in caught.value.message


def test_many_differences_are_counted() -> None:
    with pytest.raises(CheckpointError) as caught:
        load_into(Net(), {f"extra{n}": torch.ones(1) for n in range(9)}, Path("llm.pt"), torch.float32)
    assert "and 9 more" in caught.value.message  # 5 missing ones are listed, 9 extra ones counted
