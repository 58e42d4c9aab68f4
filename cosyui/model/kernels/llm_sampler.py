"""Triton kernels around a decode step: rows of the speech table in, one drawn token per row out.

`sample` draws from the distribution of `cosyui.model.sampler.sample`, one program a row, and moves the row's state on.
"""

# Kernels are not Python functions: Triton types their arguments itself.
# ruff: noqa: ANN001, ANN202, N803
# mypy: disable-error-code="no-untyped-def, untyped-decorator, import-not-found, no-any-return, unused-ignore"

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from cosyui.model.config import LLMConfig, SamplingConfig
from cosyui.model.llm_decode import STREAM_SCALE

if TYPE_CHECKING:
    from cosyui.model.llm_decode import SlotState, StepRows


GROUPS = 128
"""A row's ids are dealt to so many groups."""
SHORT = 128
"""Length of the list of candidates."""


@triton.jit
def _enter(
    r, token, position, table, norm, cos, sin, x, h, squares, at, turn, scale,
    HIDDEN: tl.constexpr, HIDDEN_P: tl.constexpr, HALF: tl.constexpr, HALF_P: tl.constexpr, ROOM: tl.constexpr,
    ROOM_P: tl.constexpr,
):  # fmt: skip
    """Row ``r`` of a step's stream from ``token``, which stands at ``position``."""
    n = tl.arange(0, HIDDEN_P)
    row = tl.load(table + token.to(tl.int64) * HIDDEN + n, mask=n < HIDDEN, other=0.0).to(tl.float32)
    weight = tl.load(norm + n, mask=n < HIDDEN, other=0.0).to(tl.float32)
    tl.store(x + r * HIDDEN + n, row, mask=n < HIDDEN)
    tl.store(h + r * HIDDEN + n, (row * weight * scale).to(h.dtype.element_ty), mask=n < HIDDEN)
    p = tl.arange(0, ROOM_P)
    tl.store(squares + r * ROOM + p, tl.where(p == 0, tl.sum(row * row, 0), 0.0), mask=p < ROOM)
    tl.store(at + r, position)
    i = tl.arange(0, HALF_P)
    tl.store(turn + r * 2 * HALF + i, tl.load(cos + position * HALF + i, mask=i < HALF, other=0.0), mask=i < HALF)
    tl.store(turn + (r * 2 + 1) * HALF + i, tl.load(sin + position * HALF + i, mask=i < HALF, other=0.0), mask=i < HALF)


@triton.jit(do_not_specialize_on_alignment=["codes"])
def _embed_kernel(
    slot_of, token, position, pending, codes, table, norm, cos, sin, x, h, squares, at, turn, scale,
    HIDDEN: tl.constexpr, HIDDEN_P: tl.constexpr, HALF: tl.constexpr, HALF_P: tl.constexpr, ROOM: tl.constexpr,
    ROOM_P: tl.constexpr,
):  # fmt: skip
    r = tl.program_id(0)
    slot = tl.load(slot_of + r).to(tl.int64)
    tl.store(codes + r, tl.load(pending + slot))
    tl.store(pending + slot, -1)
    _enter(
        r, tl.load(token + slot), tl.load(position + slot), table, norm, cos, sin, x, h, squares, at, turn, scale,
        HIDDEN, HIDDEN_P, HALF, HALF_P, ROOM, ROOM_P,
    )  # fmt: skip


@triton.jit
def _drawn(weight, count, uniform, lane):
    """The lane that inverts the running sum of ``weight`` float64 at ``uniform``; never one of weight 0."""
    running = tl.cumsum(weight, 0)
    target = uniform * tl.max(running, 0)
    index = tl.sum(((running <= target) & (lane < count)).to(tl.int32), 0)
    return tl.minimum(index, tl.max(tl.where(weight > 0.0, lane, 0), 0))


@triton.jit
def _largest_one_by_one(bits, v, lane, TOP_P: tl.constexpr, TOP_K: tl.constexpr, BV: tl.constexpr):
    """The candidates by as many maxima over all: for rows where too many are alike."""
    key = (bits.to(tl.int64) << 32) | (BV - 1 - v).to(tl.int64)
    ids = lane * 0
    weight = lane.to(tl.float32) * 0.0
    taken = 0
    before = 0.0
    while (taken < TOP_K) & (before < TOP_P):
        best = tl.max(key, 0)
        index = BV - 1 - (best & 0xFFFFFFFF).to(tl.int32)
        value = (best >> 32).to(tl.int32).to(tl.float32, bitcast=True)
        ids = tl.where(lane == taken, index, ids)
        weight = tl.where(lane == taken, value, weight)
        key = tl.where(v == index, -1, key)
        before += value
        taken += 1
    return ids, weight


