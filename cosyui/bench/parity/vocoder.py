"""Golden checks of the vocoder: pitch, source, decoder, whole."""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.nn.functional as F

from cosyui.bench.parity.deviation import Deviation
from cosyui.bench.parity.folder import EXACT, F0, WAVE, Folder
from cosyui.model.vocoder import causal


def check_noise_source(folder: Folder) -> Iterator[Deviation]:
    base = folder.arrays("noise_source.npz")["base"]
    vocoder = folder.model.vocoder
    yield folder.same("one column per harmonic", base.shape[1], vocoder.harmonics)
    yield folder.near("in use", vocoder.noise, base, EXACT)


def check_f0(folder: Folder) -> Iterator[Deviation]:
    golden, predictor = folder.arrays("f0.npz"), folder.model.vocoder.f0_predictor
    for name, frames in (("f0_final", None), ("f0_partial", golden["f0_partial"].shape[1])):
        found, expected = predictor(golden["mel"])[:, :frames], golden[name]
        relative = ((found - expected).abs() / expected.abs().clamp(min=1.0)).max()
        yield Deviation(f"{name}, relative", float(relative), F0)


def check_hift_source(folder: Folder) -> Iterator[Deviation]:
    golden, vocoder = folder.arrays("hift_source.npz"), folder.model.vocoder
    sines, voiced = vocoder.sines(golden["f0"])
    flags = golden["uv_per_frame"]
    yield folder.near("voiced", voiced[0, :, 0], flags, EXACT)
    yield folder.near("sines", sines[0] / vocoder.config.nsf_alpha, golden["sines_per_frame"] * flags[:, None], WAVE)
    yield folder.near("source", vocoder.source(golden["f0"])[0], golden["source"], WAVE)


def check_hift_decode(folder: Folder) -> Iterator[Deviation]:
    golden, vocoder = folder.arrays("hift_decode.npz"), folder.model.vocoder
    mel, source = golden["mel"], golden["source"][:, 0]
    lengths = torch.tensor([mel.shape[2]], device=folder.device)
    spectrum = vocoder.stft(source, lengths * vocoder.frame_samples)
    real, imaginary = spectrum.chunk(2, dim=1)
    yield folder.near("spectrum, real", real, golden["stft_real"], WAVE)
    yield folder.near("spectrum, imaginary", imaginary, golden["stft_imag"], WAVE)
    dtype = vocoder.conv_post.weight.dtype
    x = vocoder.conv_pre(F.pad(mel.to(dtype), (0, vocoder.config.conv_pre_look_right)))
    yield folder.near("conv_pre", x, golden["conv_pre_final"], WAVE)
    partial = golden["conv_pre_partial"]
    yield folder.near("conv_pre, more to come", x[:, :, : partial.shape[2]], partial, WAVE)
    up, down = vocoder.ups[0], vocoder.source_downs[0]
    assert isinstance(up, torch.nn.Conv1d)
    assert isinstance(down, torch.nn.Conv1d)
    x = causal(up, F.leaky_relu(x, vocoder.config.lrelu_slope).repeat_interleave(vocoder.config.upsample_rates[0], 2))
    yield folder.near("first upsampling", x, golden["up0"], WAVE)
    branch = vocoder.source_resblocks[0](down(F.pad(spectrum.to(dtype), (down.stride[0] - 1, 0))))
    yield folder.near("first source branch", branch, golden["source_res0"], WAVE)
    yield folder.near("first residual block", vocoder.resblocks[0](x + branch), golden["res0"], WAVE)
    wave = vocoder.decode(mel, source, lengths)
    yield folder.near("wave", wave, golden["wav_final"], WAVE)
    partial = golden["wav_partial"]
    yield folder.near("wave, more to come", wave[:, : partial.shape[1]], partial, WAVE)


def check_hift_inference(folder: Folder) -> Iterator[Deviation]:
    golden, vocoder = folder.arrays("hift_inference.npz"), folder.model.vocoder
    mel, whole = golden["mel"], golden["wav_full"]
    source = vocoder.source(vocoder.f0_predictor(mel))
    yield folder.near("source", source[0], golden["source_full"], WAVE)
    wave, _ = vocoder(mel)
    yield folder.near("whole", wave, whole, WAVE)
    for frames, samples in zip(golden["chunk_mel"].tolist(), golden["chunk_samples"].tolist(), strict=True):
        part, count = vocoder(mel[:, :, :frames], finalize=False)
        yield folder.same(f"samples of {frames} frames", int(count), samples)
        yield folder.near(f"{frames} frames, more to come", part, whole[:, :samples], WAVE)
        if f"wav_{frames}" in golden:
            yield folder.near(f"{frames} frames against the stored chunk", part, golden[f"wav_{frames}"], WAVE)
    short = mel.shape[2] // 2
    lengths = torch.tensor([mel.shape[2], short], device=folder.device)
    batch, samples_of = vocoder(mel.expand(2, -1, -1), lengths)
    yield folder.near("ragged batch", batch[:1], whole, WAVE)
    alone, _ = vocoder(mel[:, :, :short])
    yield folder.near("padded row against itself alone", batch[1:, : int(samples_of[1])], alone, WAVE)


CHECKS = {
    "noise_source.npz": check_noise_source,
    "f0.npz": check_f0,
    "hift_source.npz": check_hift_source,
    "hift_decode.npz": check_hift_decode,
    "hift_inference.npz": check_hift_inference,
}
