"""The weights of the vocoder as its kernels read them (`cosyui.model.vocoder_packed`).

A convolution is (taps, outputs, inputs), outputs and inputs padded to 32 with zeros; those that run side by side stand
one after another. The module's own weights become views of this, so that nothing is held twice.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cosyui.model.config import VocoderConfig
from cosyui.model.vocoder import LAST_SLOPE, CausalHiFT, F0Predictor, ResBlock, Snake

SPECTRUM_COLUMNS = 32
"""Of a row of the source's spectrum: n_fft + 2, padded."""


def padded(channels: int) -> int:
    return -(-channels // 32) * 32


def fits(config: VocoderConfig) -> bool:
    """Whether the kernels can run a vocoder of these sizes."""
    same = all(d == config.resblock_dilation_sizes[0] for d in config.resblock_dilation_sizes)
    three = len(config.resblock_kernel_sizes) == 3
    return same and three and config.istft_n_fft + 2 <= SPECTRUM_COLUMNS and config.istft_n_fft % config.istft_hop == 0


def gap_frames(vocoder: CausalHiFT) -> int:
    """Frames of zeros between two utterances: as far as one convolution reaches back, or the vocoder looks ahead."""
    rate, reach = 1, 0
    for index, up in enumerate(vocoder.config.upsample_rates):
        rate *= up
        blocks = vocoder.resblocks[3 * index : 3 * index + 3]
        convs = [m for b in (*blocks, vocoder.source_resblocks[index]) for m in b.modules() if isinstance(m, nn.Conv1d)]
        reach = max(reach, *(math.ceil((c.kernel_size[0] - 1) * c.dilation[0] / rate) for c in convs))
    pitch = [layer.kernel_size[0] - 1 for layer in vocoder.f0_predictor.condnet if isinstance(layer, nn.Conv1d)]
    return max(reach, vocoder.config.conv_pre_look_right, *pitch)


@dataclass
class Convolution:
    """Weights (taps, outputs, inputs) of one or three convolutions in a row; biases (groups, outputs) float32."""

    weight: Tensor
    bias: Tensor
    offsets: tuple[int, int, int]
    taps: tuple[int, int, int]
    inputs: int
    outputs: int


def lay_out(weights: Sequence[Tensor], biases: Sequence[Tensor], inputs: int, outputs: int) -> Convolution:
    """From weights (outputs, inputs, taps) with fewer channels than asked for; the others are zeros."""
    parts, offsets, at = [], [], 0
    bias = torch.zeros(len(biases), outputs, device=weights[0].device)
    for index, (weight, its_bias) in enumerate(zip(weights, biases, strict=True)):
        wide = weight.new_zeros(weight.shape[2], outputs, inputs)
        wide[:, : weight.shape[0], : weight.shape[1]] = weight.permute(2, 0, 1)
        bias[index, : len(its_bias)] = its_bias
        parts.append(wide.flatten())
        offsets.append(at)
        at += wide.numel()
    taps = [weight.shape[2] for weight in weights]
    first, second, third = [*offsets, 0, 0][:3], [*taps, 0, 0][:3], torch.cat(parts)
    return Convolution(third, bias, (first[0], first[1], first[2]), (second[0], second[1], second[2]), inputs, outputs)


def polyphase(conv: nn.Conv1d, rate: int, width: int) -> Tensor:
    """A convolution behind nearest upsampling as one before it, with ``rate`` times the outputs: the taps that hear the
    same frame are added up."""
    weight = conv.weight.double()
    outputs, inputs, taps = weight.shape
    fewer = -(-(taps - 1) // rate) + 1
    folded = weight.new_zeros(rate * width, inputs, fewer)
    for phase in range(rate):
        for tap in range(taps):
            at = (phase - (taps - 1) + tap) // rate + fewer - 1
            folded[phase * width : phase * width + outputs, :, at] += weight[:, :, tap]
    return folded.to(conv.weight.dtype)


def of_modules(modules: Sequence[nn.Module], inputs: int, outputs: int) -> Convolution:
    """Convolutions side by side, whose weights become views of the result."""
    convs = [module for module in modules if isinstance(module, nn.Conv1d)]
    biases = [conv.bias for conv in convs if conv.bias is not None]
    packed = lay_out([conv.weight for conv in convs], biases, inputs, outputs)
    for conv, offset, taps in zip(convs, packed.offsets, packed.taps, strict=False):
        own = packed.weight[offset : offset + taps * outputs * inputs].view(taps, outputs, inputs)
        own = own[:, : conv.out_channels, : conv.in_channels].permute(1, 2, 0)
        conv.weight = nn.Parameter(own, requires_grad=False)
    return packed


def strided(conv: nn.Conv1d, columns: int, width: int) -> Convolution:
    """A strided convolution as a product of overlapping rows: (1, width, taps * columns)."""
    assert conv.bias is not None
    taps = F.pad(conv.weight.transpose(1, 2), (0, columns - conv.in_channels))
    flat = taps.reshape(conv.out_channels, -1, 1)
    return lay_out([flat], [conv.bias], flat.shape[1], width)


def alphas_of(modules: Sequence[nn.Module], width: int) -> Tensor:
    """(groups, width) float32."""
    snakes = [module for module in modules if isinstance(module, Snake)]
    alphas = torch.ones(len(snakes), width, device=snakes[0].alpha.device)
    for row, snake in zip(alphas, snakes, strict=True):
        row[: len(snake.alpha)] = snake.alpha.float()
    return alphas


def _taps(block: ResBlock) -> int:
    conv = block.convs1[0]
    assert isinstance(conv, nn.Conv1d)
    return conv.kernel_size[0]


@dataclass
class Blocks:
    """Residual blocks side by side: per dilation two convolutions and the alphas (groups, width) behind each."""

    dilations: tuple[int, ...]
    first: list[Convolution]
    second: list[Convolution]
    before: list[Tensor]
    between: list[Tensor]

    @classmethod
    def of(cls, blocks: Sequence[ResBlock], width: int) -> Blocks:
        # The longest convolutions start first, so that the GPU is not left with one of them at the end.
        order = sorted(blocks, key=_taps, reverse=True)
        count = range(len(order[0].convs1))
        return cls(
            tuple(conv.dilation[0] for conv in order[0].convs1 if isinstance(conv, nn.Conv1d)),
            [of_modules([block.convs1[i] for block in order], width, width) for i in count],
            [of_modules([block.convs2[i] for block in order], width, width) for i in count],
            [alphas_of([block.activations1[i] for block in order], width) for i in count],
            [alphas_of([block.activations2[i] for block in order], width) for i in count],
        )


@dataclass
class Stage:
    """One upsampling: ``per_frame`` rows of ``width`` channels a mel frame; ``stride`` of the source's convolution.

    ``tail``: 1 for the last, which has a row more than its frames; ``slope`` of the leaky ReLU behind it.
    """

    rate: int
    per_frame: int
    width: int
    stride: int
    tail: int
    slope: float
    up: Convolution
    up_alphas: Tensor
    down: Convolution
    source: Blocks
    blocks: Blocks
    last_bias: Tensor

    @classmethod
    def all_of(cls, vocoder: CausalHiFT) -> list[Stage]:
        stages: list[Stage] = []
        rates, per_frame, inputs = vocoder.config.upsample_rates, 1, padded(vocoder.config.base_channels)
        for index, rate in enumerate(rates):
            up, down = vocoder.ups[index], vocoder.source_downs[index]
            source, last = vocoder.source_resblocks[index], index == len(rates) - 1
            assert isinstance(up, nn.Conv1d)
            assert isinstance(down, nn.Conv1d)
            assert isinstance(source, ResBlock)
            assert up.bias is not None
            per_frame, width = per_frame * rate, padded(up.out_channels)
            blocks = Blocks.of([b for b in vocoder.resblocks[3 * index :][:3] if isinstance(b, ResBlock)], width)
            bias = F.pad(up.bias, (0, width - up.out_channels)).repeat(rate)
            stages.append(
                cls(
                    rate=rate,
                    per_frame=per_frame,
                    width=width,
                    stride=down.stride[0],
                    tail=int(last),
                    slope=LAST_SLOPE if last else vocoder.config.lrelu_slope,
                    up=lay_out([polyphase(up, rate, width)], [bias], inputs, rate * width),
                    up_alphas=blocks.before[0].repeat(1, rate),
                    down=strided(down, SPECTRUM_COLUMNS, width),
                    source=Blocks.of([source], width),
                    blocks=blocks,
                    last_bias=blocks.second[-1].bias.sum(0),
                )
            )
            inputs = width
        return stages


@dataclass
class PitchLayer:
    """A convolution of the pitch predictor as a matrix (taps * inputs, outputs) float64."""

    weight: Tensor
    bias: Tensor
    taps: int

    @classmethod
    def all_of(cls, predictor: F0Predictor) -> list[PitchLayer]:
        layers = []
        for conv in predictor.condnet:
            if isinstance(conv, nn.Conv1d):
                assert conv.bias is not None
                weight = conv.weight.permute(2, 1, 0).contiguous()
                conv.weight = nn.Parameter(weight.permute(2, 1, 0), requires_grad=False)
                layers.append(cls(weight.flatten(0, 1), conv.bias, conv.kernel_size[0]))
        return layers


def fourier(n: int, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """Matrices of both ends with a Hann window of ``n``, made in float64: there (n, SPECTRUM_COLUMNS), real parts, then
    imaginary ones; back (n, n + 2); the window's square (n,)."""
    bins = n // 2 + 1
    window = torch.hann_window(n, dtype=torch.float64)
    angle = torch.arange(n, dtype=torch.float64)[:, None] * torch.arange(bins) * (2 * math.pi / n)
    twice = torch.full((bins,), 2 / n, dtype=torch.float64)
    twice[0] = twice[-1] = 1 / n
    there = torch.cat([angle.cos(), -angle.sin()], dim=1) * window[:, None]
    back = torch.cat([angle.cos() * twice, -angle.sin() * twice], dim=1) * window[:, None]
    there = F.pad(there, (0, SPECTRUM_COLUMNS - 2 * bins))
    return there.float().to(device), back.float().to(device), window.square().float().to(device)
