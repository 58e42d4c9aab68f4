"""The packed vocoder against the plain one: kernels in Triton's interpreter, or on the GPU where there is one."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from cosyui.engine.vocoder_runner import VocoderPiece, VocoderRunner
from cosyui.model.config import VocoderConfig, load_config
from cosyui.model.vocoder import CausalHiFT, source_noise

pytest.importorskip("triton")
from cosyui.model.vocoder_packed import PackedVocoder

if not torch.cuda.is_available() and os.environ.get("TRITON_INTERPRET") != "1":
    pytest.skip("kernels need a GPU or TRITON_INTERPRET=1", allow_module_level=True)

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
NEAR = 1e-4
CHECKPOINT = Path(__file__).parent.parent / "data" / "oracle" / "checkpoint"


SHORT = replace(
    load_config(CHECKPOINT).vocoder, base_channels=72, f0_channels=20, upsample_rates=(2, 3, 2),
    upsample_kernel_sizes=(5, 4, 5), resblock_kernel_sizes=(3, 2, 5), resblock_dilation_sizes=((1, 2),) * 3,
    source_resblock_kernel_sizes=(2, 3, 2), source_resblock_dilation_sizes=((1, 3),) * 3,
)  # fmt: skip
"""Few samples a frame, since the interpreter takes a tenth of a millisecond for every operation; odd widths."""


@pytest.fixture(autouse=True)
def tall_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.set_num_threads(1)
    torch.backends.cudnn.allow_tf32 = False
    if DEVICE.type == "cpu":
        monkeypatch.setattr(PackedVocoder, "tile", lambda *_: (512, 32, 32, 4, 1))


def random_vocoder(config: VocoderConfig, dtype: torch.dtype = torch.float32) -> CausalHiFT:
    """Random weights, snakes of all sorts, voiced and unvoiced frames."""
    torch.manual_seed(3)
    vocoder = CausalHiFT(config).requires_grad_(False).eval()
    for name, parameter in vocoder.named_parameters():
        if name.endswith("alpha"):
            parameter.uniform_(0.2, 2.0)
        elif name.startswith(("resblocks", "source_downs")) and name.endswith("weight"):
            parameter.mul_(2)
        elif name.endswith("classifier.weight"):
            parameter.mul_(2000)
    vocoder.noise = source_noise(vocoder.harmonics)
    pitch = vocoder.f0_predictor
    vocoder.to(dtype)
    vocoder.f0_predictor = pitch.double()
    return vocoder.to(DEVICE)


def mel_of(frames: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return (torch.randn(80, frames, generator=generator).cumsum(1) * 0.3 - 2).to(DEVICE)


def error(vocoder: CausalHiFT, runner: VocoderRunner, sizes: list[tuple[int, ...]]) -> float:
    """Largest deviation from the plain whole of utterances given in pieces, all at once."""
    mels = [mel_of(sum(parts), seed) for seed, parts in enumerate(sizes)]
    states, sent, out = [runner.open() for _ in sizes], [0] * len(sizes), [[] for _ in sizes]
    for turn in range(max(len(parts) for parts in sizes)):
        active = [i for i, parts in enumerate(sizes) if turn < len(parts)]
        pieces = []
        for i in active:
            new = sizes[i][turn]
            pieces.append(VocoderPiece(states[i], mels[i][:, sent[i] : sent[i] + new], turn + 1 == len(sizes[i])))
            sent[i] += new
        for i, wave in zip(active, runner.run(pieces), strict=True):
            out[i].append(wave.float())
    pairs = zip(mels, out, strict=True)
    return max(float((torch.cat(waves) - vocoder(mel[None])[0][0]).abs().max()) for mel, waves in pairs)


def test_packed_utterances_equal_the_plain_vocoder() -> None:
    vocoder = random_vocoder(SHORT)
    runner = VocoderRunner(vocoder, max_frames=160, fused=True, graphs=False)
    assert error(vocoder, runner, [(9, 71, 20), (1,), (30, 5)]) < NEAR


def test_a_long_utterance_is_cut_into_passes() -> None:
    vocoder = random_vocoder(SHORT)
    runner = VocoderRunner(vocoder, max_frames=160, fused=True, graphs=False)
    assert error(vocoder, runner, [(230,)]) < NEAR


def test_float16_holds_what_plain_float16_cannot() -> None:
    exact = random_vocoder(SHORT)
    with torch.no_grad():
        exact.conv_pre.weight.mul_(1e5)
        exact.conv_pre.bias.mul_(1e5)
        exact.conv_post.weight.mul_(3e-5)
    half = random_vocoder(SHORT, torch.float16)
    for name, parameter in half.named_parameters():
        if "f0_predictor" not in name:
            parameter.copy_(exact.get_parameter(name))
            exact.get_parameter(name).copy_(parameter)
    mel = mel_of(40, 1)
    plain, wanted = half(mel[None])[0], exact(mel[None])[0][0]
    assert not plain.isfinite().all()
    runner = VocoderRunner(half, max_frames=160, fused=True, graphs=False)
    (wave,) = runner.run([VocoderPiece(runner.open(), mel, True)])
    assert wave.isfinite().all()
    assert (wave - wanted).square().mean() < 1e-3 * wanted.square().mean()


def test_a_broken_utterance_does_not_touch_the_others() -> None:
    vocoder = random_vocoder(SHORT)
    runner = VocoderRunner(vocoder, max_frames=160, fused=True, graphs=False)
    mels = [mel_of(20, 1), mel_of(20, 2), mel_of(30, 3)]
    mels[1][3, 7] = float("nan")
    waves = runner.run([VocoderPiece(runner.open(), mel, True) for mel in mels])
    assert not waves[1].isfinite().all()
    for i in (0, 2):
        torch.testing.assert_close(waves[i], vocoder(mels[i][None])[0][0], atol=NEAR, rtol=0)


@pytest.mark.skipif(DEVICE.type == "cpu", reason="graphs need a GPU")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_graphs_equal_single_kernels(dtype: torch.dtype) -> None:
    vocoder = random_vocoder(SHORT, dtype)
    runners = [VocoderRunner(vocoder, max_frames=160, fused=True, graphs=graphs) for graphs in (True, False)]
    runners[0].warm_up()
    for seed in range(3):
        sizes = [5 + 30 * seed, 20]
        waves = [r.run([VocoderPiece(r.open(), mel_of(n, seed), True) for n in sizes]) for r in runners]
        for one, other in zip(*waves, strict=True):
            torch.testing.assert_close(one, other, atol=0, rtol=0)
