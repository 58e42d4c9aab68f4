"""Sound to features: mel for the flow, log-mel for the speech tokenizer, fbank for the speaker net, and resampling.

The three feature definitions are those of CosyVoice3's inference path: Matcha-TTS's mel, Whisper's log-mel (both with
Slaney filters) and Kaldi's fbank. Importing this module needs torch and numpy only.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

MEL_RATE = 24_000
MEL_HOP = 480
MEL_BINS = 80
_MEL_FFT = 1920

SPEECH_RATE = 16_000
"""Sample rate of the speech tokenizer's and the speaker net's input."""
WHISPER_BINS = 128
_WHISPER_FFT = 400
_WHISPER_HOP = 160

FBANK_BINS = 80


@lru_cache(maxsize=8)
def slaney_filters(sample_rate: int, n_fft: int, n_mels: int) -> Tensor:
    """Slaney's mel filter bank over 0 .. Nyquist, area-normalised: float32 (n_mels, n_fft // 2 + 1).

    The scale is linear below 1 kHz (200/3 Hz a mel) and logarithmic above (27 mels per factor 6.4). Do not write to
    the result: it is shared.
    """
    edges = _mel_to_hz(np.linspace(0.0, _hz_to_mel(sample_rate / 2), n_mels + 2))
    frequencies = np.linspace(0.0, sample_rate / 2, n_fft // 2 + 1)
    widths = np.diff(edges)
    offsets = edges[:, None] - frequencies[None]
    rising = -offsets[:-2] / widths[:-1, None]
    falling = offsets[2:] / widths[1:, None]
    filters = np.maximum(0.0, np.minimum(rising, falling)) * (2.0 / (edges[2:] - edges[:-2]))[:, None]
    return torch.from_numpy(filters.astype(np.float32))


def _hz_to_mel(hz: float) -> float:
    return hz * 3 / 200 if hz < 1000 else 15 + math.log(hz / 1000) * 27 / math.log(6.4)


def _mel_to_hz(mel: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.where(mel < 15, mel * 200 / 3, 1000 * np.exp((mel - 15) * math.log(6.4) / 27))


def mel_24k(wave: Tensor) -> Tensor:
    """Log-mel of 24 kHz sound: float32 (B, S) in [-1, 1] -> (B, 80, T), 50 frames/s, T = S // 480 (for S >= 1920).

    Reflect-padded by 720 on both sides, STFT 1920/480 with periodic Hann, magnitude with 1e-9 under the root, Slaney
    filters 0 .. 12 kHz, natural log clamped at 1e-5. Raises ValueError for 720 samples or fewer (nothing to reflect).
    """
    padding = (_MEL_FFT - MEL_HOP) // 2
    if wave.shape[-1] <= padding:
        raise ValueError(f"mel_24k needs more than {padding} samples, got {wave.shape[-1]}")
    padded = F.pad(wave[:, None], (padding, padding), mode="reflect")[:, 0]
    window = torch.hann_window(_MEL_FFT, device=wave.device)
    spectrum = torch.stft(padded, _MEL_FFT, MEL_HOP, _MEL_FFT, window=window, center=False, return_complex=True)
    magnitude = torch.sqrt(spectrum.real**2 + spectrum.imag**2 + 1e-9)
    filters = slaney_filters(MEL_RATE, _MEL_FFT, MEL_BINS).to(wave.device)
    return torch.log(torch.clamp(filters @ magnitude, min=1e-5))


def whisper_log_mel(wave: Tensor) -> Tensor:
    """Whisper's log-mel of 16 kHz sound: float32 (B, S) in [-1, 1] -> (B, 128, T), 100 frames/s, T = S // 160.

    STFT 400/160, centred with reflection, last frame dropped; power; log10 clamped at 1e-10, floored at each row's own
    maximum - 8, then (x + 4) / 4. No padding to 30 s. Raises ValueError for 200 samples or fewer.
    """
    if wave.shape[-1] <= _WHISPER_FFT // 2:
        raise ValueError(f"whisper_log_mel needs more than {_WHISPER_FFT // 2} samples, got {wave.shape[-1]}")
    window = torch.hann_window(_WHISPER_FFT, device=wave.device)
    spectrum = torch.stft(wave, _WHISPER_FFT, _WHISPER_HOP, window=window, return_complex=True)
    power = spectrum[..., :-1].abs() ** 2
    filters = slaney_filters(SPEECH_RATE, _WHISPER_FFT, WHISPER_BINS).to(wave.device)
    log_mel = torch.clamp(filters @ power, min=1e-10).log10()
    return (torch.maximum(log_mel, log_mel.amax((1, 2), keepdim=True) - 8.0) + 4.0) / 4.0


def kaldi_fbank(wave: NDArray[np.float32], *, subtract_mean: bool = True) -> NDArray[np.float32]:
    """Kaldi log filter bank of 16 kHz sound: float32 (S,) in [-1, 1] -> (T, 80), 100 frames/s, 25 ms windows.

    Povey window, pre-emphasis 0.97, DC removed per frame, no dither, edges snipped, 20 .. 8000 Hz. With
    ``subtract_mean`` each bin's mean over time is taken off, as the speaker net wants it. Fewer than 400 samples give
    T = 0. Needs kaldi-native-fbank.
    """
    import kaldi_native_fbank as knf

    options = knf.FbankOptions()
    options.frame_opts.samp_freq = SPEECH_RATE
    options.frame_opts.dither = 0.0
    options.frame_opts.snip_edges = True
    options.frame_opts.window_type = "povey"
    options.mel_opts.num_bins = FBANK_BINS
    options.mel_opts.low_freq = 20.0
    options.mel_opts.high_freq = 0.0  # 0 means Nyquist
    options.energy_floor = 0.0
    fbank = knf.OnlineFbank(options)
    fbank.accept_waveform(SPEECH_RATE, np.ascontiguousarray(wave, dtype=np.float32))
    fbank.input_finished()
    frames = [fbank.get_frame(index) for index in range(fbank.num_frames_ready)]
    features = np.stack(frames).astype(np.float32) if frames else np.zeros((0, FBANK_BINS), np.float32)
    if subtract_mean and len(features):
        features = features - features.mean(axis=0, keepdims=True)
    return features


def resample(wave: Tensor, from_rate: int, to_rate: int, method: Literal["soxr", "sinc"] = "soxr") -> Tensor:
    """Change the sample rate: float32 (B, S) -> (B, ceil(S * to / from)); equal rates return the input.

    ``soxr`` (high quality; needs the soxr package) works on the CPU and returns to the input's device; ``sinc`` is the
    windowed-sinc kernel that CosyVoice3 was used with, in torch on any device (ValueError for rates without a
    reasonable common divisor).
    """
    if from_rate == to_rate:
        return wave
    if method == "sinc":
        # Rates without a common divisor would need a kernel of gigabytes.
        if from_rate * to_rate // math.gcd(from_rate, to_rate) ** 2 > _SINC_LARGEST:
            raise ValueError(f"sinc cannot convert {from_rate} Hz to {to_rate} Hz; use soxr")
        return _resample_sinc(wave, from_rate, to_rate)
    import soxr

    length = math.ceil(wave.shape[-1] * to_rate / from_rate)
    rows = [soxr.resample(row, from_rate, to_rate) for row in wave.detach().cpu().numpy()]
    result = torch.from_numpy(np.stack(rows).astype(np.float32))[:, :length]
    return F.pad(result, (0, length - result.shape[-1])).to(wave.device)


_SINC_WIDTH = 6
_SINC_LARGEST = 1 << 24
_SINC_ROLLOFF = 0.99


@lru_cache(maxsize=16)
def _sinc_kernel(step: int, phases: int) -> tuple[Tensor, int]:
    """Kernels (phases, 1, width) that turn ``step`` input samples into ``phases`` outputs, and the overlap.

    Hann-windowed sinc of 6 zero crossings, cut-off at 0.99 of the lower Nyquist frequency; built in float32 as
    torchaudio's default does, whose rounding is part of the result.
    """
    cutoff = min(step, phases) * _SINC_ROLLOFF
    overlap = math.ceil(_SINC_WIDTH * step / cutoff)
    positions = torch.arange(-overlap, overlap + step, dtype=torch.float32)[None, None] / step
    offsets = torch.arange(0, -phases, -1, dtype=torch.float32)[:, None, None] / phases
    times = ((offsets + positions) * cutoff).clamp(-_SINC_WIDTH, _SINC_WIDTH)
    window = torch.cos(times * math.pi / _SINC_WIDTH / 2) ** 2
    angles = times * math.pi
    sinc = torch.where(angles == 0, torch.ones_like(angles), angles.sin() / angles)
    return sinc * window * (cutoff / step), overlap


def _resample_sinc(wave: Tensor, from_rate: int, to_rate: int) -> Tensor:
    divisor = math.gcd(from_rate, to_rate)
    step, phases = from_rate // divisor, to_rate // divisor
    kernel, overlap = _sinc_kernel(step, phases)
    length = math.ceil(wave.shape[-1] * phases / step)
    padded = F.pad(wave, (overlap, overlap + step))[:, None]
    result = F.conv1d(padded, kernel.to(wave), stride=step)
    return result.transpose(1, 2).reshape(wave.shape[0], -1)[:, :length]
