"""A decode step as one kernel against plain operations: its threads as fibers on a CPU, and the real one on CUDA."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from cosyui.bench.make_checkpoint import FULL, TINY
from cosyui.model.config import LLMConfig
from cosyui.model.kernels.llm_tuning import WHOLE_ROWS
from cosyui.model.kernels.llm_whole import Layout, WholeStep, kernel_source
from cosyui.model.llm_decode import STREAM_SCALE, DecodeLLM, SlotState
from tests.model.random_llm import random_llm, tolerance

HERE = Path(__file__).parent / "on_host"
CPU = torch.device("cpu")
CAPACITY = 600
SMALL = replace(
    TINY.llm,
    hidden=128, heads=6, kv_heads=2, head_dim=64, mlp=448, text_vocab=9, speech_token_size=50, speech_vocab=77,
)  # fmt: skip
DEEP = replace(SMALL, layers=1, hidden=64, heads=7, kv_heads=1, mlp=2752)
"""Inner products that come in several copies and that a warp takes several steps of; a group as large as it may be."""
ROWS = WHOLE_ROWS
POSITIONS = [0, 599, 447, 448, 1, 7, 8, 31, 32, 33, 64, 446, 449, 479, 512, 300]
"""Around the borders of tiles, of warps' shares and of parts; several rows of them have two parts."""
INFINITE, NAN = 1, 2
"""Tokens that no request can have."""


PICKED = {
    1: [14],
    3: [3, 0, 15],
    8: [6, 7, 13, 1, 10, 4, 3, 2],
    9: [11, 1, 2, 0, 14, 12, 5, 8, 13],
    ROWS: list(range(ROWS)),
}
"""Rows of a batch, by their number."""


class Decoded:
    """Rows in slots out of order, what stands in the slots, and what the plain pass makes of them."""

    def __init__(self, config: LLMConfig, device: torch.device = CPU, dtype: torch.dtype = torch.float16) -> None:
        llm = random_llm(config, device, dtype)
        llm.speech_embedding.weight[INFINITE], llm.speech_embedding.weight[NAN] = torch.inf, torch.nan
        self.model = DecodeLLM(llm, CAPACITY)
        self.state = SlotState(config, ROWS + 3, CAPACITY, device, dtype)
        self.slots = torch.randperm(ROWS + 2)[:ROWS]
        self.tokens = torch.randint(3, 50, (ROWS,), device=device)
        for cache in (self.state.keys, self.state.values):
            cache.fill_(torch.nan)  # what nobody has written yet, or is left of others
            for slot, position in zip(self.slots.tolist(), POSITIONS, strict=True):
                cache[:, slot, :, :position].normal_()
        self.before = self._caches()
        self.expected = self.model.step(self.state, self.slots.tolist(), POSITIONS, self.tokens)
        self.after = self._caches()

    def launch(self, step: WholeStep, picked: list[int], tokens: torch.Tensor | None = None) -> torch.Tensor:
        """Logits of the rows ``picked``, on slots as they were before any step."""
        self.state.keys.copy_(self.before[0])
        self.state.values.copy_(self.before[1])
        model, stream = self.model, step.stream.first(len(picked))
        at = torch.tensor(POSITIONS)[picked].to(model.device)
        x = model.table[self.tokens[picked] if tokens is None else tokens].float()
        stream.slot.copy_(self.slots[picked])
        stream.at.copy_(at)
        stream.turn.copy_(torch.cat([model.cos, model.sin], 1)[at])
        stream.x.copy_(x)
        stream.h.copy_(x * model.layers[0].norm.float() / STREAM_SCALE)
        stream.squares.zero_()
        stream.squares[:, 3] = x.square().sum(1)
        logits = torch.full((len(picked), model.config.speech_vocab), torch.nan, device=model.device)
        step.launch(len(picked), logits)
        return logits

    def check(self, logits: torch.Tensor, picked: list[int], step: WholeStep) -> None:
        """Logits of ``picked`` and their keys and values are those of the plain pass; all else is as it was."""
        near = tolerance(self.model.dtype)
        assert (logits - self.expected[picked]).abs().max() < near * self.expected.abs().max()
        for found, before, after in zip(self._caches(), self.before, self.after, strict=True):
            wanted = before.clone()
            wanted[:, self.slots[picked]] = after[:, self.slots[picked]]
            torch.testing.assert_close(found, wanted, atol=10 * near, rtol=0, equal_nan=True)
        assert (step.mail == -1).all(), "the next launch would take it for its own"

    def _caches(self) -> tuple[torch.Tensor, torch.Tensor]:
        return self.state.keys.clone(), self.state.values.clone()


