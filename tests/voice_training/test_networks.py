"""The training wrappers compute what the engine will: filter bank, weight norm names, text ids, toy training."""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn import functional

from cosyui.model.checkpoint import fold_weight_norm
from cosyui.model.flow import Flow
from cosyui.model.llm import SpeechLM
from cosyui.model.vocoder import CausalHiFT
from cosyui.speech.features import kaldi_fbank
from cosyui.voice_training.discriminators import Discriminators, fool_loss, judge_loss
from cosyui.voice_training.export import to_weight_norm
from cosyui.voice_training.fbank import fbank
from cosyui.voice_training.layout import EOS, SOS, TASK, model_config, text_tokenizer
from cosyui.voice_training.run import Plan, Run
from cosyui.voice_training.starting_weights import init_flow, init_llm, init_vocoder, spread_digits
from cosyui.voice_training.train_flow import Batch as FlowBatch
from cosyui.voice_training.train_flow import loss_of, random_draws
from cosyui.voice_training.train_llm import LLMTrainer

EXACT = torch.autocast("cpu", torch.bfloat16, enabled=False)


def test_batched_fbank_equals_kaldi() -> None:
    generator = torch.Generator().manual_seed(0)
    waves = torch.randn(2, 16_000, generator=generator) * torch.tensor([[0.3], [0.01]])
    batched = fbank(waves)
    for row, wave in zip(batched, waves, strict=True):
        np.testing.assert_allclose(row.numpy(), kaldi_fbank(wave.numpy()), atol=2e-3)


def test_weight_norm_names_fold_back_to_the_same_weights() -> None:
    config = dataclasses.replace(model_config().vocoder, base_channels=16, f0_channels=8)
    vocoder = CausalHiFT(config)
    init_vocoder(vocoder)
    plain = vocoder.state_dict()
    named = to_weight_norm(plain)
    assert "conv_pre.parametrizations.weight.original0" in named
    assert "source_downs.0.weight" in named  # no weight norm in a released file
    assert named["ups.0.parametrizations.weight.original0"].shape == (8, 1, 1)
    folded = fold_weight_norm(named)
    assert folded.keys() == plain.keys()
    for name, value in plain.items():
        torch.testing.assert_close(folded[name].float(), value, rtol=1e-5, atol=1e-7)


def test_special_rows_are_those_of_the_config() -> None:
    llm = model_config().llm
    assert tuple(range(llm.speech_token_size, llm.speech_token_size + 3)) == (SOS, EOS, TASK)
    assert text_tokenizer().size <= llm.text_vocab


def tiny_llm() -> SpeechLM:
    config = dataclasses.replace(
        model_config().llm,
        hidden=32,
        layers=2,
        heads=2,
        kv_heads=1,
        head_dim=16,
        mlp=48,
        text_vocab=40,
        speech_vocab=60,
        speech_token_size=50,
    )
    torch.manual_seed(0)
    model = SpeechLM(config)
    init_llm(model)
    return model


def toy_rows() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    kind = torch.ones(4, 12, dtype=torch.int64)
    kind[:, 1:5] = 0
    ids = torch.arange(48).reshape(4, 12) % 30
    targets = torch.roll(ids, -1, 1)
    targets[:, :5] = -100
    return kind, ids, targets


def toy_loss(model: LLMTrainer) -> torch.Tensor:
    logits, targets = model.logits(*toy_rows(), EXACT)
    return functional.cross_entropy(logits, targets)


def plan(folder: Path, **more: object) -> Plan:
    base = Plan("toy", folder, time.time() + 600, 1e-2, max_steps=3, warm_up=1)
    return dataclasses.replace(base, **more)  # type: ignore[arg-type]


def test_three_steps_lower_the_loss_of_a_tiny_llm(tmp_path: Path) -> None:
    model = LLMTrainer(tiny_llm(), dropout=0.0)
    before = float(toy_loss(model).detach())
    run = Run(model.lm, plan(tmp_path))
    while not run.done():
        run.update(toy_loss(model))
    assert run.step == 3
    assert float(toy_loss(model).detach()) < before - 0.1


