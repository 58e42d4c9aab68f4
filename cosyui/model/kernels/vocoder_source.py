"""Triton kernels around the vocoder's convolutions: pitch, phases, excitation, its spectrum, and the way back to sound.

Frames, rows and samples are those of a pack (`cosyui.model.vocoder_packed`), a thread of work for each.
"""

# Kernels are not Python functions: their arguments are pointers and numbers that Triton types itself.
# ruff: noqa: ANN001, ANN201, ANN202, N803
# mypy: disable-error-code="no-untyped-def, untyped-decorator, import-not-found, unused-ignore"

from __future__ import annotations

import triton
import triton.language as tl

from cosyui.model.kernels.vocoder import near_sine, reduced


@triton.jit
def _sine(x):
    near, turns = reduced(x)
    sign = 1.0 - 2.0 * (turns - 2.0 * tl.floor(turns * 0.5))
    return sign * near_sine(near)


@triton.jit
def _near_cosine(x):
    """Cosine of -1 to 1 to 3e-9."""
    y = x * x
    return 1.0 + y * (-0.5 + y * (4.1666667e-2 + y * (-1.3888889e-3 + y * (2.4801587e-5 + y * -2.7557319e-7))))


@triton.jit
def pitch_conv_kernel(
    out_ptr, x_ptr, x_row, w_ptr, bias_ptr, valid_ptr, frames, cin, cout, taps, lead,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """One activated convolution of the pitch predictor in float64: tiles of frames times channels, taps in the loop."""
    row = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    cols = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    channel = tl.arange(0, BLOCK_K)
    wide = (cols < cout)[None, :]
    source = row + lead - (taps - 1)
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float64)
    at = 0
    for _ in range(taps * tl.cdiv(cin, BLOCK_K)):
        deep = at + channel < cin
        here = (source >= 0) & (source < frames)
        x = tl.load(x_ptr + source[:, None] * x_row + (at + channel)[None, :], here[:, None] & deep[None, :], other=0.0)
        w = tl.load(w_ptr + (at + channel)[:, None] * cout + cols[None, :], deep[:, None] & wide, other=0.0)
        acc = tl.dot(x.to(tl.float64), w, acc, out_dtype=tl.float64)
        at += BLOCK_K
        if at >= cin:
            at = 0
            source += 1
            w_ptr += cin * cout
    value = acc + tl.load(bias_ptr + cols, mask=cols < cout, other=0.0)[None, :]
    inside = (row < frames) & (tl.load(valid_ptr + row, mask=row < frames, other=0) != 0)
    value = tl.where(inside[:, None], tl.where(value > 0, value, tl.exp(tl.minimum(value, 0.0)) - 1.0), 0.0)
    tl.store(out_ptr + row[:, None] * cout + cols[None, :], value, mask=(row < frames)[:, None] & wide)


