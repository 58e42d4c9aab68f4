"""Triton kernels of the vocoder's convolutions over rows, with all that is done between two of them.

Signals are rows of channels, several utterances one after another with gaps between them (`cosyui.model.
vocoder_packed`). A convolution is an implicit matrix product: a tile of rows times all of a block of channels, the taps
in the loop. What follows a convolution is done on the tile while it is in registers, so the snake, the residual sum and
the zeros of the gaps cost no pass over memory: a kernel reads inputs that are already activated, and writes the
activated input of the next one beside the residual stream, which is float32. Activations are stored scaled so that
float16 holds them.
"""

# Kernels are not Python functions: their arguments are pointers and numbers that Triton types itself.
# ruff: noqa: ANN001, ANN201, ANN202, N803
# mypy: disable-error-code="no-untyped-def, untyped-decorator, import-not-found, unused-ignore"

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _valid(valid_ptr, row, per_frame, tail):
    """1 for rows inside an utterance, 0 in gaps; with ``tail`` the row behind its last frame is inside, too."""
    frame = row // per_frame
    inside = tl.load(valid_ptr + frame) != 0
    at_border = (row % per_frame == 0) & (frame > 0) & (tail != 0)
    return inside | (tl.load(valid_ptr + frame - 1, mask=at_border, other=0) != 0)


@triton.jit
def near_sine(x):
    """Sine of -pi/2 to pi/2 to 6e-8, by its series."""
    y = x * x
    tail = 2.7557319e-6 + y * -2.5052108e-8
    return x * (1.0 + y * (-1.6666667e-1 + y * (8.3333333e-3 + y * (-1.9841270e-4 + y * tail))))


@triton.jit
def reduced(x):
    """x less the next multiple of pi, and that multiple. Exact to 1e-7 up to thousands, which nothing here exceeds:
    the library's sine is exact for all, at ten times the instructions and compile time."""
    turns = tl.floor(x * 0.31830988618 + 0.5)
    return ((x - turns * 3.140625) - turns * 9.67502593994140625e-4) - turns * 1.509957990978376e-7, turns


@triton.jit
def _snake(x, alpha):
    near, _turns = reduced(x * alpha)
    wave = near_sine(near)
    return x + tl.minimum(wave * wave, 1.0) * (1.0 / (alpha + 1e-9))


