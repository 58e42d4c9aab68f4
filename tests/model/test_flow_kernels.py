"""The flow's Triton kernels against plain operations, in Triton's interpreter (TRITON_INTERPRET=1) or on a GPU."""

from __future__ import annotations

import os
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from cosyui.bench.make_checkpoint import TINY
from cosyui.model.dit import attention_mask, rotate_pairs
from cosyui.model.flow import Flow, fixed_noise

pytest.importorskip("triton")
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
if not (INTERPRETED or torch.cuda.is_available()):
    pytest.skip("neither Triton's interpreter nor a GPU", allow_module_level=True)

from cosyui.model.flow_meta import Size, fill_meta, round_up  # noqa: E402
from cosyui.model.flow_packed import HALO, PackedFlow, PageStore, Part, lay_out  # noqa: E402
from cosyui.model.flow_static import StaticFlow  # noqa: E402
from cosyui.model.kernels import flow as kernels  # noqa: E402

DEVICE = "cpu" if INTERPRETED else "cuda"
torch.backends.cudnn.allow_tf32 = False
PAGE = 40
TOLERANCE = 2e-5


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(DEVICE)


def step_of(value: int) -> Tensor:
    return torch.tensor([value], dtype=torch.int32, device=DEVICE)


def ints(values: object) -> Tensor:
    return torch.tensor(values, dtype=torch.int32, device=DEVICE)


@pytest.mark.parametrize("dim", [64, 48])
@pytest.mark.parametrize("add", [True, False])
def test_normalise(dim: int, add: bool) -> None:
    h, y, table = random(5, dim), random(5, dim, seed=1), random(3, 7, dim, seed=2)
    expected = h + table[1, 2] * y if add else h.clone()
    norm = F.layer_norm(expected, (dim,), eps=1e-6) * table[1, 4] + table[1, 3]
    out = torch.empty_like(h)
    kernels.normalise(h, y if add else None, out, table[1], 2, 3, 4, 1e-6)
    torch.testing.assert_close(h, expected, atol=TOLERANCE, rtol=0)
    torch.testing.assert_close(out, norm, atol=TOLERANCE, rtol=0)


def test_euler() -> None:
    x, velocity, small = random(9, 7), random(18, 7, seed=1), random(9, 7, seed=2)
    expected = x + 0.25 * (1.7 * velocity[:9] - 0.7 * velocity[9:])
    kernels.euler(x, small, velocity, torch.tensor([0.0, 0.25], device=DEVICE), step_of(1), 0.7)
    torch.testing.assert_close(x, expected, atol=TOLERANCE, rtol=0)
    torch.testing.assert_close(small, expected, atol=TOLERANCE, rtol=0)


@pytest.mark.parametrize("width", [4, 16, 24])
def test_convolve(width: int) -> None:
    """Two pieces: one from its start, one behind a kept tail; the second convolution adds to what is there."""
    groups, rows, dim = 2, 90, 2 * width
    weight, bias = random(dim, width, HALO + 1, seed=1) / 8, random(dim, seed=2)
    x, tails = random(2 * rows, dim), random(3, 2, 2, 2, HALO, dim, seed=3)
    tiles = ints([(50, 35, 50, 35, 40, 0, 40, 2), (0, 32, 0, 50, 0, 0, 0, -1), (32, 18, 0, 50, 0, 0, 0, -1), [0] * 8])
    keep = torch.full((rows,), -1)
    keep[:PAGE] = torch.arange(PAGE) + PAGE
    packed = weight.unflatten(0, (groups, -1)).permute(0, 3, 2, 1).contiguous()
    expected = []
    for first in (True, False):
        halves = []
        for half in range(2):
            own = x[half * rows : (half + 1) * rows]
            zeros, tail = own.new_zeros(HALO, dim), tails[2, 1, 1 - first, half]
            for left, piece in ((zeros, own[:50]), (tail, own[50:85])):
                halves.append(F.mish(F.conv1d(torch.cat([left, piece]).t()[None], weight, bias, groups=groups))[0].t())
            halves.append(own[85:])
        expected.append(torch.cat(halves))
    keeping = tails.clone()
    out = x.clone()
    for first in (True, False):
        kernels.convolve(x, packed, bias, out, tiles, ints(keep.tolist()), keeping, step_of(1), PAGE, first=first,
                         block_m=64)  # fmt: skip
        assert out.shape == x.shape
        target = expected[0] if first else expected[0] + expected[1]
        inside = torch.tensor([i % rows < 85 for i in range(2 * rows)], device=DEVICE)
        torch.testing.assert_close(out[inside], target[inside], atol=TOLERANCE, rtol=1e-5)
        if first:
            kept = expected[0].view(2, rows, dim)[:, PAGE - HALO : PAGE]
            torch.testing.assert_close(keeping[1, 1, 1], kept, atol=TOLERANCE, rtol=0)
    torch.testing.assert_close(keeping[[0, 2]], tails[[0, 2]])


