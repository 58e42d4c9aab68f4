"""The vocoder over packed frames on a GPU: weights laid out for the kernels, and one pass of fixed shape.

All utterances of a batch stand one after another in one matrix of mel frames, `gap` frames of zeros between them, so
that nothing is padded to the longest. Every convolution is causal: it sees zeros (a true start) or frames that the
caller gave as context. The pass is free of allocation outside PyTorch's own operators and of any wait, so that a CUDA
graph of it can be kept for every number of frames.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from torch import Tensor

from cosyui.model.kernels import vocoder as kernels
from cosyui.model.kernels import vocoder_source as around
from cosyui.model.vocoder import MAX_MAGNITUDE, CausalHiFT
from cosyui.model.vocoder_layout import (
    SPECTRUM_COLUMNS,
    Convolution,
    PitchLayer,
    Stage,
    fits,
    fourier,
    gap_frames,
    of_modules,
    padded,
)  # fmt: skip

PITCH, VALID, FIRST, END, PLACE, KNOWN, SLOT, START = -1, 0, 1, 2, 3, 4, 5, 6
"""Column of the pitch in the frames; rows of the metadata (see `Workspace`)."""
META_ROWS = 7
HALF_SCALE = 1 / 16
"""Activations are stored times this in float16, whose largest number is 65504."""


def _power(count: int) -> int:
    return 1 << (count - 1).bit_length()


class Workspace:
    """Memory of one pass over at most ``frames`` packed frames.

    ``frames`` (F, mel + 1) float32: mel and, in the last column, the pitch in Hz where it is known. ``meta`` (7, F + 1)
    int32 a frame: inside an utterance or gap; first frame and end of its slot in the pack; sample of its utterance's
    noise; whether its pitch is known; its slot; whether it is the first of its slot. ``offsets`` (slots, H) float64:
    turns before the slot. Results: ``wave`` (F * frame_samples,), ``turns`` (F, H) float64, the pitch in ``frames``.
    """

    def __init__(self, net: PackedVocoder, frames: int) -> None:
        vocoder, device, dtype = net.vocoder, net.device, net.dtype
        rows = max((frames * s.per_frame + s.tail) * s.width for s in net.stages)
        single: dict[str, Any] = {"device": device, "dtype": torch.float32}
        stored: dict[str, Any] = {"device": device, "dtype": dtype}
        slots = -(-frames // (net.gap + 1))
        last = net.stages[-1].per_frame * frames + 1
        self.halo = max(s.stride for s in net.stages) - 1
        self.frames = torch.zeros(frames, vocoder.config.in_channels + 1, **single)
        self.meta = torch.zeros(META_ROWS, frames + 1, dtype=torch.int32, device=device)
        self.offsets = torch.zeros(slots, vocoder.harmonics, dtype=torch.float64, device=device)
        self.turns = torch.zeros(frames, vocoder.harmonics, dtype=torch.float64, device=device)
        self.single_turns, self.total_turns = self.turns.flatten().clone(), self.turns.flatten().clone()
        self.pitch = torch.zeros(2, frames, vocoder.config.f0_channels, dtype=torch.float64, device=device)
        self.sines = torch.zeros(frames, vocoder.harmonics, **single)
        self.level = torch.zeros(frames, **single)
        self.mel = torch.zeros(frames, net.pre.inputs, **stored)
        self.source = torch.zeros(frames * vocoder.frame_samples, **single)
        self.wave = torch.zeros(frames * vocoder.frame_samples, **single)
        self.spectrum = torch.zeros(self.halo + last, SPECTRUM_COLUMNS, **stored)
        self.entry = torch.zeros(max(rows, frames * net.pre.outputs), **stored)
        self.base = torch.zeros(max(rows, last * net.post.outputs), **single)
        self.residual = torch.zeros(3, rows, **single)
        self.active = torch.zeros(3, rows, **stored)
        self.hidden = torch.zeros(3, rows, **stored)

    @property
    def nbytes(self) -> int:
        return sum(t.numel() * t.element_size() for t in vars(self).values() if isinstance(t, Tensor))


class PackedVocoder:
    """`CausalHiFT` over packed frames. ``precision``: how the matrix products of float32 weights are done."""

    def __init__(self, vocoder: CausalHiFT, precision: str = "tf32x3") -> None:
        config = vocoder.config
        assert fits(config)
        self.vocoder, self.precision, self.compiling = vocoder, precision, False
        weight = vocoder.conv_post.weight
        self.device, self.dtype = weight.device, weight.dtype
        card = torch.cuda.get_device_properties(self.device) if weight.is_cuda else None
        self.processors, self.hopper = (card.multi_processor_count, card.major >= 9) if card else (1, True)
        self.scale = HALF_SCALE if self.dtype == torch.float16 else 1.0
        self.gap = gap_frames(vocoder)
        self.pre = of_modules([vocoder.conv_pre], padded(config.in_channels), padded(config.base_channels))
        self.stages = Stage.all_of(vocoder)
        self.post = of_modules([vocoder.conv_post], self.stages[-1].width, padded(vocoder.n_fft + 2))
        widest = max(stage.rate * stage.width for stage in self.stages)
        self.zeros = torch.zeros(max(widest, self.post.outputs), device=self.device)
        self.pitch_layers = PitchLayer.all_of(vocoder.f0_predictor)
        mix = vocoder.m_source.l_linear
        self.mix_weight, self.mix_bias = mix.weight.float(), mix.bias.float()
        self.there, self.back, self.window_power = fourier(vocoder.n_fft, self.device)

    def run(self, space: Workspace, frames: int) -> None:
        """Fill `Workspace.wave` for the first ``frames`` packed frames."""
        self._source(space, frames)
        mel = self.vocoder.config.in_channels
        space.mel[:frames, :mel].copy_(space.frames[:frames, :mel])
        look = self.vocoder.config.conv_pre_look_right
        self._conv(
            self.pre, space, space.mel, frames, frames, out_act=space.entry, lead=look, unscale=1.0,
            slope=self.vocoder.config.lrelu_slope,
        )  # fmt: skip
        for index in range(len(self.stages)):
            self._stage(space, index, frames)
        last = self.stages[-1]
        rows = last.per_frame * frames + 1
        self._conv(
            self.post, space, space.entry, rows, rows, out=space.base, per_frame=last.per_frame, tail=1, acts=0,
            unscale=1 / self.scale,
        )  # fmt: skip
        self._inverse(space, frames)

    def compile(self, space: Workspace, sizes: Sequence[int]) -> None:
        """Compile what `run` needs for these numbers of frames, on all cores: alone it takes a minute.

        Leaves garbage in ``space``.
        """
        with ThreadPoolExecutor(os.cpu_count()) as executor, kernels.compiling_on(executor):
            self.compiling = True
            try:
                for frames in sizes:
                    self.run(space, frames)
            finally:
                self.compiling = False

    def _launch(self, kernel: Any, grid: tuple[int, ...], *args: Any, **meta: Any) -> None:
        if self.compiling:
            kernel.warmup(*args, grid=grid, **meta)
        else:
            kernel[grid](*args, **meta)

    def _stage(self, space: Workspace, index: int, frames: int) -> None:
        stage = self.stages[index]
        rows = stage.per_frame * frames + stage.tail
        size = rows * stage.width
        place: dict[str, Any] = {"per_frame": stage.per_frame, "tail": stage.tail}
        back = 1 / self.scale
        active, hidden, residual = (t.flatten()[: 3 * size] for t in (space.active, space.hidden, space.residual))
        blocks, source = stage.blocks, stage.source
        branch = residual[:size]
        self._conv(
            stage.down, space, space.spectrum[space.halo - stage.stride + 1 :], rows, rows, out=branch, out_act=active,
            alphas=source.before[0], x_row=stage.stride * SPECTRUM_COLUMNS, unscale=1.0, **place,
        )  # fmt: skip
        for step, dilation in enumerate(source.dilations):
            self._conv(
                source.first[step], space, active, rows, rows, out_act=hidden, alphas=source.between[step],
                dilation=dilation, unscale=back, **place,
            )  # fmt: skip
            # What it activates at the end is thrown away: another kernel to compile would cost more.
            following = source.before[min(step + 1, len(source.before) - 1)]
            self._conv(
                source.second[step], space, hidden, rows, rows, out=branch, residual=branch, out_act=active,
                alphas=following, unscale=back, **place,
            )  # fmt: skip
        below = frames * stage.per_frame // stage.rate
        # The stage before had no row more than its frames, whose tail only the last one has.
        self._conv(
            stage.up, space, space.entry, below, below, out=space.base, residual=branch, out_act=active,
            alphas=stage.up_alphas, acts=3, act_group=size, rate=stage.rate, width=stage.width, shift=stage.tail,
            unscale=back, **place,
        )  # fmt: skip
        if stage.tail:
            self._launch(
            kernels.first_row_kernel, (frames,),
                space.base, branch, active, size, blocks.before[0], stage.width, space.meta[START], stage.width,
                stage.per_frame, self.scale, ACTS=3, BLOCK=_power(stage.width),
            )  # fmt: skip
        for step, dilation in enumerate(blocks.dilations):
            self._conv(
                blocks.first[step], space, active, rows, rows, out_act=hidden, alphas=blocks.between[step], groups=3,
                x_group=size, act_group=size, dilation=dilation, unscale=back, **place,
            )  # fmt: skip
            known, group = (space.base, 0) if step == 0 else (residual, size)
            if step + 1 < len(blocks.dilations):
                self._conv(
                    blocks.second[step], space, hidden, rows, rows, out=residual, out_group=size, residual=known,
                    residual_group=group, out_act=active, alphas=blocks.before[step + 1], groups=3, x_group=size,
                    act_group=size, unscale=back, **place,
                )  # fmt: skip
            else:
                self._conv(
                    blocks.second[step], space, hidden, rows, rows, residual=known, residual_group=group,
                    out_act=space.entry, x_group=size, together=3, bias=stage.last_bias, unscale=back,
                    slope=stage.slope, **place,
                )  # fmt: skip

    def _conv(
        self, conv: Convolution, space: Workspace, x: Tensor, in_rows: int, out_rows: int, *, out: Tensor | None = None,
        out_group: int = 0, residual: Tensor | None = None, residual_group: int = 0, out_act: Tensor | None = None,
        act_group: int = 0, alphas: Tensor | None = None, acts: int = 1, groups: int = 1, together: int = 1,
        x_group: int = 0, x_row: int = 0, dilation: int = 1, lead: int = 0, rate: int = 1, width: int = 0,
        shift: int = 0, per_frame: int = 1, tail: int = 0, unscale: float, slope: float = 0.0,
        bias: Tensor | None = None,
    ) -> None:  # fmt: skip
        width = width or conv.outputs
        rows, cols, depth, warps, stages = self.tile(out_rows, conv, width, groups)
        keeps = out is not None or residual is not None
        anything = out_act if out_act is not None else space.hidden
        self._launch(
            kernels.conv_kernel, (-(-out_rows // rows) * (conv.outputs // cols), groups),
            x, x_group, x_row or conv.inputs, conv.weight, *conv.offsets, conv.bias if bias is None else bias,
            self.zeros if residual is None else residual, residual_group, 0 if residual is None else conv.outputs,
            space.base if out is None else out, out_group, anything, act_group,
            self.zeros if alphas is None else alphas, conv.outputs, space.meta[VALID],
            in_rows, out_rows, conv.inputs, conv.outputs, width, *conv.taps, dilation, lead, shift, rate, per_frame,
            tail, unscale, self.scale, slope,
            SUM=together, ACTS=acts, SNAKE=alphas is not None, RESIDUAL=keeps,
            BLOCK_M=rows, BLOCK_N=cols, BLOCK_K=depth,
            PRECISION=self.precision if self.dtype == torch.float32 else "ieee",
            num_warps=warps, num_stages=stages,
        )  # fmt: skip

    def tile(self, rows: int, conv: Convolution, width: int, groups: int) -> tuple[int, int, int, int, int]:
        """Rows, columns and depth of a tile, warps and pipeline stages: the largest tile that still fills the GPU."""
        depth = 64 if conv.inputs % 64 == 0 and self.dtype != torch.float32 else 32
        widest = next(n for n in (128, 64, 32) if width % n == 0)
        choices = [(128, 128, 8), (128, 64, 4), (64, 64, 4), (32, 64, 4), (128, 32, 4), (32, 32, 4)]
        tight = self.dtype == torch.float32 and not self.hopper  # three products do not fit into fewer registers
        fitting = [c for c in choices[tight:] if width % c[1] == 0 and c[1] >= min(widest, 64)]
        filling = (c for c in fitting if -(-rows // c[0]) * (conv.outputs // c[1]) * groups >= self.processors)
        tall, wide, warps = next(filling, fitting[-1])
        return tall, wide, depth, 8 if tight else warps, 3

    def _pitch(self, space: Workspace, frames: int) -> None:
        """Pitch of the frames where it is not known, and all turns within a sample."""
        vocoder, columns = self.vocoder, space.frames.shape[1]
        x, x_row, width = space.frames, columns, vocoder.config.in_channels
        for index, layer in enumerate(self.pitch_layers):
            out, channels = space.pitch[index % 2], layer.weight.shape[1]
            tall, deep = 16 if frames <= 128 else 32, 32 if index and self.hopper else 16
            self._launch(
                around.pitch_conv_kernel, (-(-frames // tall), -(-channels // 32)),
                out, x, x_row, layer.weight, layer.bias, space.meta[VALID], frames, width, channels, layer.taps,
                layer.taps - 1 if index == 0 else 0, BLOCK_M=tall, BLOCK_N=32, BLOCK_K=deep,
            )  # fmt: skip
            x, x_row, width = out, channels, channels
        last = vocoder.f0_predictor.classifier
        self._launch(
            around.pitch_kernel, (frames,),
            space.single_turns, space.frames, columns, x, last.weight, last.bias,
            space.meta[VALID], space.meta[KNOWN], frames, width, float(vocoder.config.sampling_rate),
            HARMONICS=vocoder.harmonics, WIDE=_power(vocoder.harmonics), BLOCK=_power(width), num_warps=4,
        )  # fmt: skip

    def _source(self, space: Workspace, frames: int) -> None:
        """Pitch, excitation and its spectrum."""
        vocoder, config, meta = self.vocoder, self.vocoder.config, space.meta
        self._pitch(space, frames)
        # Along the rows: down the columns PyTorch takes one frame after the other.
        single, total = (
            t[: vocoder.harmonics * frames].view(-1, frames) for t in (space.single_turns, space.total_turns)
        )
        torch.cumsum(single, 1, out=total)
        self._launch(
            around.phase_kernel, (frames,),
            space.sines, space.level, space.turns, space.total_turns, space.offsets, space.frames,
            space.frames.shape[1], meta[FIRST], meta[SLOT], frames, vocoder.frame_samples, config.nsf_voiced_threshold,
            config.nsf_alpha, config.nsf_sigma, HARMONICS=vocoder.harmonics, WIDE=_power(vocoder.harmonics),
            num_warps=1,
        )  # fmt: skip
        samples = frames * vocoder.frame_samples
        self._launch(
            around.source_kernel, (-(-samples // 1024),),
            space.source, space.sines, space.level, vocoder.noise, meta[PLACE], self.mix_weight, self.mix_bias,
            vocoder.frame_samples, vocoder.noise.shape[0], samples, HARMONICS=vocoder.harmonics, BLOCK=1024,
        )  # fmt: skip
        rows = samples // vocoder.hop + 1
        self._launch(
            around.stft_kernel, (-(-rows // 64),),
            space.spectrum[space.halo :], space.source, self.there, space.meta[VALID], space.meta[FIRST],
            space.meta[END], vocoder.frame_samples, rows, frames,
            N_FFT=vocoder.n_fft, HOP=vocoder.hop, COLUMNS=SPECTRUM_COLUMNS, BLOCK=64,
        )  # fmt: skip

    def _inverse(self, space: Workspace, frames: int) -> None:
        vocoder = self.vocoder
        samples = frames * vocoder.frame_samples
        self._launch(
            around.istft_kernel, (-(-samples // 512),),
            space.wave, space.base, self.back, self.window_power, space.meta[VALID], space.meta[FIRST],
            space.meta[END], vocoder.frame_samples, samples, self.post.outputs, MAX_MAGNITUDE,
            vocoder.config.audio_limit, N_FFT=vocoder.n_fft, HOP=vocoder.hop, BINS=vocoder.n_fft // 2 + 1, BLOCK=512,
        )  # fmt: skip
