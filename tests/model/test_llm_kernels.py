"""The kernels of a decode step against plain operations: on CUDA, or anywhere under Triton's interpreter."""

from __future__ import annotations

import os
import random
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")
pytest.importorskip("triton")

from cosyui.bench.make_checkpoint import TINY
from cosyui.engine.decode import LengthRule
from cosyui.engine.slot_graphs import KernelSteps, best_step
from cosyui.engine.slot_steps import PlainSteps
from cosyui.engine.slots import SlotDecoder
from cosyui.model.config import LLMConfig, SamplingConfig
from cosyui.model.kernels import llm_prefill, llm_sampler
from cosyui.model.kernels.llm_layers import LayeredStep
from cosyui.model.kernels.llm_tuning import NARROW, WIDE, Tuning
from cosyui.model.kernels.llm_whole import WholeStep
from cosyui.model.kernels.nvrtc import CompileError
from cosyui.model.llm import SpeechLM
from cosyui.model.llm_decode import BAD, ENDED, STREAM_SCALE, DecodeLLM, SlotState, StepRows
from cosyui.model.sampler import sample
from tests.model.random_llm import random_llm, tolerance

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
DTYPES = (torch.float32, torch.float16, *[torch.bfloat16] * torch.cuda.is_available())
"""Triton's interpreter multiplies the bits of bfloat16 as integers."""
TINY_LLM = replace(TINY.llm, text_vocab=50, speech_token_size=1000, speech_vocab=1200)
ODD = replace(TINY.llm, hidden=96, heads=6, mlp=148, text_vocab=50, speech_token_size=300, speech_vocab=331)
"""No size but the head's is a power of two."""


def kernel_steps(
    llm: SpeechLM,
    slots: int,
    capacity: int,
    *,
    narrow: Tuning = NARROW,
    wide: Tuning = WIDE,
    group: int = 4,
    graphs: bool = False,
) -> KernelSteps:
    model = DecodeLLM(llm, capacity)
    state = SlotState(llm.config, slots + 1, capacity, DEVICE, model.dtype)
    step = LayeredStep(model, state, slots, narrow=narrow, wide=wide)
    return KernelSteps(model, state, group=group, graphs=graphs, step=step)


SMALL = NARROW._replace(
    split=16,
    programs=2,
    gate=NARROW.gate._replace(columns=21),
    down=NARROW.down._replace(inner=16, splits=3),
    logits=NARROW.logits._replace(columns=100),
)
"""Several splits, programs and turns of every loop at these sizes."""


def step(steps: KernelSteps, rows: int) -> None:
    """From the state of the rows' slots to ``logits``."""
    llm_sampler.embed(steps.state, steps.codes[steps.buckets[-1]][0], steps.entry, steps.stream_rows.first(rows))
    steps.step.launch(rows, steps.logits[:rows])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("config", [TINY_LLM, ODD], ids=["tiny", "odd"])
def test_a_step_equals_the_plain_pass(config: LLMConfig, dtype: torch.dtype) -> None:
    """Logits of rows at ragged positions in slots out of order, and the keys and values that they leave."""
    llm = random_llm(config, DEVICE, dtype)
    steps = kernel_steps(llm, 20, 96, narrow=SMALL)
    model, state = steps.model, steps.state
    state.keys.normal_()
    state.values.normal_()
    slots, positions = [3, 0, 17, 8, 5], [0, 15, 16, 70, 95]
    tokens = torch.tensor([4, 299, 2, 9, 11], device=DEVICE)
    where = torch.tensor(slots, device=DEVICE)
    state.position[where], state.token[where] = torch.tensor(positions).int().to(DEVICE), tokens.int()
    steps.rows[: len(slots)] = where.int()
    before = state.keys.clone(), state.values.clone()
    expected = model.step(state, slots, positions, tokens)
    written = state.keys.clone(), state.values.clone()
    state.keys.copy_(before[0])
    state.values.copy_(before[1])
    step(steps, 5)
    scale = expected.abs().max()
    assert (steps.logits[:5] - expected).abs().max() < tolerance(dtype) * scale
    assert (state.keys - written[0]).abs().max() < 10 * tolerance(dtype)
    assert (state.values - written[1]).abs().max() < 10 * tolerance(dtype)
    assert isinstance(steps.step, LayeredStep)
    assert not steps.step.scratch.counter.any()
    assert not steps.step.split.counter.any()


