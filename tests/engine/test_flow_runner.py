"""Packed flow: the same mel as `Flow.forward`, whatever shares a batch, is kept or recomputed."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import torch
from torch import Tensor

from cosyui.engine.flow_cache import PagePool
from cosyui.engine.flow_runner import FlowPiece, FlowRunner, FlowSequence
from cosyui.engine.render import PromptFeatures
from cosyui.model.config import load_config
from cosyui.model.cosyvoice3 import load_flow
from cosyui.model.flow import MAX_FRAMES, Flow

CHECKPOINT = Path(__file__).parent.parent / "data" / "oracle" / "checkpoint"
TOLERANCE = 1e-4
BLOCK = 25
"""Tokens of a mask block."""


def load(device: str, dtype: torch.dtype = torch.float32) -> Flow:
    return load_flow(load_config(CHECKPOINT), CHECKPOINT / "flow.pt", torch.device(device), dtype)


CUDA = pytest.param("cuda", marks=[pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")])


@pytest.fixture(scope="module", params=["cpu", CUDA])
def flow(request: pytest.FixtureRequest) -> Flow:
    torch.set_num_threads(1)
    torch.backends.cudnn.allow_tf32 = False
    return load(request.param)


def prompt_of(tokens: int, seed: int) -> PromptFeatures:
    g = torch.Generator().manual_seed(seed)
    return PromptFeatures(
        torch.randint(0, 6561, (tokens,), generator=g),
        torch.randn(2 * tokens, 80, generator=g),
        torch.randn(192, generator=g),
    )


def tokens_of(count: int, seed: int) -> list[int]:
    return torch.randint(0, 6561, (count,), generator=torch.Generator().manual_seed(seed)).tolist()


def plain(flow: Flow, prompt: PromptFeatures, tokens: list[int], *, stream: bool) -> Tensor:
    rows = torch.cat([prompt.speech_tokens, torch.tensor(tokens, dtype=torch.int64)])[None]
    inputs = (rows, torch.tensor([rows.shape[1]]), prompt.mel[None], torch.tensor([len(prompt.mel)]))
    with torch.inference_mode():
        device = flow.noise.device
        mel = flow(*(y.to(device) for y in inputs), prompt.speaker[None].to(device), streaming=stream)[0]
    return mel[0, :, len(prompt.mel) :]


def runner_of(flow: Flow, pages: int = 0) -> FlowRunner:
    page = PagePool.page_bytes(flow.config, flow.input_embedding.weight.dtype)
    return FlowRunner(flow, max_frames=2000, cache_bytes=pages * page)


def error(got: Tensor, expected: Tensor) -> float:
    assert got.shape == expected.shape
    return float((got - expected).abs().max())


def test_whole_segments_of_any_length_share_a_batch(flow: Flow) -> None:
    runner = runner_of(flow)
    cases = [(prompt_of(p, p), tokens_of(n, n)) for p, n in ((30, 41), (7, 1), (53, 90), (2, 64))]
    pieces = [FlowPiece(runner.open(prompt, stream=False), tokens, True) for prompt, tokens in cases]
    for mel, (prompt, tokens) in zip(runner.run(pieces), cases, strict=True):
        assert error(mel, plain(flow, prompt, tokens, stream=False)) < TOLERANCE


@pytest.mark.parametrize("pages", [0, 1, 4, 40])
def test_random_chunks_of_mixed_requests_join_to_one_streaming_solve(flow: Flow, pages: int) -> None:
    rng = random.Random(pages)
    runner = runner_of(flow, pages)
    prompts = [prompt_of(p, p) for p in (BLOCK, 34, 3)]
    cases: list[tuple[FlowSequence, PromptFeatures, list[int]]] = []
    for index in range(7):
        prompt = rng.choice(prompts)
        sequence = runner.open(prompt, stream=index % 3 != 0)
        cases.append((sequence, prompt, tokens_of(rng.randrange(1, 130), index)))
    mels: list[list[Tensor]] = [[] for _ in cases]
    waiting, there = set(range(len(cases))), [0] * len(cases)
    while waiting:
        picked = rng.sample(sorted(waiting), rng.randrange(1, len(waiting) + 1))
        pieces = []
        for index in picked:
            sequence, _, tokens = cases[index]
            step = rng.randrange(20, 80) if sequence.stream else len(tokens)
            there[index] = min(len(tokens), there[index] + step)
            pieces.append(FlowPiece(sequence, tokens[: there[index]], there[index] == len(tokens)))
        for index, piece, mel in zip(picked, pieces, runner.run(pieces), strict=True):
            mels[index].append(mel)
            if piece.final:
                waiting.remove(index)
                runner.close(piece.sequence)
    for (sequence, prompt, tokens), parts in zip(cases, mels, strict=True):
        assert error(torch.cat(parts, dim=1), plain(flow, prompt, tokens, stream=sequence.stream)) < TOLERANCE
    assert runner.pool.free == pages


def test_kept_stream_costs_its_new_frames_only(flow: Flow) -> None:
    runner = runner_of(flow, 20)
    prompt, tokens = prompt_of(BLOCK, 1), tokens_of(400, 1)
    sequence = runner.open(prompt, stream=True)
    costs = []
    for end in range(2 * BLOCK + 3, 400, 2 * BLOCK):
        piece = FlowPiece(sequence, tokens[:end], False)
        costs.append(runner.frames_of(piece))
        runner.run([piece])
        assert runner.frames_of(piece) == 0
    assert costs == [150] + [100] * (len(costs) - 1)


def test_second_stream_of_a_prompt_starts_behind_it(flow: Flow) -> None:
    runner = runner_of(flow, 8)
    prompt, tokens = prompt_of(2 * BLOCK + 3, 1), tokens_of(60, 1)
    first = runner.open(prompt, stream=True)
    runner.run([FlowPiece(first, tokens[:BLOCK], False)])
    runner.close(first)
    second = runner.open(prompt, stream=True)
    piece = FlowPiece(second, tokens, True)
    assert runner.frames_of(piece) == 2 * (len(prompt.speech_tokens) + 60) - 2 * 2 * BLOCK
    assert error(runner.run([piece])[0], plain(flow, prompt, tokens, stream=True)) < TOLERANCE
    # Another prompt gets the room when it needs it.
    runner.close(second)
    third = runner.open(prompt_of(8 * BLOCK, 2), stream=True)
    runner.run([FlowPiece(third, tokens[: BLOCK + 3], False)])
    assert len(third.pages) == 8


def test_pages_are_given_back_when_a_batch_fails(flow: Flow, monkeypatch: pytest.MonkeyPatch) -> None:
    runner = runner_of(flow, 8)
    sequence = runner.open(prompt_of(10, 1), stream=True)
    piece = FlowPiece(sequence, tokens_of(80, 1), False)

    def fail(_: object) -> Tensor:
        raise torch.OutOfMemoryError

    with monkeypatch.context() as patch:
        patch.setattr(runner, "_mel", fail)
        with pytest.raises(torch.OutOfMemoryError):
            runner.run([piece])
    assert runner.pool.free == 8
    expected = plain(flow, sequence.prompt, list(piece.tokens), stream=True)
    mels = runner.run([piece]) + runner.run([piece._replace(final=True)])
    assert error(torch.cat(mels, dim=1), expected) < TOLERANCE


def test_segment_is_taken_over_from_where_it_is(flow: Flow) -> None:
    runner = runner_of(flow)
    prompt, tokens = prompt_of(BLOCK, 3), tokens_of(70, 3)
    sequence = runner.open(prompt, stream=True, given=50)
    mel = runner.run([FlowPiece(sequence, tokens, True)])[0]
    assert error(mel, plain(flow, prompt, tokens, stream=True)[:, 50:]) < TOLERANCE


def test_lanes_share_sequences(flow: Flow) -> None:
    runner = runner_of(flow, 8)
    lane = runner.lane(200)
    prompt, tokens = prompt_of(BLOCK, 3), tokens_of(70, 3)
    sequence = runner.open(prompt, stream=True)
    mels = lane.run([FlowPiece(sequence, tokens[: BLOCK + 3], False)]) + runner.run([FlowPiece(sequence, tokens, True)])
    assert error(torch.cat(mels, dim=1), plain(flow, prompt, tokens, stream=True)) < TOLERANCE


def test_refusals(flow: Flow) -> None:
    runner = runner_of(flow)
    sequence = runner.open(prompt_of(5, 1), stream=False)
    with pytest.raises(ValueError, match="all of its tokens"):
        runner.run([FlowPiece(sequence, [1, 2, 3, 4], False)])
    with pytest.raises(ValueError, match="300 s"):
        runner.frames_of(FlowPiece(sequence, [1] * MAX_FRAMES, True))
    piece = FlowPiece(sequence, [1, 2], True)
    with pytest.raises(ValueError, match="only once"):
        runner.run([piece, piece])
    assert runner.run([]) == []
    assert runner.run([FlowPiece(runner.open(prompt_of(5, 1), stream=True), [1, 2], False)])[0].shape == (80, 0)


def test_what_is_added_to_the_residual_stream_may_exceed_float16(flow: Flow) -> None:
    device = flow.noise.device.type
    large, small = load(device), load(device, torch.float16)
    for model in (large, small):
        for block in model.estimator.transformer_blocks:
            for layer in (block.attn.to_out[0], block.ff.ff[2]):  # type: ignore[union-attr,index]
                layer.weight *= 2e4
            block.attn_norm.linear.weight *= 1e-3  # type: ignore[union-attr,operator]
            block.attn_norm.linear.bias *= 1e-3  # type: ignore[union-attr,operator]
    prompt, tokens = prompt_of(10, 1), tokens_of(20, 1)
    expected = plain(large, prompt, tokens, stream=False)
    assert not plain(small, prompt, tokens, stream=False).isfinite().all()
    runner = runner_of(small)
    mel = runner.run([FlowPiece(runner.open(prompt, stream=False), tokens, True)])[0]
    assert mel.isfinite().all()
    assert error(mel, expected) < 0.05 * float(expected.abs().max())


@pytest.mark.parametrize("modulation", ["keep", "host"])
def test_module_works_beside_the_runner(modulation: str) -> None:
    flow = load("cpu")
    prompt, tokens = prompt_of(10, 1), tokens_of(20, 1)
    before = plain(flow, prompt, tokens, stream=False)
    runner = FlowRunner(flow, max_frames=500, modulation=modulation)  # type: ignore[arg-type]
    assert torch.equal(plain(flow, prompt, tokens, stream=False), before)
    attention = flow.estimator.transformer_blocks[0].attn
    assert attention.to_k.weight.untyped_storage().data_ptr() == runner.packed.blocks[0].qkv.data_ptr()  # type: ignore[union-attr,operator]


def test_dropped_weights_are_not_needed() -> None:
    flow = load("cpu")
    prompt, tokens = prompt_of(10, 1), tokens_of(20, 1)
    expected = plain(flow, prompt, tokens, stream=False)
    runner = FlowRunner(flow, max_frames=500, modulation="drop")
    assert flow.estimator.norm_out.linear.weight.numel() == 0
    assert error(runner.run([FlowPiece(runner.open(prompt, stream=False), tokens, True)])[0], expected) < TOLERANCE
