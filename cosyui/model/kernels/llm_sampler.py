"""Triton kernels around a decode step: rows of the speech table in, one drawn token per row out.

`sample` draws from the distribution of `cosyui.model.sampler.sample`, one program a row, and moves the row's state on.
"""

# Kernels are not Python functions: Triton types their arguments itself.
# ruff: noqa: ANN001, ANN202, N803
# mypy: disable-error-code="no-untyped-def, untyped-decorator, import-not-found, no-any-return, unused-ignore"

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl
from torch import Tensor

from cosyui.model.config import LLMConfig, SamplingConfig
from cosyui.model.kernels.launch import begin, wait

if TYPE_CHECKING:
    from cosyui.model.llm_decode import SlotState


@triton.jit(do_not_specialize_on_alignment=["codes"])
def _embed_kernel(
    rows, token, pending, codes, table, x, HIDDEN: tl.constexpr, HIDDEN_P: tl.constexpr, PDL: tl.constexpr
):
    begin(PDL)
    wait(PDL)
    r = tl.program_id(0)
    slot = tl.load(rows + r).to(tl.int64)
    tl.store(codes + r, tl.load(pending + slot))
    tl.store(pending + slot, -1)
    h = tl.arange(0, HIDDEN_P)
    row = tl.load(table + tl.load(token + slot).to(tl.int64) * HIDDEN + h, mask=h < HIDDEN, other=0.0)
    tl.store(x + r * HIDDEN + h, row.to(tl.float32), mask=h < HIDDEN)


@triton.jit
def _drawn(weight, count, uniform, lane):
    """The lane that inverts the running sum of ``weight`` float64 at ``uniform``; never one of weight 0."""
    running = tl.cumsum(weight, 0)
    target = uniform * tl.max(running, 0)
    index = tl.sum(((running <= target) & (lane < count)).to(tl.int32), 0)
    return tl.minimum(index, tl.max(tl.where(weight > 0.0, lane, 0), 0))


@triton.jit(do_not_specialize_on_alignment=["codes", "rows"])
def _sample_kernel(
    logits, rows, token, position, count, minimum, maximum, active, history, uniforms, codes, table, x, capacity,
    V: tl.constexpr, BV: tl.constexpr, SOS: tl.constexpr, TOP_P: tl.constexpr, TOP_K: tl.constexpr,
    LANES: tl.constexpr, WINDOW: tl.constexpr, WINDOW_P: tl.constexpr, REPEATS: tl.constexpr, HIDDEN: tl.constexpr,
    HIDDEN_P: tl.constexpr, BY_SLOT: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    begin(PDL)
    wait(PDL)
    r = tl.program_id(0)
    slot = tl.load(rows + r).to(tl.int64)
    place = codes + r
    if BY_SLOT:
        place = codes + slot
    now = tl.load(token + slot)
    if tl.load(active + slot) == 0:
        tl.store(place, -1)
    else:
        done = tl.load(count + slot)
        v = tl.arange(0, BV)
        z = tl.load(logits + r * V + v, mask=v < V, other=0.0)
        bad = tl.max(tl.where(z - z == 0.0, 0, 1), 0)
        fence = tl.where(done < tl.load(minimum + slot), SOS, V)
        z = tl.where(v < fence, z, float("-inf"))
        e = tl.exp(z - tl.max(z, 0))
        p = e / tl.sum(e, 0)
        # Probabilities are not negative, so their bits order like integers; equal ones fall in order of id.
        key = (p.to(tl.int32, bitcast=True).to(tl.int64) << 32) | (BV - 1 - v).to(tl.int64)
        lane = tl.arange(0, LANES)
        ids = tl.zeros((LANES,), tl.int32)
        weight = tl.zeros((LANES,), tl.float32)
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
        own = uniforms + (slot * capacity + done) * 2
        chosen = _drawn(weight.to(tl.float64), taken, tl.load(own), lane)
        picked = tl.sum(tl.where(lane == chosen, ids, 0), 0)
        w = tl.arange(0, WINDOW_P)
        past = tl.load(history + slot * WINDOW + w, mask=w < WINDOW, other=-1)
        if tl.sum((past == picked).to(tl.int32), 0) >= REPEATS:
            rest = tl.where(v == picked, 0.0, p.to(tl.float64))
            picked = _drawn(rest, V, tl.load(own + 1), v)
        go = (bad == 0) & (picked < SOS)
        tl.store(place, tl.where(bad != 0, -2, tl.where(picked >= SOS, -3, picked)))
        tl.store(active + slot, (go & (done + 1 < tl.load(maximum + slot))).to(tl.int32))
        if go:
            now = picked
            tl.store(token + slot, picked)
            tl.store(count + slot, done + 1)
            tl.store(position + slot, tl.load(position + slot) + 1)
            tl.store(history + slot * WINDOW + done % WINDOW, picked)
    h = tl.arange(0, HIDDEN_P)
    row = tl.load(table + now.to(tl.int64) * HIDDEN + h, mask=h < HIDDEN, other=0.0)
    tl.store(x + r * HIDDEN + h, row.to(tl.float32), mask=h < HIDDEN)


def embed(
    rows: Tensor, token: Tensor, pending: Tensor, codes: Tensor, table: Tensor, x: Tensor, pdl: bool = False
) -> None:
    """``x`` (R, hidden) float32 = ``table`` at each slot's ``token``; ``pending`` codes move to ``codes`` (R,)."""
    hidden = table.shape[1]
    _embed_kernel[(len(rows),)](
        rows, token, pending, codes, table, x,
        HIDDEN=hidden, HIDDEN_P=triton.next_power_of_2(hidden), PDL=pdl, num_warps=4, launch_pdl=pdl,
    )  # fmt: skip


def sample(
    logits: Tensor, rows: Tensor, state: SlotState, config: LLMConfig, codes: Tensor, table: Tensor, x: Tensor, *,
    by_slot: bool = False, pdl: bool = False, warps: int = 8,
) -> None:  # fmt: skip
    """Draw a token for each row of ``logits`` (R, V) float32 and move its slot's state on.

    ``codes`` (R,) int32 gets the token or a code; with ``by_slot`` it is (slots,) and each goes to its slot's place.
    ``x`` (R, hidden) float32 gets the row of ``table`` that the next step feeds.
    """
    size, hidden, rule = logits.shape[1], table.shape[1], config.sampling
    _sample_kernel[(len(rows),)](
        logits, rows, state.token, state.position, state.count, state.minimum, state.maximum, state.active,
        state.history, state.uniforms, codes, table, x, state.uniforms.shape[1],
        V=size, BV=triton.next_power_of_2(size), SOS=config.speech_token_size, TOP_P=rule.top_p,
        TOP_K=min(rule.top_k, size), LANES=triton.next_power_of_2(min(rule.top_k, size)),
        WINDOW=state.history.shape[1], WINDOW_P=triton.next_power_of_2(state.history.shape[1]),
        REPEATS=repeats_needed(rule), HIDDEN=hidden, HIDDEN_P=triton.next_power_of_2(hidden), BY_SLOT=by_slot,
        PDL=pdl, num_warps=warps, launch_pdl=pdl,
    )  # fmt: skip


def repeats_needed(rule: SamplingConfig) -> int:
    """The least count in the window that `cosyui.model.sampler.repeats` calls a repetition (it compares in float32)."""
    return math.ceil(torch.tensor(rule.win_size * rule.tau_r, dtype=torch.float32).item())