def test_a_row_does_not_depend_on_the_batch() -> None:
    """Bit for bit, in any place of any batch."""
    llm = random_llm(replace(ODD, layers=1), DEVICE, torch.float16)
    wide = SMALL._replace(
        qkv=WIDE.qkv,
        gate=SMALL.gate._replace(columns=40, tiles=4),
        down=SMALL.down._replace(tiles=4),
        logits=WIDE.logits,
    )
    steps = kernel_steps(llm, 40, 64, narrow=SMALL, wide=wide)
    steps.state.keys.normal_()
    steps.state.values.normal_()
    steps.state.position.copy_(torch.randint(0, 64, steps.state.position.shape))
    steps.state.token.copy_(torch.randint(0, 300, steps.state.token.shape))
    steps.rows.copy_(torch.arange(40))
    step(steps, 40)
    together = steps.logits.clone()
    for index in (0, 19, 39):
        steps.rows[0] = index
        step(steps, 1)
        assert torch.equal(steps.logits[0], together[index])


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_prefill_equals_the_plain_pass(dtype: torch.dtype) -> None:
    llm = random_llm(ODD, DEVICE, dtype)
    steps = kernel_steps(llm, 3, 32)
    model, state = steps.model, steps.state
    rows = torch.zeros(20, ODD.hidden, device=DEVICE, dtype=dtype)
    rows[:13] = model.table[:13]
    facts = torch.tensor([2, 13, 1, 9, *torch.rand(64).tolist()], dtype=torch.float64, device=DEVICE)
    expected = model.logits(model.prefill(state, torch.tensor([2], device=DEVICE), rows)[12:13])
    written = state.keys[:, 2, :, :13].clone(), state.values[:, 2, :, :13].clone()
    state.keys.zero_()
    state.values.zero_()
    logits = llm_prefill.prefill(model, state, facts, rows)
    assert (logits - expected).abs().max() < tolerance(dtype) * expected.abs().max()
    assert (state.keys[:, 2, :, :13] - written[0]).abs().max() < 10 * tolerance(dtype)
    assert (state.values[:, 2, :, :13] - written[1]).abs().max() < 10 * tolerance(dtype)
    llm_prefill.open_slot(facts, state, steps.first_row.slot)
    assert torch.equal(state.uniforms[2].flatten(), facts[4:])
    found = [int(t[2]) for t in (state.position, state.minimum, state.maximum, state.count, state.active)]
    assert found == [12, 1, 9, 0, 1]
    assert steps.first_row.slot.tolist() == [2]
    assert (state.history[2] == -1).all()


def test_requests_get_the_same_tokens_as_from_plain_operations() -> None:
    llm = random_llm(ODD, DEVICE, torch.float32)
    rng = random.Random(5)
    requests = []
    for seed in range(6):
        text = [rng.randrange(50) for _ in range(rng.randrange(1, 6))]
        requests.append((text, [7] * rng.randrange(4), LengthRule(2, rng.randrange(2, 12)), seed))
    plain, fast = SlotDecoder(llm, 6, 40), SlotDecoder(llm, 4, 40, steps=kernel_steps(llm, 4, 40, group=3, graphs=True))
    assert isinstance(plain.steps, PlainSteps | KernelSteps)
    assert results(fast, requests) == results(plain, requests)


def results(decoder: SlotDecoder, requests: list[tuple[list[int], list[int], LengthRule, int]]) -> list[list[int]]:
    out: list[list[int]] = [[] for _ in requests]
    waiting, running = list(enumerate(requests)), {}
    while waiting or running:
        while waiting and decoder.free:
            index, request = waiting.pop(0)
            running[decoder.join(*request)] = index
        decoder.launch()
        for slot, fresh in decoder.poll(wait=True).items():
            out[running[slot]] += fresh.tokens
            if fresh.ended:
                decoder.leave(slot)
                del running[slot]
    return out


