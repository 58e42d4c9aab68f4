"""How the kernels of a decode step are launched, for small and for large batches. No kernels here."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from cosyui.model.config import LLMConfig

ROW_TILE = 16
"""Rows of one product: those of the tensor cores' instruction."""


def power_of_two(size: int) -> int:
    """The least one that is not below ``size``."""
    return 1 << max(0, size - 1).bit_length()


WHOLE_ROWS = 16
"""Of a step that is one kernel: beyond, products that keep more rows in a block are faster, and work beside others."""
WHOLE_WARPS, WHOLE_LINE = 14, 68
"""Of its blocks; and floats of what a part of attention gives for one head. As in ``decode/layout.cuh``."""


def whole_mail(config: LLMConfig, capacity: int) -> int:
    """MAIL of ``decode/layout.cuh``: halves that its blocks hand each other for one row of a layer."""
    query, parts = config.heads * config.head_dim, -(-capacity // (32 * WHOLE_WARPS))
    halves = 2 * query + 2 * config.kv_heads * config.head_dim + 2 * config.hidden + config.mlp
    return halves + 2 * (2 * config.hidden // 8 + config.heads * parts * WHOLE_LINE)


class Shape(NamedTuple):
    """How a product is launched.

    ``columns`` of a program; ``inner``: of the inner dimension at a time, in elements of 2 bytes; ``stages`` of such
    loads; ``tiles`` of rows; ``splits`` of the inner dimension.
    """

    columns: int
    inner: int = 128
    stages: int = 6
    tiles: int = 1
    warps: int = 4
    splits: int = 1

    def block(self, weight: Tensor) -> int:
        """``inner`` in elements of ``weight`` (N, K), no more than it has, and no less than a product takes."""
        return max(16, min(2 * self.inner // weight.element_size(), power_of_two(weight.shape[1])))

    def tiles_of(self, bucket: int) -> int:
        return min(self.tiles, power_of_two(-(-bucket // ROW_TILE)))

    def programs(self, bucket: int) -> int:
        """For all rows of a batch."""
        return -(-bucket // (ROW_TILE * self.tiles_of(bucket)))

    def span(self, weight: Tensor) -> int:
        """Of the inner dimension in each split."""
        inner = weight.shape[1]
        if self.splits == 1:
            return inner
        block = self.block(weight)
        return -(-inner // (self.splits * block)) * block


class Tuning(NamedTuple):
    """``split``: positions that one part of attention takes, which ``programs`` share.

    What two tunings must agree in to give the same bits: ``split`` and all that concerns attention, every
    ``warps``, ``columns`` of ``out`` and ``down``, ``splits`` and ``inner`` of ``down``.
    """

    split: int = 64
    programs: int = 8
    attention_warps: int = 2
    qkv: Shape = Shape(16, 128, 8)
    out: Shape = Shape(16, 128, 8)
    gate: Shape = Shape(19, 128, 4)
    down: Shape = Shape(32, 64, 12, splits=4)
    logits: Shape = Shape(26, 128, 6)


NARROW = Tuning()
"""For up to 16 rows: two programs on each multiprocessor of the largest GPU, as much on its way as they can hold."""
WIDE = NARROW._replace(
    gate=NARROW.gate._replace(columns=37, inner=64, stages=6, tiles=4),
    down=NARROW.down._replace(tiles=2, stages=6),
    logits=NARROW.logits._replace(columns=52, stages=6, tiles=4),
)
"""For more: what a program reads of the rows counts, so it takes more rows and columns."""