class OnHost:
    """The kernel for a CPU; see ``on_host/run.h``."""

    def __init__(self, folder: Path, decoded: Decoded, layout: Layout) -> None:
        compiler = shutil.which("g++")
        if compiler is None:
            pytest.skip("needs g++")
        options = ["-x", "c++", "-std=c++17", "-O2", "-march=native", "-ffp-contract=off", "-w", "-shared", "-fPIC"]
        probe, source, library = folder / "probe.so", folder / "step.cpp", folder / "step.so"
        known = subprocess.run([compiler, *options, "-o", probe, "-"], input=b"_Float16 one;", capture_output=True)
        if known.returncode:
            pytest.skip("needs a g++ that knows _Float16")
        source.write_text((HERE / "device.h").read_text() + kernel_source() + (HERE / "run.h").read_text())
        macros = [f"-D{k}={v}" for k, v in layout.macros(decoded.model.config, decoded.model.dtype).items()]
        subprocess.run([compiler, *options, *macros, "-o", library, source], check=True)
        self.decoded, self.layout, self.library = decoded, layout, ctypes.CDLL(str(library))

    def step(self, blocks: int, *, late: bool = False, seed: int = 0) -> WholeStep:
        def run(argument: ctypes.Structure) -> None:
            assert ctypes.sizeof(argument) == ctypes.c_int.in_dll(self.library, "size_of_step").value
            stuck = self.library.run_step(ctypes.byref(argument), blocks, int(late), seed)
            assert not stuck, "the kernel does not come to an end"

        step = WholeStep(self.decoded.model, self.decoded.state, self.layout, run)
        assert step.mail.shape[-1] == ctypes.c_int.in_dll(self.library, "mail_of_a_row").value
        return step


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> OnHost:
    layout = Layout.of(SMALL, ROWS, CAPACITY, 5, 1 << 30)
    assert layout is not None
    assert (layout.gate_tiles, layout.logit_tiles) == (12, 2), "with a last unit that is smaller than the others"
    return OnHost(tmp_path_factory.mktemp("small"), Decoded(SMALL), layout)


@pytest.fixture(scope="module")
def together(small: OnHost) -> torch.Tensor:
    """Logits of all rows in one batch."""
    return small.decoded.launch(small.step(3), PICKED[ROWS])


@pytest.mark.parametrize(
    ("rows", "blocks", "late", "seed"),
    [
        (1, 1, False, 0),
        (1, 3, True, 1),
        (1, 24, True, 0),
        (3, 2, False, 2),
        (3, 4, True, 0),
        (8, 5, False, 0),
        (9, 1, True, 3),
        (9, 5, False, 0),
        (ROWS, 2, True, 0),
        (ROWS, 1, False, 4),
        (ROWS, 4, True, 5),
    ],
)
def test_a_step_equals_the_plain_pass(
    small: OnHost, together: torch.Tensor, rows: int, blocks: int, late: bool, seed: int
) -> None:
    """And a row has the same bits alone, in every batch, at every place of it and for every number of blocks.

    ``late``: copies come at the last moment; ``seed``: warps are held up at random.
    """
    step = small.step(blocks, late=late, seed=seed)
    logits = small.decoded.launch(step, PICKED[rows])
    small.decoded.check(logits, PICKED[rows], step)
    assert torch.equal(logits, together[PICKED[rows]])


def test_launches_leave_nothing_to_the_next(small: OnHost, together: torch.Tensor) -> None:
    step = small.step(3)
    for rows in (ROWS, 3, 9, ROWS):
        assert torch.equal(small.decoded.launch(step, PICKED[rows]), together[PICKED[rows]])
        assert (step.mail == -1).all()


