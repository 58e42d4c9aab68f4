"""Feature front ends against golden values (a sample of them), shapes and batching."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch

from cosyui.speech import features

DATA = np.load(Path(__file__).parent / "data" / "features.npz")
CLIP = Path(__file__).parent.parent / "data" / "oracle" / "golden" / "test_prompt_24k.wav"


@pytest.fixture(scope="module")
def wave_24k() -> torch.Tensor:
    return torch.from_numpy(soundfile.read(CLIP, dtype="float32")[0])[None]


@pytest.fixture(scope="module")
def wave_16k(wave_24k: torch.Tensor) -> torch.Tensor:
    return features.resample(wave_24k, 24_000, 16_000, "sinc")


def off(found: torch.Tensor | np.ndarray, expected: np.ndarray) -> float:
    found = np.asarray(found)
    assert found.shape == expected.shape
    return float(np.abs(found - expected).max())


def test_filter_banks() -> None:
    assert off(features.slaney_filters(24_000, 1920, 80)[::8], DATA["mel_filterbank"]) < 1e-7
    assert off(features.slaney_filters(16_000, 400, 128)[::8], DATA["whisper_filterbank"]) < 1e-7


def test_mel(wave_24k: torch.Tensor) -> None:
    mel = features.mel_24k(wave_24k)
    assert mel.shape == (1, 80, 200)
    assert off(mel[0, :, ::16], DATA["mel"]) < 1e-3


def test_whisper_log_mel(wave_16k: torch.Tensor) -> None:
    log_mel = features.whisper_log_mel(wave_16k)
    assert log_mel.shape == (1, 128, 400)
    assert off(log_mel[0, :, ::32], DATA["logmel"]) < 1e-3


def test_kaldi_fbank(wave_16k: torch.Tensor) -> None:
    fbank = features.kaldi_fbank(wave_16k[0].numpy(), subtract_mean=False)
    assert fbank.shape == (398, 80)
    assert off(fbank[::32], DATA["fbank"]) < 1e-3
    assert off(fbank[::32], DATA["fbank_torchaudio"]) < 2e-3
    centred = features.kaldi_fbank(wave_16k[0].numpy())
    assert np.abs(centred.mean(axis=0)).max() < 1e-4
    assert off(centred, fbank - fbank.mean(axis=0)) < 1e-4


def test_sinc_resampling(wave_16k: torch.Tensor) -> None:
    assert off(wave_16k[0, ::64], DATA["to_16k"]) < 1e-6
    noise = torch.from_numpy(DATA["noise"])[None]
    for key in (name for name in DATA.files if "_to_" in name):
        from_rate, to_rate = map(int, key.removeprefix("noise_").split("_to_"))
        found = features.resample(noise, from_rate, to_rate, "sinc")[0, :300]
        assert off(found, DATA[key]) < 1e-6, key


@pytest.mark.parametrize("method", ["soxr", "sinc"])
@pytest.mark.parametrize(
    ("from_rate", "to_rate"), [(44_100, 24_000), (8_000, 24_000), (48_000, 16_000), (11_025, 16_000)]
)
def test_resampling_keeps_a_tone_and_gives_the_exact_length(method: str, from_rate: int, to_rate: int) -> None:
    def tone(rate: int, samples: int) -> torch.Tensor:
        return torch.sin(2 * torch.pi * 440 * torch.arange(samples) / rate)[None]

    samples = from_rate // 2 + 7
    result = features.resample(tone(from_rate, samples), from_rate, to_rate, method)
    assert result.shape == (1, -(-samples * to_rate // from_rate))
    middle = slice(to_rate // 10, -to_rate // 10)
    assert (result - tone(to_rate, result.shape[1]))[0, middle].abs().max() < 5e-3


def test_equal_rates_return_the_input_and_odd_ones_need_soxr() -> None:
    wave = torch.zeros(1, 10)
    assert features.resample(wave, 16_000, 16_000) is wave
    with pytest.raises(ValueError, match="soxr"):
        features.resample(wave, 44_099, 16_000, "sinc")
    assert features.resample(torch.zeros(2, 44_099), 44_099, 16_000).shape == (2, 16_000)


def test_rows_of_a_batch_do_not_touch_each_other(wave_24k: torch.Tensor, wave_16k: torch.Tensor) -> None:
    mel = features.mel_24k(torch.cat([wave_24k, wave_24k.flip(1)]))
    assert torch.allclose(mel[:1], features.mel_24k(wave_24k), atol=1e-4)
    loud = torch.cat([wave_16k, 100 * wave_16k])
    assert torch.allclose(features.whisper_log_mel(loud)[:1], features.whisper_log_mel(wave_16k), atol=1e-4)


def test_too_short_input_is_an_error_that_says_so() -> None:
    with pytest.raises(ValueError, match="720"):
        features.mel_24k(torch.zeros(1, 720))
    with pytest.raises(ValueError, match="200"):
        features.whisper_log_mel(torch.zeros(1, 200))
    assert features.kaldi_fbank(np.zeros(399, np.float32)).shape == (0, 80)
