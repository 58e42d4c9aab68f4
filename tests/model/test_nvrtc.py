"""CUDA C++ is compiled where its compiler is, and who has none is told so."""

from __future__ import annotations

from importlib.resources import files

import pytest
import torch

from cosyui.bench.make_checkpoint import FULL
from cosyui.model.kernels import nvrtc
from cosyui.model.kernels.llm_tuning import WHOLE_ROWS
from cosyui.model.kernels.llm_whole import Layout, kernel_source
from cosyui.model.kernels.nvrtc import CompileError, compile_source


@pytest.fixture
def compiler() -> None:
    try:
        nvrtc._library()
    except CompileError:
        pytest.skip("needs NVRTC, which PyTorch for CUDA brings")


def test_without_a_compiler_one_is_told_where_it_comes_from(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvrtc, "NAMES", ("libnothing-of-this-name.so",))
    monkeypatch.setattr(nvrtc, "_shipped", list)
    with pytest.raises(CompileError, match=r"NVRTC.*PyTorch for CUDA"):
        compile_source("", "empty.cu", "sm_90", {})


@pytest.mark.usefixtures("compiler")
def test_what_is_wrong_with_a_source_is_told() -> None:
    with pytest.raises(CompileError, match=r"wrong\.cu\(2\): error(.|\n)*unheard_of"):
        compile_source("\nint x = unheard_of + SIZE;", "wrong.cu", "sm_90", {"SIZE": 7})
    with pytest.raises(CompileError, match="gpu-architecture"):
        compile_source("", "empty.cu", "sm_nothing", {})


@pytest.mark.usefixtures("compiler")
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_the_step_compiles_for_the_released_sizes(dtype: torch.dtype) -> None:
    layout = Layout.of(FULL.llm, WHOLE_ROWS, 1536, 132, 232_448)
    assert layout is not None
    primitives = (files("cosyui.model.kernels") / "decode" / "device.cuh").read_text()
    cubin = compile_source(primitives + kernel_source(), "step.cu", "sm_90", layout.macros(FULL.llm, dtype))
    assert cubin.startswith(b"\x7fELF")
    assert b"decode_step" in cubin
