"""Streams of mel pieces give the very samples of the whole mel, however they are cut and put together."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
import torch
from torch import Tensor

from cosyui.engine.vocoder_runner import VocoderPiece, VocoderRunner, nbytes
from cosyui.model.config import load_config
from cosyui.model.cosyvoice3 import load_vocoder
from cosyui.model.vocoder import CausalHiFT

CHECKPOINT = Path(__file__).parent.parent / "data" / "oracle" / "checkpoint"
NEAR = 1e-4


@pytest.fixture(scope="module")
def vocoder() -> CausalHiFT:
    torch.set_num_threads(1)
    return load_vocoder(load_config(CHECKPOINT), CHECKPOINT / "hift.pt", torch.device("cpu"), torch.float32)


def mel_of(frames: int, seed: int) -> Tensor:
    """(80, frames): louder and softer parts of a random walk."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(80, frames, generator=generator).cumsum(1) * 0.3 - 2


def whole(vocoder: CausalHiFT, mel: Tensor) -> Tensor:
    return vocoder(mel[None])[0][0]


def streamed(runner: VocoderRunner, mel: Tensor, cuts: list[int]) -> list[Tensor]:
    state, waves = runner.open(), []
    edges = [0, *cuts, mel.shape[1]]
    for index, (begin, end) in enumerate(pairwise(edges)):
        waves += runner.run([VocoderPiece(state, mel[:, begin:end], index == len(cuts))])
    return waves


@pytest.mark.parametrize("cuts", [[], [50], [5, 8, 9, 60], [1], list(range(10, 140, 10)), [140]])
def test_a_stream_equals_the_whole(vocoder: CausalHiFT, cuts: list[int]) -> None:
    mel = mel_of(140, 1)
    waves = streamed(VocoderRunner(vocoder, max_frames=256), mel, cuts)
    torch.testing.assert_close(torch.cat(waves), whole(vocoder, mel), atol=NEAR, rtol=0)
    ready = [480 * max(0, n - vocoder.lookahead) for n in cuts] + [480 * 140]
    assert [len(wave) for wave in waves] == [b - a for a, b in zip([0, *ready], ready, strict=False)]


def test_random_cuts_of_several_utterances_at_once(vocoder: CausalHiFT) -> None:
    runner = VocoderRunner(vocoder, max_frames=128)
    generator = torch.Generator().manual_seed(5)
    mels = [mel_of(int(n), i) for i, n in enumerate(torch.randint(1, 200, (5,), generator=generator))]
    states = [runner.open() for _ in mels]
    sent, out = [0] * len(mels), [[] for _ in mels]
    while any(not state.ended for state in states):
        pieces = []
        for i, state in enumerate(states):
            if state.ended or torch.rand((), generator=generator) < 0.3:
                continue
            new = int(torch.randint(1, 60, (), generator=generator))
            pieces.append(
                (i, VocoderPiece(state, mels[i][:, sent[i] : sent[i] + new], sent[i] + new >= mels[i].shape[1]))
            )
            sent[i] += new
        for (i, _), wave in zip(pieces, runner.run([piece for _, piece in pieces]), strict=True):
            out[i].append(wave)
    for mel, waves in zip(mels, out, strict=True):
        torch.testing.assert_close(torch.cat(waves), whole(vocoder, mel), atol=NEAR, rtol=0)


def test_an_utterance_may_change_runners(vocoder: CausalHiFT) -> None:
    one = VocoderRunner(vocoder, max_frames=256)
    other = VocoderRunner(vocoder, max_frames=128, beside=one)
    mel, state = mel_of(90, 4), one.open()
    waves = one.run([VocoderPiece(state, mel[:, :50], False)]) + other.run([VocoderPiece(state, mel[:, 50:], True)])
    torch.testing.assert_close(torch.cat(waves), whole(vocoder, mel), atol=NEAR, rtol=0)


def test_an_utterance_keeps_no_more_than_it_hears(vocoder: CausalHiFT) -> None:
    runner = VocoderRunner(vocoder, max_frames=256)
    state = runner.open()
    for _ in range(4):
        runner.run([VocoderPiece(state, mel_of(100, 2), False)])
        assert len(state.kept.frames) == vocoder.context + vocoder.lookahead
    (wave,) = runner.run([VocoderPiece(state, mel_of(0, 2), True)])
    assert state.ended
    assert len(wave) == 480 * vocoder.lookahead
    assert len(state.kept.frames) == 0


def test_an_empty_utterance_has_no_samples(vocoder: CausalHiFT) -> None:
    runner = VocoderRunner(vocoder, max_frames=256)
    state = runner.open()
    assert [len(wave) for wave in runner.run([VocoderPiece(state, mel_of(0, 0), True)])] == [0]
    assert runner.run([]) == []


def test_a_state_is_what_it_was_when_a_call_fails(vocoder: CausalHiFT, monkeypatch: pytest.MonkeyPatch) -> None:
    runner = VocoderRunner(vocoder, max_frames=256)
    first, second = runner.open(), runner.open()
    before = first.kept
    with monkeypatch.context() as patch:
        patch.setattr(runner, "advance", fail)
        with pytest.raises(torch.OutOfMemoryError):
            runner.run([VocoderPiece(s, mel_of(30, 1), False) for s in (first, second)])
    assert first.kept is before
    with pytest.raises(ValueError, match="pieces"):
        runner.run([VocoderPiece(first, mel_of(30, 1), False)] * 2)
    runner.run([VocoderPiece(first, mel_of(30, 1), True)])
    with pytest.raises(ValueError, match="pieces"):
        runner.run([VocoderPiece(first, mel_of(30, 1), True)])


def fail(*_: object) -> None:
    raise torch.OutOfMemoryError("no memory")


def test_too_small_a_pass_is_refused(vocoder: CausalHiFT) -> None:
    with pytest.raises(ValueError, match="max_frames"):
        VocoderRunner(vocoder, max_frames=64)


def test_sizes_of_a_pass_reach_its_maximum() -> None:
    pytest.importorskip("triton")
    from cosyui.engine.vocoder_passes import buckets

    assert buckets(1000) == [64, 96, 128, 192, 256, 384, 512, 768, 1000]
    assert buckets(128)[-1] == 128


def test_memory_is_counted(vocoder: CausalHiFT) -> None:
    pytest.importorskip("triton")
    from cosyui.model.vocoder_packed import PackedVocoder, Workspace

    space = Workspace(PackedVocoder(vocoder), 256)
    assert space.nbytes <= nbytes(vocoder.config, 256, torch.float32) <= 1.6 * space.nbytes


def test_the_context_is_all_that_is_heard(vocoder: CausalHiFT) -> None:
    mel, source = mel_of(60, 1)[None], torch.zeros(1, 60 * 480)
    mel[:, :, 0] = float("nan")
    source[:, :480] = float("nan")
    finite = vocoder.decode(mel, source, torch.tensor([60]))[0].isfinite()
    assert finite[480 * (1 + vocoder.context) :].all()
    assert not finite[480 * vocoder.context :].all()