def test_dropout_works_in_training_alone() -> None:
    with_dropout, without = LLMTrainer(tiny_llm(), 0.5), LLMTrainer(tiny_llm(), 0.0)
    kind, ids, _ = toy_rows()
    torch.testing.assert_close(with_dropout.eval()(kind, ids), without.eval()(kind, ids))
    # With the embedded rows alone dropped, equal seeds would give equal results: the hooks must drop more.
    torch.manual_seed(3)
    hooked = with_dropout.train()(kind, ids)
    without.dropout = 0.5
    torch.manual_seed(3)
    assert not torch.allclose(hooked, without.train()(kind, ids))


def test_a_run_goes_on_where_it_was_saved(tmp_path: Path) -> None:
    first = LLMTrainer(tiny_llm(), 0.0)
    run = Run(first.lm, plan(tmp_path, ema=0.9))
    for _ in range(2):
        run.update(toy_loss(first))
    run.progress.best = 1.5
    run.save()
    second = LLMTrainer(tiny_llm(), 0.0)
    resumed = Run(second.lm, plan(tmp_path, ema=0.9))
    assert (resumed.step, resumed.progress.best) == (2, 1.5)
    for model, its_run in ((first, run), (second, resumed)):
        its_run.update(toy_loss(model))
    # Later learning rates may differ by the seconds between the two; the state before the step may not.
    for mine, theirs in zip(run.averages, resumed.averages, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-3, atol=1e-5)


def test_average_is_saved_and_a_bad_batch_changes_nothing(tmp_path: Path) -> None:
    model = LLMTrainer(tiny_llm(), 0.0)
    run = Run(model.lm, plan(tmp_path))
    run.update(toy_loss(model))
    weights = [p.detach().clone() for p in model.lm.parameters()]
    run.update(toy_loss(model) * float("nan"))
    assert run.progress.skipped == 1
    assert all(torch.equal(a, b) for a, b in zip(weights, model.lm.parameters(), strict=True))
    run.update(toy_loss(model))
    copy = tiny_llm()
    run.averaged_into(copy)
    run.save()
    saved = torch.load(tmp_path / "toy.pt", weights_only=True)
    for name, value in copy.named_parameters():
        assert saved[name].dtype == torch.float16
        torch.testing.assert_close(saved[name].float(), value.detach(), rtol=1e-3, atol=1e-4)
    assert any(not torch.equal(a, b) for a, b in zip(copy.parameters(), model.lm.parameters(), strict=True))


def test_only_lower_validation_is_kept(tmp_path: Path) -> None:
    run = Run(tiny_llm(), plan(tmp_path))
    assert [run.keep_best(value) for value in (2.0, 2.5, 1.0)] == [True, False, True]


def test_flow_starts_at_zero_velocity_and_judges_nothing_in_the_prompt() -> None:
    config = dataclasses.replace(model_config().flow, dim=32, depth=1, heads=2, dim_head=16, pre_lookahead_channels=8)
    flow = Flow(config)
    init_flow(flow)
    torch.manual_seed(0)
    batch = FlowBatch(torch.randn(2, 80, 20), torch.randint(0, 6561, (2, 10)), torch.randn(2, 192))
    draws = dataclasses.replace(random_draws(batch), prompt=torch.tensor([6, 6]))
    loss = loss_of(flow, batch, draws, None, EXACT)
    wanted = (batch.mel - draws.noise)[:, :, 6:].pow(2).mean()  # a velocity of zero
    torch.testing.assert_close(loss, wanted, rtol=1e-4, atol=1e-4)


def test_codes_that_share_digits_begin_near_each_other() -> None:
    torch.manual_seed(0)
    weight = torch.zeros(6561, 64)
    spread_digits(weight, 1.0)
    near = (weight[0] - weight[1]).norm()  # one digit apart by one
    far = (weight[0] - weight[6560]).norm()  # all digits apart by two
    assert near < 0.5 * far


def test_discriminators_tell_and_can_be_fooled_only_through_the_wave() -> None:
    torch.manual_seed(0)
    judges = Discriminators()
    true, made = torch.randn(1, 4096), torch.randn(1, 4096, requires_grad=True)
    loss, features = judge_loss(judges, true, made)
    loss.backward()
    assert made.grad is None
    assert all(p.grad is not None for p in judges.parameters())
    judges.zero_grad()
    adversarial, matching = fool_loss(judges, made, features)
    (adversarial + matching).backward()
    assert made.grad is not None
    assert all(p.grad is None for p in judges.parameters())
    assert all(p.requires_grad for p in judges.parameters())
    _, same = fool_loss(judges, true, features)
    assert float(same) == pytest.approx(0.0, abs=1e-4)
