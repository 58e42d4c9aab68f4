"""Causal HiFT: mel to waveform by a neural source filter and an inverse STFT head.

Source: HiFTNet (Li et al., 2023, arXiv:2309.09493); the harmonic source is NSF (Wang et al., 2019, arXiv:1904.12088);
snake activation (Ziyin et al., 2020, arXiv:2006.08195); the causal form is CosyVoice 3's (arXiv:2505.17589). Tensor
names are those of a released ``hift.pt`` with weight norm folded into plain weights.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cosyui.model.config import VocoderConfig

LAST_SLOPE = 0.01
"""Slope of the leaky ReLU before the last convolution; the others use the configured one."""
MAX_MAGNITUDE = 100.0
NOISE_PERIOD = 240_007
"""Samples after which our source noise repeats (10 s, prime)."""


def source_noise(harmonics: int) -> Tensor:
    """The noise added to the source, (NOISE_PERIOD, harmonics) float32, uniform in [0, 1); used in a circle."""
    generator = torch.Generator().manual_seed(1)
    return torch.rand(NOISE_PERIOD, harmonics, generator=generator)


def causal(conv: nn.Conv1d, x: Tensor) -> Tensor:
    """Convolve with zeros to the left only."""
    reach = (conv.kernel_size[0] - 1) * conv.dilation[0]
    out: Tensor = conv(F.pad(x, (reach, 0)))
    return out


def reach_of(module: nn.Module) -> int:
    """Frames that causal convolutions of ``module``, one after another, look back."""
    convs = [layer for layer in module.modules() if isinstance(layer, nn.Conv1d)]
    return sum((conv.kernel_size[0] - 1) * conv.dilation[0] for conv in convs)


class Snake(nn.Module):
    """x + sin^2(a x) / a with a learnt ``a`` per channel; computed in float32, where 1 / a cannot overflow."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.alpha = nn.Parameter(torch.ones(channels))

    def forward(self, x: Tensor) -> Tensor:
        alpha = self.alpha.float()[:, None]
        wide = x.float()
        return (wide + torch.sin(wide * alpha).square() / (alpha + 1e-9)).to(x.dtype)


class ResBlock(nn.Module):
    def __init__(self, channels: int, kernel: int, dilations: tuple[int, ...]) -> None:
        super().__init__()
        self.convs1 = nn.ModuleList([nn.Conv1d(channels, channels, kernel, dilation=d) for d in dilations])
        self.convs2 = nn.ModuleList([nn.Conv1d(channels, channels, kernel) for _ in dilations])
        self.activations1 = nn.ModuleList([Snake(channels) for _ in dilations])
        self.activations2 = nn.ModuleList([Snake(channels) for _ in dilations])

    def forward(self, x: Tensor) -> Tensor:
        layers = zip(self.convs1, self.convs2, self.activations1, self.activations2, strict=True)
        for conv1, conv2, before, between in layers:
            assert isinstance(conv1, nn.Conv1d)
            assert isinstance(conv2, nn.Conv1d)
            x = x + causal(conv2, between(causal(conv1, before(x))))
        return x


class F0Predictor(nn.Module):
    """Pitch of each frame in Hz, 0 where unvoiced; float64, since a phase error grows with the length of the speech."""

    def __init__(self, config: VocoderConfig) -> None:
        super().__init__()
        channels = config.f0_channels
        layers: list[nn.Module] = []
        for index in range(5):
            inputs, kernel = (config.in_channels, 4) if index == 0 else (channels, 3)
            layers += [nn.Conv1d(inputs, channels, kernel), nn.ELU()]
        self.condnet = nn.Sequential(*layers)
        self.classifier = nn.Linear(channels, 1)
        self.double()

    def forward(self, mel: Tensor) -> Tensor:
        """``mel`` (B, C, T) -> (B, T) float64. The first layer looks 3 frames ahead, into zeros at the end."""
        first, *rest = self.condnet
        assert isinstance(first, nn.Conv1d)
        x = first(F.pad(mel.to(first.weight.dtype), (0, first.kernel_size[0] - 1)))
        for layer in rest:
            x = causal(layer, x) if isinstance(layer, nn.Conv1d) else layer(x)
        f0: Tensor = self.classifier(x.transpose(1, 2))
        return f0[..., 0].abs()


class HarmonicSource(nn.Module):
    """Mixes the harmonics into one excitation signal."""

    def __init__(self, harmonics: int) -> None:
        super().__init__()
        self.l_linear = nn.Linear(harmonics, 1)