@triton.jit
def pitch_kernel(
    turns_ptr, frames_ptr, columns, x_ptr, weight_ptr, last_ptr, valid_ptr, known_ptr, frames, width, rate,
    HARMONICS: tl.constexpr, WIDE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """A frame's pitch from the predictor's last layer, unless it is known, and its harmonics' turns in a sample.

    The pitch goes to the last column of the frames; no turns where it is no number, since all frames are summed up.
    """
    row = tl.program_id(0)
    channel = tl.arange(0, BLOCK)
    mask = channel < width
    value = tl.load(x_ptr + row * width + channel, mask=mask, other=0.0)
    found = tl.sum(value * tl.load(weight_ptr + channel, mask=mask, other=0.0), 0) + tl.load(last_ptr)
    place = frames_ptr + row * columns + columns - 1
    pitch = tl.where(tl.load(known_ptr + row) != 0, tl.load(place), tl.abs(found).to(tl.float32))
    tl.store(place, pitch)
    usable = (pitch < 1e30) & (tl.load(valid_ptr + row) != 0)
    harmonic = tl.arange(0, WIDE)
    turns = tl.where(usable, pitch, 0.0) * (harmonic + 1).to(tl.float32)
    # As on a CPU: a true division, not a product with the inverse. The phase forgives no rounding.
    turns = tl.div_rn(turns, rate + tl.zeros((WIDE,), tl.float32))
    turns = turns - tl.floor(turns)
    tl.store(turns_ptr + harmonic * frames + row, turns.to(tl.float64), mask=harmonic < HARMONICS)


@triton.jit
def phase_kernel(
    sine_ptr, level_ptr, turns_ptr, total_ptr, offset_ptr, frames_ptr, columns, first_ptr, slot_ptr, frames,
    frame_samples, threshold, alpha, sigma, HARMONICS: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """A frame's harmonics and level of noise from the running sum of all turns, less that before its utterance.

    A pitch that is no number makes the level one, too, so that its utterance does not sound well.
    """
    row = tl.program_id(0)
    harmonic = tl.arange(0, WIDE)
    mask = harmonic < HARMONICS
    first = tl.load(first_ptr + row)
    before = tl.load(total_ptr + harmonic * frames + first - 1, mask=mask & (first > 0), other=0.0)
    before -= tl.load(offset_ptr + tl.load(slot_ptr + row) * HARMONICS + harmonic, mask=mask, other=0.0)
    turns = tl.load(total_ptr + harmonic * frames + row, mask=mask, other=0.0) - before
    tl.store(turns_ptr + row * HARMONICS + harmonic, turns, mask=mask)
    pitch = tl.load(frames_ptr + row * columns + columns - 1)
    voiced = (pitch > threshold).to(tl.float32)
    phase = turns.to(tl.float32) * 2.0 * 3.141592653589793 * frame_samples
    tl.store(sine_ptr + row * HARMONICS + harmonic, tl.sin(phase) * alpha * voiced, mask=mask)
    level = voiced * sigma + (1.0 - voiced) * (alpha / 3.0)
    tl.store(level_ptr + row, tl.where(pitch < 1e30, level, float("nan")))


@triton.jit
def source_kernel(
    out_ptr, sine_ptr, level_ptr, noise_ptr, place_ptr, weight_ptr, bias_ptr, frame_samples, period, total,
    HARMONICS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Excitation of each sample: the mix of its frame's harmonics and of noise; ``place``: where a frame's begins."""
    sample = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = sample < total
    frame = sample // frame_samples
    place = tl.load(place_ptr + frame, mask=mask, other=0) + sample % frame_samples
    place = tl.where(place >= period, place - period, place)
    level = tl.load(level_ptr + frame, mask=mask, other=0.0)
    mixed = tl.zeros((BLOCK,), tl.float32) + tl.load(bias_ptr)
    for harmonic in tl.static_range(HARMONICS):
        sine = tl.load(sine_ptr + frame * HARMONICS + harmonic, mask=mask, other=0.0)
        noise = tl.load(noise_ptr + place * HARMONICS + harmonic, mask=mask, other=0.0)
        mixed += tl.load(weight_ptr + harmonic) * (sine + level * noise)
    grown = tl.exp(-2.0 * tl.abs(mixed))
    value = (1.0 - grown) / (1.0 + grown)
    tl.store(out_ptr + sample, tl.where(mixed < 0, -value, value), mask=mask)


@triton.jit
def stft_kernel(
    out_ptr, source_ptr, basis_ptr, valid_ptr, first_ptr, end_ptr, frame_samples, rows, frames,
    N_FFT: tl.constexpr, HOP: tl.constexpr, COLUMNS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Spectrum rows of the source, reflected at the ends of each utterance; zeros in the gaps."""
    row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    here = row < rows
    per_frame = frame_samples // HOP
    frame = tl.where(here, row // per_frame, 0)
    inside = tl.load(valid_ptr + frame) != 0
    behind = (row % per_frame == 0) & (frame > 0) & (inside == 0)
    frame = tl.where(behind, frame - 1, frame)
    inside = here & (inside | (tl.load(valid_ptr + frame) != 0))
    low = tl.load(first_ptr + frame) * frame_samples
    high = tl.load(end_ptr + frame) * frame_samples
    column = tl.arange(0, COLUMNS)
    acc = tl.zeros((BLOCK, COLUMNS), tl.float32)
    for tap in tl.static_range(N_FFT):
        at = row * HOP - N_FFT // 2 + tap
        at = tl.where(at < low, 2 * low - at, at)
        at = tl.where(at >= high, 2 * (high - 1) - at, at)
        value = tl.load(source_ptr + at, mask=inside & (at >= low), other=0.0)
        acc += value[:, None] * tl.load(basis_ptr + tap * COLUMNS + column)[None, :]
    tl.store(out_ptr + row[:, None] * COLUMNS + column[None, :], acc.to(out_ptr.dtype.element_ty), mask=here[:, None])


@triton.jit
def istft_kernel(
    out_ptr, x_ptr, basis_ptr, weight_ptr, valid_ptr, first_ptr, end_ptr, frame_samples, total, width, top, limit,
    N_FFT: tl.constexpr, HOP: tl.constexpr, BINS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Samples of an utterance from rows of log magnitudes and phases: window, overlap, add."""
    sample = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = sample < total
    frame = tl.where(mask, sample // frame_samples, 0)
    inside = mask & (tl.load(valid_ptr + frame) != 0)
    per_frame = frame_samples // HOP
    low = tl.load(first_ptr + frame) * per_frame
    high = tl.load(end_ptr + frame) * per_frame
    acc = tl.zeros((BLOCK,), tl.float32)
    weight = tl.zeros((BLOCK,), tl.float32)
    for part in tl.static_range(N_FFT // HOP):
        row = sample // HOP + part - (N_FFT // HOP - 1 - N_FFT // HOP // 2)
        tap = sample - row * HOP + N_FFT // 2
        heard = inside & (row >= low) & (row <= high)
        weight += tl.load(weight_ptr + tap, mask=heard, other=0.0)
        for level in range(BINS):
            log = tl.load(x_ptr + row * width + level, mask=heard, other=0.0)
            angle = _sine(tl.load(x_ptr + row * width + BINS + level, mask=heard, other=0.0))
            size = tl.minimum(tl.exp(log), top, propagate_nan=tl.PropagateNan.ALL)
            real = tl.load(basis_ptr + tap * 2 * BINS + level, mask=heard, other=0.0)
            imag = tl.load(basis_ptr + tap * 2 * BINS + BINS + level, mask=heard, other=0.0)
            acc += tl.where(heard, size * (real * _near_cosine(angle) + imag * near_sine(angle)), 0.0)
    value = acc / tl.maximum(weight, 1e-11)
    value = tl.minimum(value, limit, propagate_nan=tl.PropagateNan.ALL)
    value = tl.maximum(value, -limit, propagate_nan=tl.PropagateNan.ALL)
    tl.store(out_ptr + sample, tl.where(inside, value, 0.0), mask=mask)