def test_turn_and_keep() -> None:
    rows, heads, head = 21, 3, 16
    inner = heads * head
    qkv, kv = random(2 * rows, 3 * inner), random(2, 2, 3, 2, 2, PAGE, inner, seed=1)
    position = torch.arange(rows, device=DEVICE) + 7
    angle = position[:, None] * random(head // 2, seed=2)
    table = torch.arange(40, device=DEVICE)[:, None] * random(head // 2, seed=2)
    both = torch.cat([angle, angle])
    expected = qkv.clone()
    for part in range(2):
        own = expected[:, part * inner : (part + 1) * inner]
        own.copy_(rotate_pairs(own.clone(), both.cos(), both.sin()))
    keep = [PAGE + 3 + i if i >= 5 else -1 for i in range(rows)]
    before = kv.clone()
    kernels.turn(qkv, table.cos(), table.sin(), position.int(), ints(keep), kv, step_of(1), 2, PAGE)
    torch.testing.assert_close(qkv, expected, atol=TOLERANCE, rtol=0)
    halves = expected.view(2, rows, 3, inner)
    for kind in range(2):
        before[1, 1, 2, kind, :, 8 : 3 + rows] = halves[:, 5:, 1 + kind]
    torch.testing.assert_close(kv, before, atol=TOLERANCE, rtol=0)


@pytest.mark.parametrize(("block_m", "block_n"), [(16, 32), (64, 32), (64, 64)])
def test_attend(block_m: int, block_n: int) -> None:
    """A whole piece, a stream from its start, and one behind kept pages, larger and smaller than a block of keys."""
    config = replace(TINY.flow, chunk_frames=PAGE, dim_head=16, heads=2, depth=2, steps=2)
    inner = 32
    known, speaker, none = torch.zeros(0, 80), torch.zeros(80), np.zeros(1, dtype=np.int64)
    lengths, blocks, pasts = (37, 70, 45), (0, PAGE, PAGE), ((), (), (2, 0))
    parts = [
        Part(none, 0, len(pages) * PAGE, n, block, pages, (), known, speaker)
        for n, block, pages in zip(lengths, blocks, pasts, strict=True)
    ]
    rows = sum(lengths)
    size = Size(rows, 64, 4, 16, block_m)
    store = PageStore(*(random(3, *shape, seed=i) for i, shape in enumerate(PageStore.shapes(config))))
    meta = torch.from_numpy(fill_meta(size, lay_out(parts, config), parts)).to(DEVICE)[4 * rows + 64 :]
    tiles, pages = meta[: 8 * 16], meta[8 * 16 :]
    qkv, out = random(2 * rows, 3 * inner, seed=5), torch.full((2 * rows, inner), torch.nan, device=DEVICE)
    kernels.attend(qkv, out, store.kv, tiles, pages, step_of(1), 1, 16, PAGE, block_m=block_m, block_n=block_n)
    start = 0
    for part in parts:
        for half in range(2):
            at = slice(half * rows + start, half * rows + start + part.rows)
            q, k, v = (y.unflatten(1, (2, 16)).transpose(0, 1) for y in qkv[at].chunk(3, dim=1))
            if part.past:
                kept = store.kv[list(part.pages), 1, 1, :, half].permute(1, 0, 2, 3).flatten(1, 2)
                past = kept.unflatten(-1, (2, 16)).transpose(1, 2)
                k, v = torch.cat([past[0], k], dim=1), torch.cat([past[1], v], dim=1)
            mask = attention_mask(None, k.shape[1], part.block or None, torch.device(DEVICE))
            mask = None if mask is None else mask[0, 0, part.past :]
            mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=mask).transpose(0, 1).flatten(1)
            torch.testing.assert_close(out[at], mixed, atol=TOLERANCE, rtol=0)
        start += part.rows


def test_one_step_of_the_whole_solver() -> None:
    """A stream that is kept, a whole segment beside what goes on from there, one alone: as the plain operations."""
    config = replace(TINY.flow, dim=32, heads=2, depth=1, steps=1, chunk_frames=PAGE)
    torch.manual_seed(1)
    flow = Flow(config).requires_grad_(False).to(DEVICE).eval()
    flow.noise = fixed_noise(config.mel_dim).to(DEVICE)
    packed = PackedFlow(flow)
    shapes = PageStore.shapes(config)
    stores = [PageStore(*(torch.zeros(2, *shape, device=DEVICE) for shape in shapes)) for _ in range(2)]
    static = StaticFlow(packed, 64, stores[0], graphs=False)
    tokens = np.random.default_rng(0).integers(0, config.vocab_size, 60)
    speaker = random(80, seed=1)
    packs = [
        [Part(tokens[:23], 0, 0, PAGE, PAGE, (), (1,), random(20, 80), speaker)],
        [
            Part(tokens[:9], 0, 0, 18, 0, (), (), random(6, 80), speaker),
            Part(tokens[18:33], 18, PAGE, 30, PAGE, (1,), (), random(0, 80), speaker),
        ],
        [Part(tokens[:9], 0, 0, 18, 0, (), (), random(6, 80), speaker)],
    ]
    for parts in packs:
        torch.testing.assert_close(static.solve(parts), packed.solve(parts, stores[1]), atol=1e-4, rtol=0)
    for ours, plain in zip(*stores, strict=True):
        torch.testing.assert_close(ours, plain, atol=1e-4, rtol=0)


def test_sizes() -> None:
    assert [round_up(n) for n in (1, 64, 65, 750, 1025, 6001)] == [64, 64, 128, 768, 1152, 6144]
    assert all(n <= round_up(n) <= max(n + 63, n * 9 / 8) for n in range(1, 20_000, 7))