class CausalHiFT(nn.Module):
    """Mel (B, C, T) to waveform; right-padded batches; finished or with more frames to come."""

    noise: Tensor
    window: Tensor

    def __init__(self, config: VocoderConfig) -> None:
        super().__init__()
        self.config = config
        self.harmonics = config.nb_harmonics + 1
        self.n_fft, self.hop = config.istft_n_fft, config.istft_hop
        self.frame_samples = math.prod(config.upsample_rates) * self.hop
        base, rates = config.base_channels, config.upsample_rates
        widths = [base // 2 ** (index + 1) for index in range(len(rates))]
        self.m_source = HarmonicSource(self.harmonics)
        self.f0_predictor = F0Predictor(config)
        self.conv_pre = nn.Conv1d(config.in_channels, base, config.conv_pre_look_right + 1)
        self.ups = nn.ModuleList()
        self.source_downs = nn.ModuleList()
        self.source_resblocks = nn.ModuleList()
        self.resblocks = nn.ModuleList()
        for index, width in enumerate(widths):
            wider = base if index == 0 else widths[index - 1]
            self.ups.append(nn.Conv1d(wider, width, config.upsample_kernel_sizes[index]))
            stride = math.prod(rates[index + 1 :])
            kernel = 2 * stride if stride > 1 else 1
            self.source_downs.append(nn.Conv1d(self.n_fft + 2, width, kernel, stride=stride))
            shape = (config.source_resblock_kernel_sizes[index], config.source_resblock_dilation_sizes[index])
            self.source_resblocks.append(ResBlock(width, *shape))
            for kernel, dilations in zip(config.resblock_kernel_sizes, config.resblock_dilation_sizes, strict=True):
                self.resblocks.append(ResBlock(width, kernel, dilations))
        self.conv_post = nn.Conv1d(widths[-1], self.n_fft + 2, 7)
        self.register_buffer("noise", torch.empty(NOISE_PERIOD, self.harmonics), persistent=False)
        self.register_buffer("window", torch.hann_window(self.n_fft), persistent=False)

    @property
    def lookahead(self) -> int:
        """Frames at the end that only serve those before them while more are to come (pitch 3, conv_pre 4, STFT 1)."""
        first = self.f0_predictor.condnet[0]
        assert isinstance(first, nn.Conv1d)
        return first.kernel_size[0] - 1 + self.config.conv_pre_look_right + 1

    @property
    def context(self) -> int:
        """Frames to the left of a window that its samples hear of: behind so many, nothing of a wrong start is left."""
        config, edge = self.config, self.n_fft // 2 // self.hop
        per_stage = len(config.resblock_kernel_sizes)
        wrong = 0
        for index, rate in enumerate(config.upsample_rates):
            up, down = self.ups[index], self.source_downs[index]
            assert isinstance(up, nn.Conv1d)
            assert isinstance(down, nn.Conv1d)
            stride = down.stride[0]
            heard = -(-(edge + stride - 1) // stride) + reach_of(self.source_resblocks[index])
            wrong = wrong * rate + up.kernel_size[0] - 1 + (index == len(config.upsample_rates) - 1)
            blocks = self.resblocks[index * per_stage : (index + 1) * per_stage]
            wrong = max(wrong, heard) + max(reach_of(block) for block in blocks)
        wrong += self.conv_post.kernel_size[0] - 1 + edge
        return -(-wrong * self.hop // self.frame_samples)

    def turns(self, f0: Tensor) -> Tensor:
        """Turns of each harmonic within a sample, summed over the frames: (B, T) Hz -> (B, T, H) float64."""
        order = torch.arange(1, self.harmonics + 1, device=f0.device, dtype=torch.float32)
        # The phase forgives nothing, and CUDA rounds differently from a CPU in two places: it divides by a number by
        # multiplying with its inverse, and it sums in its own order. A tensor as divisor and a float64 sum are exact.
        rate = torch.full_like(order, self.config.sampling_rate)
        turns = f0.float()[..., None] * order / rate % 1
        return turns.double().cumsum(1)

    def sines(self, f0: Tensor, turns: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Harmonics of the pitch, one value a frame: (B, T) Hz -> sines (B, T, H) and voiced flags (B, T, 1).

        ``turns`` (B, T, H) float64 since the start of the utterance; None: those of ``f0`` alone.
        """
        turns = self.turns(f0) if turns is None else turns
        phase = turns.float() * 2 * math.pi * self.frame_samples
        voiced = (f0[..., None] > self.config.nsf_voiced_threshold).float()
        return torch.sin(phase) * self.config.nsf_alpha * voiced, voiced

    def source(self, f0: Tensor, turns: Tensor | None = None, start: int = 0) -> Tensor:
        """Excitation (B, T * frame_samples) float32 of a pitch track (B, T) in Hz.

        ``turns`` as in `sines`; ``start``: the first of these frames within its utterance (where its noise begins).
        """
        sines, voiced = self.sines(f0, turns)
        level = voiced * self.config.nsf_sigma + (1 - voiced) * self.config.nsf_alpha / 3
        sines, level = (y.repeat_interleave(self.frame_samples, dim=1) for y in (sines, level))
        first = start * self.frame_samples
        index = torch.arange(first, first + sines.shape[1], device=f0.device) % self.noise.shape[0]
        mix = self.m_source.l_linear
        excited = F.linear(sines + level * self.noise[index], mix.weight.float(), mix.bias.float())
        return torch.tanh(excited)[..., 0]

    def stft(self, source: Tensor, lengths: Tensor) -> Tensor:
        """Source spectrum (B, n_fft + 2, F): real parts, then imaginary parts; F = samples / hop + 1.

        Every row is reflected at its own end ``lengths`` (B,), as if it stood alone.
        """
        reach = self.n_fft // 2
        padded = F.pad(source, (0, reach))
        position = torch.arange(padded.shape[1], device=source.device)
        mirrored = 2 * (lengths[:, None] - 1) - position
        index = torch.where(position < lengths[:, None], position, mirrored).clamp(0, padded.shape[1] - 1)
        padded = padded.gather(1, index)
        padded = torch.cat([padded[:, 1 : reach + 1].flip(1), padded], dim=1)
        spectrum = torch.fft.rfft(padded.unfold(1, self.n_fft, self.hop) * self.window.float())
        return torch.cat([spectrum.real, spectrum.imag], dim=-1).transpose(1, 2)

    def istft(self, magnitude: Tensor, angle: Tensor, frames: Tensor) -> Tensor:
        """Overlap-add of (B, n_fft/2 + 1, F) spectra; row b ends after ``frames[b]`` of them -> (B, (F - 1) * hop)."""
        spectrum = torch.polar(magnitude, angle).transpose(1, 2)
        window = self.window.float()
        inside = torch.arange(spectrum.shape[1], device=spectrum.device) < frames[:, None]
        pieces = torch.fft.irfft(spectrum, n=self.n_fft) * window * inside[..., None]
        weight = (window.square() * inside[..., None]).expand_as(pieces)
        total, norm = self.overlap_add(pieces), self.overlap_add(weight)
        cut = slice(self.n_fft // 2, self.n_fft // 2 + (spectrum.shape[1] - 1) * self.hop)
        return total[:, cut] / norm[:, cut].clamp(min=1e-11)

    def overlap_add(self, pieces: Tensor) -> Tensor:
        """(B, F, n_fft) -> (B, (F - 1) * hop + n_fft)."""
        batch, frames, _ = pieces.shape
        parts = self.n_fft // self.hop
        out = pieces.new_zeros(batch, frames + parts - 1, self.hop)
        for part in range(parts):
            out[:, part : part + frames] += pieces[..., part * self.hop : (part + 1) * self.hop]
        return out.flatten(1)

    def decode(self, mel: Tensor, source: Tensor, lengths: Tensor) -> Tensor:
        """Waveform (B, T * frame_samples) float32 of a mel (B, C, T) and its excitation (B, T * frame_samples).

        ``lengths`` (B,) are valid frames; what lies behind them must be zero in ``mel`` and comes out as garbage.
        """
        dtype = self.conv_post.weight.dtype
        spectrum = self.stft(source, lengths * self.frame_samples).to(dtype)
        x = self.conv_pre(F.pad(mel.to(dtype), (0, self.config.conv_pre_look_right)))
        per_stage = len(self.config.resblock_kernel_sizes)
        for index, rate in enumerate(self.config.upsample_rates):
            up, down = self.ups[index], self.source_downs[index]
            assert isinstance(up, nn.Conv1d)
            assert isinstance(down, nn.Conv1d)
            x = F.leaky_relu(x, self.config.lrelu_slope).repeat_interleave(rate, dim=2)
            x = causal(up, x)
            if index == len(self.ups) - 1:
                x = torch.cat([x[:, :, 1:2], x], dim=2)
            x = x + self.source_resblocks[index](down(F.pad(spectrum, (down.stride[0] - 1, 0))))
            blocks = self.resblocks[index * per_stage : (index + 1) * per_stage]
            x = torch.stack([block(x) for block in blocks]).mean(0)
        x = causal(self.conv_post, F.leaky_relu(x, LAST_SLOPE)).float()
        log_magnitude, angle = x.chunk(2, dim=1)
        magnitude = torch.exp(log_magnitude).clamp(max=MAX_MAGNITUDE)
        frames = lengths * (self.frame_samples // self.hop) + 1
        wave = self.istft(magnitude, torch.sin(angle), frames)
        return wave.clamp(-self.config.audio_limit, self.config.audio_limit)

    def forward(self, mel: Tensor, lengths: Tensor | None = None, *, finalize: bool = True) -> tuple[Tensor, Tensor]:
        """Waveform (B, S) float32 in [-audio_limit, audio_limit] and valid samples (B,) of each row.

        ``mel`` (B, C, T), right-padded; ``lengths`` (B,) valid frames, None = all. Without ``finalize`` more frames
        will follow: the last `lookahead` frames give no samples yet (none at all for a mel that short), and the
        samples returned are a prefix of those of any longer mel.
        """
        batch, _, total = mel.shape
        if lengths is None:
            lengths = torch.full((batch,), total, dtype=torch.int64, device=mel.device)
        mel = mel * (torch.arange(total, device=mel.device) < lengths[:, None])[:, None]
        wave = self.decode(mel, self.source(self.f0_predictor(mel)), lengths)
        ready = lengths if finalize else (lengths - self.lookahead).clamp(min=0)
        return wave[:, : int(ready.max()) * self.frame_samples], ready * self.frame_samples