class Draws:
    """The sampling kernel on given logits: each row a slot with its own history and numbers."""

    def __init__(self, logits: torch.Tensor, history: torch.Tensor, uniforms: torch.Tensor, config: LLMConfig) -> None:
        rows = len(logits)
        self.state = SlotState(config, rows, 2, DEVICE, torch.float32)
        self.state.history.copy_(history)
        self.state.uniforms[:, 0] = uniforms.to(DEVICE)
        self.state.active.fill_(1)
        self.state.maximum.fill_(9)
        self.codes = torch.zeros(rows, dtype=torch.int32, device=DEVICE)
        self.stream = StepRows.empty(config, rows, 4, DEVICE, torch.float16)
        self.stream.slot.copy_(torch.arange(rows))
        self.entry = llm_sampler.Entry(
            torch.randn(config.speech_vocab, config.hidden).to(DEVICE),
            torch.randn(config.hidden).to(DEVICE),
            *torch.randn(2, 2, config.head_dim // 2).to(DEVICE),
        )
        self.short = torch.zeros(rows, 2 * llm_sampler.SHORT, dtype=torch.int32, device=DEVICE)
        self.arguments = logits.to(DEVICE), self.state, config

    def run(self) -> torch.Tensor:
        llm_sampler.sample(*self.arguments, self.codes, self.short, self.entry, self.stream)
        return self.codes.cpu()


def sampling_config(sampling: SamplingConfig, size: int) -> LLMConfig:
    return replace(TINY.llm, layers=1, speech_vocab=size, speech_token_size=size - 4, sampling=sampling)


@pytest.mark.parametrize("sampling", [SamplingConfig(0.8, 25, 10, 0.1), SamplingConfig(0.6, 3, 4, 0.5)])
def test_draws_equal_the_plain_sampler(sampling: SamplingConfig) -> None:
    """Rows flat and peaked, with ties, with what was drawn just before, and with numbers at the edges."""
    size, rows = 203, 48
    generator = torch.Generator().manual_seed(1)
    sharp = torch.linspace(0.2, 6, rows)[:, None]
    logits = torch.randn(rows, size, generator=generator) * sharp
    logits[::5] = logits[::5].round()
    history = torch.randint(0, size, (rows, sampling.win_size), generator=generator)
    history[::2, 1] = logits[::2].argmax(-1)
    uniforms = torch.rand(rows, 2, generator=generator, dtype=torch.float64)
    uniforms[3], uniforms[4] = 0.0, 1 - 2**-53
    draws = Draws(logits, history, uniforms, sampling_config(sampling, size))
    expected = sample(logits, history, uniforms, sampling)
    stop = expected >= size - 4
    assert stop.any()
    assert torch.equal(draws.run().long(), expected.masked_fill(stop, ENDED))
    assert draws.state.count.cpu().tolist() == (~stop).int().tolist()
    assert torch.equal(draws.state.active.cpu().bool(), ~stop)
    good = expected[~stop].to(DEVICE)
    rows, entry = draws.stream, draws.entry
    assert torch.equal(rows.x[~stop], entry.table[good])
    assert torch.equal(rows.h[~stop], (entry.table[good] * entry.norm / STREAM_SCALE).half())
    assert torch.allclose(rows.squares.sum(1), rows.x.square().sum(1))
    assert rows.at.cpu().tolist() == (~stop).int().tolist()
    assert torch.equal(rows.turn, torch.cat([entry.cos, entry.sin], 1)[rows.at.long()])
    assert torch.equal(draws.state.history[~stop, 0].long(), good)


def test_before_the_minimum_no_stop_is_drawn_and_a_bad_row_is_told() -> None:
    config = sampling_config(SamplingConfig(0.8, 25, 10, 0.1), 40)
    logits = torch.zeros(4, 40)
    logits[:, 36:] = 50.0
    logits[1, 3] = torch.inf
    logits[2, 3] = torch.nan
    draws = Draws(logits, torch.full((4, 10), -1), torch.full((4, 2), 0.5), config)
    draws.state.minimum.fill_(1)
    draws.state.active[3] = 0
    first = draws.run().tolist()
    assert 0 <= first[0] < 36
    assert first[1:] == [BAD, BAD, -1]
    draws.codes.zero_()
    assert draws.run().tolist() == [ENDED, -1, -1, -1]


def test_float16_holds_where_the_plain_product_overflows() -> None:
    """An MLP whose SiLU(gate) * up is beyond 65504: the plain pass breaks, these give what float32 gives."""
    config = replace(ODD, layers=1)
    llm = random_llm(config, DEVICE, torch.float32)
    layer = llm.qwen.layers[0]
    layer.mlp.gate_proj.weight[5], layer.mlp.up_proj.weight[5] = 0.0, 0.0
    layer.mlp.gate_proj.weight[5, 0], layer.mlp.up_proj.weight[5, 0] = 150.0, 150.0
    layer.post_attention_layernorm.weight[0] = 4.0
    layer.mlp.down_proj.weight[:, 5] *= 0.02
    llm.speech_embedding.weight[:, 0] = 1.0
    results = {}
    for dtype in (torch.float32, torch.float16):
        steps = kernel_steps(llm.to(dtype), 2, 32)
        steps.rows[0], tokens = 0, torch.tensor([8], device=DEVICE)
        steps.state.token[0], steps.state.position[0] = 8, 0
        step(steps, 1)
        results[dtype] = steps.logits[:1].clone(), steps.model.step(steps.state, [0], [0], tokens)
        assert torch.isfinite(steps.logits[:1]).all()
    x = F.rms_norm(steps.model.table[tokens].float(), (config.hidden,))
    assert x[0, 0] * 4 * 150 > 256, "the case must overflow"
    plain = llm.logits(llm(llm.embed_speech(tokens)[None])[0])
    assert not torch.isfinite(plain).all()
    scale = results[torch.float32][0].abs().max()
    for fast in results[torch.float16]:
        assert (fast - results[torch.float32][0]).abs().max() < 2e-2 * scale


def test_without_the_whole_step_its_kernels_run_one_by_one(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """On a device, of a type or of a size that it does not take; or where nothing compiles it, which is logged."""
    model = DecodeLLM(random_llm(ODD, DEVICE, torch.float32), 8)
    state = SlotState(ODD, 3, 8, DEVICE, model.dtype)
    steps = KernelSteps(model, state, graphs=False)
    assert isinstance(steps.step, LayeredStep)
    assert not steps.alone
    assert not caplog.records

    def broken(*_: object) -> None:
        raise CompileError("no compiler")

    monkeypatch.setattr(WholeStep, "layout", staticmethod(lambda *_: "some"))
    monkeypatch.setattr(WholeStep, "__init__", broken)
    assert isinstance(best_step(model, state, 2), LayeredStep)
    assert "no compiler" in caplog.text


def test_sizes_that_the_kernels_take() -> None:
    assert KernelSteps.fits(ODD)
    assert KernelSteps.fits(replace(ODD, hidden=1040))
    assert not KernelSteps.fits(replace(ODD, head_dim=24))
