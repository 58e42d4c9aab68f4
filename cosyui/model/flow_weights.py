"""The flow's weights as the packed solver wants them: fused projections, and the layers' constants of every step."""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cosyui.model.config import FlowConfig
from cosyui.model.dit import Block, DiT, time_features
from cosyui.model.flow import time_steps

SHRINK = 1 / 16
"""Factor on what attention and feed-forward add to the residual stream while it is in the weights' dtype."""

Modulation = Literal["keep", "host", "drop"]
"""What becomes of the weights that only feed the constants: left alone, moved to the CPU, or freed."""


class BlockWeights(NamedTuple):
    """Of one transformer block; ``out_bias`` and ``down_bias`` are shrunk."""

    qkv: Tensor
    qkv_bias: Tensor
    out: Tensor
    out_bias: Tensor
    up: Tensor
    up_bias: Tensor
    down: Tensor
    down_bias: Tensor


def modulation_table(estimator: DiT, config: FlowConfig) -> Tensor:
    """Constants of every Euler step, (steps, 6 * layers + 2, dim) float32.

    Per layer shift, 1 + scale and gate of attention, then of feed-forward; last 1 + scale and shift of the output. The
    gates undo `SHRINK`.
    """
    first, _, second = estimator.time_embed.time_mlp
    assert isinstance(first, nn.Linear) and isinstance(second, nn.Linear)  # noqa: PT018

    def linear(layer: nn.Linear, y: Tensor) -> Tensor:
        return F.linear(y, layer.weight.float(), layer.bias.float())

    t = torch.tensor([t for t, _ in time_steps(config.steps)], device=first.weight.device)
    time = F.silu(linear(second, F.silu(linear(first, time_features(t)))))
    rows = []
    for block in estimator.transformer_blocks:
        assert isinstance(block, Block)
        six = linear(block.attn_norm.linear, time).view(config.steps, 6, config.dim)
        six[:, [1, 4]] += 1
        six[:, [2, 5]] /= SHRINK
        rows.append(six)
    two = linear(estimator.norm_out.linear, time).view(config.steps, 2, config.dim)
    two[:, 0] += 1
    return torch.cat([*rows, two], dim=1)


def dispose(estimator: DiT, modulation: Modulation) -> None:
    if modulation == "keep":
        return
    used_up: list[nn.Module] = [estimator.time_embed, estimator.norm_out]
    used_up += [block.attn_norm for block in estimator.transformer_blocks if isinstance(block, Block)]
    for module in used_up:
        for weight in module.parameters():
            weight.data = weight.data.cpu() if modulation == "host" else weight.data.new_empty(0)


def fuse(block: Block) -> BlockWeights:
    """Joins the projections of queries, keys and values; the module's become views of the joined one."""
    attn, up, down = block.attn, block.ff.ff[0], block.ff.ff[2]
    out = attn.to_out[0]
    assert isinstance(up, nn.Sequential)
    up = up[0]
    assert isinstance(up, nn.Linear) and isinstance(down, nn.Linear) and isinstance(out, nn.Linear)  # noqa: PT018
    three = (attn.to_q, attn.to_k, attn.to_v)
    weight, bias = torch.cat([y.weight.data for y in three]), torch.cat([y.bias.data for y in three])
    for layer, w, b in zip(three, weight.chunk(3), bias.chunk(3), strict=True):
        layer.weight.data, layer.bias.data = w, b
    shrunk = [(layer.bias * SHRINK) for layer in (out, down)]
    return BlockWeights(weight, bias, out.weight, shrunk[0], up.weight, up.bias, down.weight, shrunk[1])
