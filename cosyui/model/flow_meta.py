"""What tells the kernels of the packed flow where frames come from and what attends to what: one array of int32."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cosyui.model.flow_packed import Part, Rows

TILE = 8
"""Fields of a tile, which is up to ``block_m`` frames of one piece: first row, frames (0: nothing to do), first row of
its piece, frames of the piece, frames kept before the piece, where the pages of those begin in the page table, block of
the mask (0: none), last kept page (-1)."""

PAGES = 4096
"""Entries of the page table of a batch."""

_TOKEN_SLACK = 8
"""Rows of the packed tokens that a piece may need besides a token for each pair of frames."""


def round_up(frames: int) -> int:
    """The size of a batch that takes ``frames``: eight sizes an octave, multiples of 64."""
    step = max(64, 1 << max(0, frames.bit_length() - 4))
    return max(64, -(-frames // step) * step)


def sizes(max_frames: int) -> list[int]:
    """All sizes of batches up to ``max_frames``, largest first."""
    return sorted({round_up(frames) for frames in range(64, max_frames + 1, 64)}, reverse=True)


class Size(NamedTuple):
    """What a batch of ``frames`` rows has room for."""

    frames: int
    tokens: int
    pieces: int
    tiles: int
    block_m: int

    @staticmethod
    def of(frames: int, ratio: int, block_m: int) -> Size:
        """The smallest one for ``frames`` in not too many pieces. ``ratio``: frames of a token."""
        frames = round_up(frames)
        pieces = max(8, frames // 32)
        return Size(frames, -(-frames // ratio) + _TOKEN_SLACK * pieces, pieces, frames // block_m + pieces, block_m)

    @property
    def ints(self) -> int:
        return 4 * self.frames + self.tokens + TILE * self.tiles + PAGES


class Meta(NamedTuple):
    """Views of the array that describes a batch: as `Rows`, and ``tiles`` and ``pages`` for the kernels."""

    position: Tensor
    token: Tensor
    piece: Tensor
    keep: Tensor
    tokens: Tensor
    tiles: Tensor
    pages: Tensor

    @staticmethod
    def views(array: Tensor, size: Size) -> Meta:
        lengths = [*[size.frames] * 4, size.tokens, TILE * size.tiles, PAGES]
        return Meta(*torch.split(array[: size.ints], lengths))


def fill_meta(size: Size, rows: Rows, parts: Sequence[Part]) -> NDArray[np.int32]:
    """The array of a batch: rows that it does not fill point at something harmless and are kept nowhere."""
    meta = np.zeros(size.ints, dtype=np.int32)
    at = 0
    for column, fill in ((rows.position, 0), (rows.token, 0), (rows.piece, 0), (rows.keep, -1)):
        meta[at : at + len(column)] = column
        meta[at + len(column) : at + size.frames] = fill
        at += size.frames
    meta[at : at + len(rows.tokens)] = rows.tokens
    meta[at + len(rows.tokens) : at + size.tokens] = -1
    at += size.tokens
    tiles, pages = _tiles(parts, size.block_m)
    meta[at : at + tiles.size] = tiles.reshape(-1)
    at += TILE * size.tiles
    meta[at : at + len(pages)] = pages
    return meta


def _tiles(parts: Sequence[Part], block_m: int) -> tuple[NDArray[np.int32], list[int]]:
    """(tiles, 8), those with most keys first so that none of them is left for the end; and the page table."""
    tiles, start = [], 0
    pages: list[int] = []
    for part in parts:
        last = part.pages[-1] if part.pages else -1
        for row in range(0, part.rows, block_m):
            count = min(block_m, part.rows - row)
            tiles.append((start + row, count, start, part.rows, part.past, len(pages), part.block, last))
        pages += part.pages
        start += part.rows
    table = np.array(tiles, dtype=np.int32)
    seen = np.where(table[:, 6] > 0, table[:, 0] - table[:, 2] + table[:, 4], table[:, 3])
    return table[np.argsort(-seen, kind="stable")], pages