@pytest.mark.parametrize("bad", [INFINITE, NAN])
def test_a_stream_that_is_not_finite_spoils_its_own_row_alone(small: OnHost, together: torch.Tensor, bad: int) -> None:
    """It ends, too: no bits of a number are those of what is not written yet."""
    step, picked = small.step(2, late=True), PICKED[9]
    for row in (1, 3):  # of two parts, and of one
        tokens = small.decoded.tokens[picked]
        tokens[row] = bad
        logits = small.decoded.launch(step, picked, tokens)
        others = [other for other in range(len(picked)) if other != row]
        assert not torch.isfinite(logits[row]).any()
        assert torch.equal(logits[others], together[picked][others])
        assert (step.mail == -1).all()


def test_long_products(tmp_path: Path) -> None:
    layout = Layout.of(DEEP, ROWS, CAPACITY, 9, 1 << 30)
    assert layout is not None
    assert layout.gate_tiles == 39, "with a unit for each of nine blocks"
    host = OnHost(tmp_path, Decoded(DEEP), layout)
    together = None
    for rows, blocks, seed in ((ROWS, 3, 0), (ROWS, 9, 1), (9, 2, 2), (3, 9, 3)):
        step = host.step(blocks, late=True, seed=seed)
        logits = host.decoded.launch(step, PICKED[rows])
        host.decoded.check(logits, PICKED[rows], step)
        together = logits if together is None else together
        assert torch.equal(logits, together[PICKED[rows]])


def test_a_layout_has_work_for_all_blocks_or_fits() -> None:
    layout = Layout.of(FULL.llm, ROWS, 1536, 132, 232_448)
    assert layout is not None
    assert -(-FULL.llm.mlp // 8 // layout.gate_tiles) <= 132, "in one go"
    assert layout.shared <= 232_448
    few = Layout.of(FULL.llm, ROWS, 1536, 20, 232_448)
    assert few is not None
    assert few.shared <= 232_448
    assert few.gate_tiles < -(-FULL.llm.mlp // 8 // 20), "in several"
    assert Layout.of(FULL.llm, ROWS, 1536, 20, 101_376) is None, "as on a GPU for the desk"


@pytest.mark.parametrize("device", [CPU, *[torch.device("cuda")] * torch.cuda.is_available()])
def test_what_the_kernel_does_not_take(device: torch.device) -> None:
    cases = [
        (torch.float32, SMALL, 4),
        (torch.float16, replace(SMALL, head_dim=32), 4),
        (torch.float16, replace(SMALL, heads=8, kv_heads=1), 4),
        (torch.float16, replace(SMALL, mlp=200), 4),
        (torch.float16, SMALL, WHOLE_ROWS + 1),
        *[(torch.float16, SMALL, 4)] * (device.type == "cpu"),
    ]
    for dtype, config, rows in cases:
        model = DecodeLLM(random_llm(config, device, dtype), 8)
        assert WholeStep.layout(model, SlotState(config, 2, 8, device, dtype), rows) is None


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize(
    "config", [SMALL, DEEP, replace(FULL.llm, layers=2, text_vocab=9)], ids=["small", "deep", "full"]
)
def test_on_the_device(config: LLMConfig, dtype: torch.dtype) -> None:
    decoded = Decoded(config, torch.device("cuda"), dtype)
    layout = WholeStep.layout(decoded.model, decoded.state, ROWS)
    if layout is None:
        pytest.skip("not a GPU that the kernel is for")
    step = WholeStep(decoded.model, decoded.state, layout)
    together = decoded.launch(step, PICKED[ROWS])
    for _ in range(5):
        for picked in PICKED.values():
            logits = decoded.launch(step, picked)
            decoded.check(logits, picked, step)
            assert torch.equal(logits, together[picked])
    picked = PICKED[9]
    for bad in (INFINITE, NAN):
        tokens = decoded.tokens[picked]
        tokens[1] = bad
        logits = decoded.launch(step, picked, tokens)
        assert not torch.isfinite(logits[1]).any()
        assert torch.equal(logits[2:], together[picked][2:])
        assert (step.mail == -1).all()