@triton.jit
def _largest(
    p, v, lane, short, r, TOP_P: tl.constexpr, TOP_K: tl.constexpr, BV: tl.constexpr, GROUPS: tl.constexpr,
    SHORT: tl.constexpr,
):  # fmt: skip
    """Ids and probabilities of the candidates in falling order, ties in order of id; 0 beyond the nucleus.

    The ``TOP_K``-th largest of the maxima of ``GROUPS`` groups is a bound that at least ``TOP_K`` reach and few others.
    Those go to a short list (``short``) in order of id, where each counts who is before it.
    """
    bits = p.to(tl.int32, bitcast=True)  # not negative, so that they order like the numbers
    most = tl.max(bits.reshape(BV // GROUPS, GROUPS), 0)
    g = tl.arange(0, GROUPS)
    key = (most.to(tl.int64) << 32) | (GROUPS - 1 - g).to(tl.int64)
    rank = tl.sum((key[None, :] > key[:, None]).to(tl.int32), 1)
    bound = tl.max(tl.where(rank == min(TOP_K, GROUPS) - 1, most, 0), 0)
    chosen = bits >= bound
    place = tl.cumsum(chosen.to(tl.int32), 0) - 1
    count = tl.max(place, 0) + 1
    if (count > SHORT) | (GROUPS < TOP_K):
        ids, weight = _largest_one_by_one(bits, v, lane, TOP_P, TOP_K, BV)
    else:
        own = short + r * 2 * SHORT
        tl.store(own + place, v, mask=chosen)
        tl.store(own + SHORT + place, bits, mask=chosen)
        tl.debug_barrier()
        s = tl.arange(0, SHORT)
        its = tl.load(own + s, mask=s < count, other=0)
        value = tl.load(own + SHORT + s, mask=s < count, other=-1)
        order = (value.to(tl.int64) << 32) | (SHORT - 1 - s).to(tl.int64)
        before = tl.sum((order[None, :] > order[:, None]).to(tl.int32), 1)
        here = (before[:, None] == lane[None, :]) & (lane < TOP_K)[None, :]
        ids = tl.sum(tl.where(here, its[:, None], 0), 0)
        weight = tl.sum(tl.where(here, tl.maximum(value, 0)[:, None], 0), 0).to(tl.float32, bitcast=True)
        wide = weight.to(tl.float64)
        weight = tl.where(tl.cumsum(wide, 0) - wide < TOP_P, weight, 0.0)
    return ids, weight


@triton.jit(do_not_specialize=["by_slot"], do_not_specialize_on_alignment=["codes", "slot_of"])
def _sample_kernel(
    logits, slot_of, token, position, count, minimum, maximum, active, history, uniforms, codes, short, table, norm,
    cos, sin, x, h, squares, at, turn, scale, capacity, by_slot,
    V: tl.constexpr, BV: tl.constexpr, SOS: tl.constexpr, TOP_P: tl.constexpr, TOP_K: tl.constexpr,
    LANES: tl.constexpr, GROUPS: tl.constexpr, SHORT: tl.constexpr, WINDOW: tl.constexpr, WINDOW_P: tl.constexpr,
    REPEATS: tl.constexpr, HIDDEN: tl.constexpr, HIDDEN_P: tl.constexpr, HALF: tl.constexpr, HALF_P: tl.constexpr,
    ROOM: tl.constexpr, ROOM_P: tl.constexpr,
):  # fmt: skip
    r = tl.program_id(0)
    slot = tl.load(slot_of + r).to(tl.int64)
    place = codes + tl.where(by_slot != 0, slot, r)
    now = tl.load(token + slot)
    stands = tl.load(position + slot)
    runs = tl.load(active + slot)
    done = tl.load(count + slot)
    fence = tl.where(done < tl.load(minimum + slot), SOS, V)
    last = done + 1 >= tl.load(maximum + slot)
    own = uniforms + (slot * capacity + tl.minimum(done, capacity - 1)) * 2
    one, two = tl.load(own), tl.load(own + 1)
    w = tl.arange(0, WINDOW_P)
    past = tl.load(history + slot * WINDOW + w, mask=w < WINDOW, other=-1)
    if runs == 0:
        tl.store(place, -1)
    else:
        v = tl.arange(0, BV)
        z = tl.load(logits + r * V + v, mask=v < V, other=0.0)
        bad = tl.max(tl.where(z - z == 0.0, 0, 1), 0)
        z = tl.where(v < fence, z, float("-inf"))
        e = tl.exp(z - tl.max(z, 0))
        p = e / tl.sum(e, 0)
        lane = tl.arange(0, LANES)
        picked = 0
        if bad == 0:
            ids, weight = _largest(p, v, lane, short, r, TOP_P, TOP_K, BV, GROUPS, SHORT)
            chosen = _drawn(weight.to(tl.float64), LANES, one, lane)
            picked = tl.sum(tl.where(lane == chosen, ids, 0), 0)
        if tl.sum((past == picked).to(tl.int32), 0) >= REPEATS:
            rest = tl.where(v == picked, 0.0, p.to(tl.float64))
            picked = _drawn(rest, V, two, v)
        go = (bad == 0) & (picked < SOS)
        tl.store(place, tl.where(bad != 0, -2, tl.where(picked >= SOS, -3, picked)))
        tl.store(active + slot, (go & (last == 0)).to(tl.int32))
        if go:
            now = picked
            stands += 1
            tl.store(token + slot, picked)
            tl.store(count + slot, done + 1)
            tl.store(position + slot, stands)
            tl.store(history + slot * WINDOW + done % WINDOW, picked)
    _enter(
        r, now, stands, table, norm, cos, sin, x, h, squares, at, turn, scale,
        HIDDEN, HIDDEN_P, HALF, HALF_P, ROOM, ROOM_P,
    )  # fmt: skip


class Entry(NamedTuple):
    """What makes a token the stream's row: ``table``, the weight of the first ``norm``, ``cos``/``sin`` (cap, D/2)."""

    table: Tensor
    norm: Tensor
    cos: Tensor
    sin: Tensor


def _sizes(entry: Entry, stream: StepRows) -> dict[str, int]:
    hidden, half, room = entry.table.shape[1], entry.cos.shape[1], stream.squares.shape[1]
    power = triton.next_power_of_2
    return {
        "HIDDEN": hidden,
        "HIDDEN_P": power(hidden),
        "HALF": half,
        "HALF_P": power(half),
        "ROOM": room,
        "ROOM_P": power(room),
    }


def embed(state: SlotState, codes: Tensor, entry: Entry, stream: StepRows) -> None:
    """The ``stream``'s rows from each slot's token and position; ``pending`` codes move to ``codes`` (R,)."""
    _embed_kernel[(len(stream.slot),)](
        stream.slot, state.token, state.position, state.pending, codes, *entry, stream.x, stream.h, stream.squares,
        stream.at, stream.turn, 1 / STREAM_SCALE, **_sizes(entry, stream), num_warps=4,
    )  # fmt: skip


def sample(
    logits: Tensor, state: SlotState, config: LLMConfig, codes: Tensor, short: Tensor, entry: Entry, stream: StepRows,
    *, by_slot: bool = False,
) -> None:  # fmt: skip
    """Draw a token for each row of ``logits`` (R, V) float32, move its slot's state on and enter the next step.

    ``codes`` (R,) int32 gets the token or a code; with ``by_slot`` it is (slots,) and each goes to its slot's place.
    ``short``: scratch (R, 2 SHORT) int32.
    """
    size, rule = logits.shape[1], config.sampling
    padded = max(2, triton.next_power_of_2(size))
    _sample_kernel[(len(logits),)](
        logits, stream.slot, state.token, state.position, state.count, state.minimum, state.maximum, state.active,
        state.history, state.uniforms, codes, short, *entry, stream.x, stream.h, stream.squares, stream.at,
        stream.turn, 1 / STREAM_SCALE, state.uniforms.shape[1], int(by_slot),
        V=size, BV=padded, SOS=config.speech_token_size, TOP_P=rule.top_p,
        TOP_K=min(rule.top_k, size), LANES=triton.next_power_of_2(min(rule.top_k, size)),
        GROUPS=min(GROUPS, padded // 2), SHORT=SHORT,
        WINDOW=state.history.shape[1], WINDOW_P=triton.next_power_of_2(state.history.shape[1]),
        REPEATS=repeats_needed(rule), num_warps=8,
        **_sizes(entry, stream),
    )  # fmt: skip


def repeats_needed(rule: SamplingConfig) -> int:
    """The least count in the window that `cosyui.model.sampler.repeats` calls a repetition (it compares in float32)."""
    return math.ceil(torch.tensor(rule.win_size * rule.tau_r, dtype=torch.float32).item())