@triton.jit
def _taps(
    acc, x_ptr, w_ptr, row, in_rows, x_row, taps, dilation, lead, cin, cout, cols, busy,
    BLOCK_K: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Add the convolution of one group to ``acc``; rows before the first and behind the last are zero."""
    channel = tl.arange(0, BLOCK_K)
    source = row + lead - (taps - 1) * dilation
    w_ptr += cols[None, :] * cin + channel[:, None]
    at = 0  # and not step % blocks: a division in the loop is in the way of its loads
    for _ in range(taps * (cin // BLOCK_K) * busy):
        mask = (source >= 0) & (source < in_rows)
        x = tl.load(x_ptr + source[:, None] * x_row + (at + channel)[None, :], mask=mask[:, None], other=0.0)
        w = tl.load(w_ptr + at)
        acc = tl.dot(x, w, acc, input_precision=PRECISION)
        at += BLOCK_K
        if at == cin:
            at = 0
            source += dilation
            w_ptr += cout * cin
    return acc


compiling_on = triton.AsyncCompileMode
"""Within it, ``warmup`` of a kernel compiles on an executor."""
NUMBERS = ("in_rows", "out_rows", "taps0", "taps1", "taps2", "dilation", "lead", "shift", "rate", "per_frame", "tail")
"""Compiled in by no kernel, so that there are few of them to compile."""


@triton.jit(do_not_specialize=NUMBERS)
def conv_kernel(
    x_ptr, x_group, x_row, w_ptr, w0, w1, w2, bias_ptr, residual_ptr, residual_group, residual_row,
    out_ptr, out_group, act_ptr, act_group, alpha_ptr, alpha_group, valid_ptr,
    in_rows, out_rows, cin, cout, width, taps0, taps1, taps2, dilation, lead, shift, rate, per_frame, tail,
    unscale, scale, slope,
    SUM: tl.constexpr, ACTS: tl.constexpr, SNAKE: tl.constexpr, RESIDUAL: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Rows of one or more convolutions (groups; the last axis of the grid), or the mean of ``SUM`` of them.

    Row r, column c of the product is row ``r * rate + c // width + shift``, channel ``c % width`` of the output.
    Without RESIDUAL the sum is only stored activated; with it the sum of product, bias and residual is stored in
    float32, too, unless it is a mean. ACTS activations are stored, each with its own alpha.
    """
    tiles = cout // BLOCK_N
    tile = tl.program_id(0)
    group = tl.program_id(1)
    row = (tile // tiles) * BLOCK_M + tl.arange(0, BLOCK_M)
    first = (tile % tiles) * BLOCK_N
    cols = first + tl.arange(0, BLOCK_N)
    target = row * rate + first // width + shift
    here = row < out_rows
    inside = here & _valid(valid_ptr, tl.where(here, target, 0), per_frame, tail)
    busy = tl.max(inside.to(tl.int32), 0)
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    if SUM == 1:
        taps = tl.where(group == 0, taps0, tl.where(group == 1, taps1, taps2))
        weight = tl.where(group == 0, w0, tl.where(group == 1, w1, w2))
        acc = _taps(
            acc, x_ptr + group * x_group, w_ptr + weight, row, in_rows, x_row, taps, dilation, lead, cin, cout, cols,
            busy, BLOCK_K, PRECISION,
        )  # fmt: skip
    else:
        for part in tl.static_range(SUM):
            taps = taps0 if part == 0 else (taps1 if part == 1 else taps2)
            weight = w0 if part == 0 else (w1 if part == 1 else w2)
            acc = _taps(
                acc, x_ptr + part * x_group, w_ptr + weight, row, in_rows, x_row, taps, dilation, lead, cin, cout,
                cols, busy, BLOCK_K, PRECISION,
            )  # fmt: skip
    value = acc * unscale + tl.load(bias_ptr + group * cout + cols)[None, :]
    at = row[:, None] * cout + cols[None, :] + shift * width
    if RESIDUAL:
        known = row[:, None] * residual_row + cols[None, :] + shift * width * (residual_row != 0).to(tl.int32)
        if SUM == 1:
            value += tl.load(residual_ptr + group * residual_group + known, mask=here[:, None], other=0.0)
            tl.store(out_ptr + group * out_group + at, value, mask=here[:, None])
        else:
            for part in tl.static_range(SUM):
                value += tl.load(residual_ptr + part * residual_group + known, mask=here[:, None], other=0.0)
            value = value / SUM
    for act in tl.static_range(ACTS):
        if SNAKE:
            alpha = tl.load(alpha_ptr + (group + act) * alpha_group + cols)[None, :]
            active = _snake(value, alpha)
        else:
            active = tl.where(value > 0, value, value * slope)
        active = tl.where(inside[:, None], active * scale, 0.0).to(act_ptr.dtype.element_ty)
        tl.store(act_ptr + (group + act) * act_group + at, active, mask=here[:, None])


@triton.jit
def first_row_kernel(
    x_ptr, branch_ptr, act_ptr, act_group, alpha_ptr, alpha_group, start_ptr, width, per_frame, scale,
    ACTS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The row before an utterance's first of the last stage is that of its second: a reflection by one row.

    ``x`` is the sum of that signal and of the source branch, which is taken out and put in at its own place.
    """
    frame = tl.program_id(0)
    if tl.load(start_ptr + frame) != 0:
        channel = tl.arange(0, BLOCK)
        mask = channel < width
        to = frame * per_frame * width + channel
        other = to + 2 * width
        value = tl.load(x_ptr + other, mask=mask, other=0.0) - tl.load(branch_ptr + other, mask=mask, other=0.0)
        value += tl.load(branch_ptr + to, mask=mask, other=0.0)
        tl.store(x_ptr + to, value, mask=mask)
        for act in tl.static_range(ACTS):
            alpha = tl.load(alpha_ptr + act * alpha_group + channel, mask=mask, other=1.0)
            active = (_snake(value, alpha) * scale).to(act_ptr.dtype.element_ty)
            tl.store(act_ptr + act * act_group + to, active, mask=mask)
