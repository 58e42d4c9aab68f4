"""Slots give every request the tokens that it would get alone, whoever joins and leaves around it."""

from __future__ import annotations

import random
from copy import deepcopy
from pathlib import Path

import pytest
import torch

from cosyui.bench.make_checkpoint import TINY
from cosyui.engine.decode import LengthRule, Sampler, decode, input_rows
from cosyui.engine.slots import SlotDecoder
from cosyui.model.config import load_config
from cosyui.model.cosyvoice3 import load_llm
from cosyui.model.llm import SpeechLM

ORACLE = Path(__file__).parent.parent / "data" / "oracle" / "checkpoint"
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def llm() -> SpeechLM:
    torch.set_num_threads(1)
    llm = load_llm(load_config(ORACLE), ORACLE / "llm.pt", CPU, torch.float32)
    llm.llm_decoder.weight[llm.config.speech_token_size :] *= 2.5  # so that some requests end by a stop id
    return llm


class Case:
    """A request and what decoding it alone gives."""

    def __init__(self, llm: SpeechLM, seed: int, maximum: int | None = None) -> None:
        rng = random.Random(seed)
        self.seed = seed
        self.text = [rng.randrange(llm.config.text_vocab) for _ in range(rng.randrange(1, 9))]
        self.speech = [rng.randrange(llm.config.speech_token_size) for _ in range(rng.choice([0, 5, 30]))]
        most = rng.randrange(1, 40) if maximum is None else maximum
        self.rule = LengthRule(min(rng.choice([0, 0, 3]), most), most)
        rows = input_rows(llm, self.text, self.speech)
        self.expected = list(decode(llm, rows, self.rule, Sampler(llm.config.sampling, seed)))

    def join(self, decoder: SlotDecoder) -> int:
        return decoder.join(self.text, self.speech, self.rule, self.seed)


@pytest.fixture(scope="module")
def cases(llm: SpeechLM) -> list[Case]:
    return [Case(llm, seed) for seed in range(24)]


def run_all(decoder: SlotDecoder, cases: list[Case], seed: int, leave: float = 0.0) -> int:
    """Join cases at random, some of which leave early; all others must get their tokens. Returns how many did."""
    rng, waiting, running, done = random.Random(seed), list(cases), {}, 0
    while waiting or running:
        while waiting and decoder.free and rng.random() < 0.5:
            case = waiting.pop()
            running[case.join(decoder)] = (case, [])
        for _ in range(rng.randrange(3)):
            decoder.launch()
        for slot, fresh in decoder.poll(wait=rng.random() < 0.5).items():
            case, tokens = running[slot]
            tokens += fresh.tokens
            assert not fresh.bad
            assert tokens == case.expected[: len(tokens)]
            if fresh.ended:
                assert tokens == case.expected
                decoder.leave(slot)
                del running[slot]
                done += 1
        for slot in [slot for slot in running if rng.random() < leave]:
            decoder.leave(slot)
            waiting += [running.pop(slot)[0]] * (rng.random() < 0.5)
    assert decoder.poll() == {}
    return done


def test_one_request_alone(llm: SpeechLM, cases: list[Case]) -> None:
    decoder = SlotDecoder(llm, 1, 96)
    assert run_all(decoder, cases[:6], 0) == 6
    assert decoder.free == 1


def test_joins_and_leaves_change_nobodys_tokens(llm: SpeechLM, cases: list[Case]) -> None:
    assert any(0 < len(case.expected) < case.rule.maximum for case in cases), "some must end by a stop id"
    decoder = SlotDecoder(llm, 5, 96)
    assert run_all(decoder, cases, 1) == len(cases)
    assert run_all(decoder, cases, 2, leave=0.05) > 0
    assert decoder.free == 5


def test_the_plain_model_and_another_decoder_go_on_working(llm: SpeechLM, cases: list[Case]) -> None:
    case, first, second = cases[3], SlotDecoder(llm, 2, 96), SlotDecoder(llm, 2, 96)
    assert run_all(first, [case], 0) == run_all(second, [case], 0) == 1
    assert first.model.layers[0].qkv.data_ptr() == second.model.layers[0].qkv.data_ptr()
    projection = llm.qwen.layers[0].self_attn.k_proj  # type: ignore[union-attr]
    fused = first.model.layers[0].qkv
    assert projection.weight.untyped_storage().data_ptr() == fused.untyped_storage().data_ptr()
    rows = input_rows(llm, case.text, case.speech)
    assert list(decode(llm, rows, case.rule, Sampler(llm.config.sampling, case.seed))) == case.expected


def test_what_does_not_fit_is_refused(llm: SpeechLM) -> None:
    decoder = SlotDecoder(llm, 1, 32)
    with pytest.raises(ValueError, match="32 positions, 34"):
        decoder.join([1] * 12, [2] * 10, LengthRule(0, 10), 0)
    assert decoder.free == 1
    decoder.join([1] * 12, [2] * 8, LengthRule(0, 10), 0)
    with pytest.raises(ValueError, match="no slot"):
        decoder.join([1], [], LengthRule(0, 4), 0)


def test_a_request_of_no_tokens_ends_at_once(llm: SpeechLM) -> None:
    decoder = SlotDecoder(llm, 1, 32)
    slot = decoder.join([1], [], LengthRule(0, 0), 0)
    assert not decoder.launch()
    assert decoder.poll(wait=True) == {slot: ([], True, False)}
    assert decoder.poll() == {}


def test_a_slot_left_in_flight_does_not_leak_into_the_next_request(llm: SpeechLM, cases: list[Case]) -> None:
    decoder, case = SlotDecoder(llm, 1, 96), cases[5]
    old = decoder.join([3, 4], [], LengthRule(20, 20), 1)
    assert decoder.launch()
    decoder.leave(old)
    assert run_all(decoder, [case], 0) == 1


def test_a_logit_that_is_not_finite_stops_its_row_alone(llm: SpeechLM, cases: list[Case]) -> None:
    broken = deepcopy(llm)
    poisoned = next(token for token in range(99) if all(token not in case.text for case in cases))
    broken.qwen.embed_tokens.weight[poisoned] = torch.nan
    decoder, case = SlotDecoder(broken, 2, 96), cases[7]
    bad = decoder.join([poisoned], [], LengthRule(0, 9), 0)
    good = case.join(decoder)
    tokens, ended = [], set()
    while decoder.launch():
        for slot, fresh in decoder.poll(wait=True).items():
            assert fresh.bad == (slot == bad)
            if slot == good:
                tokens += fresh.tokens
            if fresh.ended:
                ended.add(slot)
    assert tokens == case.expected
    assert ended == {good, bad}


def test_bytes_cover_what_is_allocated(llm: SpeechLM) -> None:
    decoder = SlotDecoder(llm, 3, 64)
    state = vars(decoder.steps)["state"]
    held = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in vars(state).values()}
    assert sum(held.values()) <= SlotDecoder.nbytes(llm.config, 3, 64, torch.float32)
    full = SlotDecoder.nbytes(TINY.llm, 64, 1024, torch.bfloat16)
    assert full > SlotDecoder.nbytes(TINY.llm, 64, 512, torch.bfloat16)
