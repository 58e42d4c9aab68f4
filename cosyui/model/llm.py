"""The speech-token language model: a Qwen2-shaped decoder over a text table and a speech table.

Source: CosyVoice 3 (Du et al., 2025, arXiv:2505.17589), section on the text-to-speech language model; Qwen2 technical
report (arXiv:2407.10671) for the block. Tensor names are those of a released ``llm.pt``.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cosyui.model.config import LLMConfig


class KVCache:
    """Keys and values of a batch of rows that grow at their own pace.

    ``keys``/``values``: (layers, batch, kv_heads, capacity, head_dim); ``lengths``: (batch,) int64, valid positions.
    """

    def __init__(
        self, config: LLMConfig, batch: int, capacity: int, device: torch.device | str, dtype: torch.dtype
    ) -> None:
        shape = (config.layers, batch, config.kv_heads, capacity, config.head_dim)
        self.keys = torch.zeros(shape, device=device, dtype=dtype)
        self.values = torch.zeros(shape, device=device, dtype=dtype)
        self.lengths = torch.zeros(batch, dtype=torch.int64, device=device)
        self.longest = 0
        self.capacity = capacity

    @property
    def batch(self) -> int:
        return self.keys.shape[1]

    def reserve(self, tokens: int) -> None:
        """Make sure that every row can take ``tokens`` more; raises ValueError when the cache is too short."""
        if self.longest + tokens > self.capacity:
            raise ValueError(f"KV cache holds {self.capacity} positions, {self.longest + tokens} are needed")


class RMSNorm(nn.Module):
    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, (x.shape[-1],), self.weight, self.eps)


def rotary(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate pairs (i, i + D/2) of ``x`` (B, heads, T, D); ``cos``/``sin`` (B, 1, T, D/2) float32."""
    first, second = x.float().chunk(2, dim=-1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1).to(x.dtype)


class Attention(nn.Module):
    """Grouped-query attention; q, k, v have a bias, o has none."""

    def __init__(self, config: LLMConfig) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.head_dim = config.heads, config.kv_heads, config.head_dim
        self.q_proj = nn.Linear(config.hidden, self.heads * self.head_dim)
        self.k_proj = nn.Linear(config.hidden, self.kv_heads * self.head_dim)
        self.v_proj = nn.Linear(config.hidden, self.kv_heads * self.head_dim)
        self.o_proj = nn.Linear(self.heads * self.head_dim, config.hidden, bias=False)

    def forward(self, x: Tensor, step: Step, layer: int) -> Tensor:
        batch, length, _ = x.shape
        q = self.q_proj(x).view(batch, length, self.heads, self.head_dim).transpose(1, 2)
        k = self.k_proj(x).view(batch, length, self.kv_heads, self.head_dim).transpose(1, 2)
        v = self.v_proj(x).view(batch, length, self.kv_heads, self.head_dim).transpose(1, 2)
        q, k = rotary(q, step.cos, step.sin), rotary(k, step.cos, step.sin)
        if step.cache is not None:
            k, v = step.store(layer, k, v)
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=step.mask, is_causal=step.causal, enable_gqa=True)
        out: Tensor = self.o_proj(mixed.transpose(1, 2).reshape(batch, length, -1))
        return out


class MLP(nn.Module):
    def __init__(self, config: LLMConfig) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(config.hidden, config.mlp, bias=False)
        self.up_proj = nn.Linear(config.hidden, config.mlp, bias=False)
        self.down_proj = nn.Linear(config.mlp, config.hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))
        return out


class DecoderLayer(nn.Module):
    def __init__(self, config: LLMConfig) -> None:
        super().__init__()
        self.input_layernorm = RMSNorm(config.hidden, config.rms_eps)
        self.self_attn = Attention(config)
        self.post_attention_layernorm = RMSNorm(config.hidden, config.rms_eps)
        self.mlp = MLP(config)

    def forward(self, x: Tensor, step: Step, layer: int) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), step, layer)
        out: Tensor = x + self.mlp(self.post_attention_layernorm(x))
        return out


class Qwen2(nn.Module):
    def __init__(self, config: LLMConfig) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(config.text_vocab, config.hidden)
        self.layers = nn.ModuleList([DecoderLayer(config) for _ in range(config.layers)])
        self.norm = RMSNorm(config.hidden, config.rms_eps)


class Step:
    """What all layers share in one forward pass: positions, rotary angles, the mask, and where keys go."""

    def __init__(self, config: LLMConfig, x: Tensor, cache: KVCache | None) -> None:
        batch, length, _ = x.shape
        start = cache.lengths if cache is not None else torch.zeros(batch, dtype=torch.int64, device=x.device)
        self.cache = cache
        self.positions = start[:, None] + torch.arange(length, device=x.device)
        exponent = torch.arange(0, config.head_dim, 2, device=x.device, dtype=torch.float32) / config.head_dim
        angle = self.positions[:, None, :, None].float() * (config.rope_theta**-exponent)
        self.cos, self.sin = angle.cos(), angle.sin()
        self.rows = torch.arange(batch, device=x.device)[:, None]
        self.mask: Tensor | None = None
        self.causal = False
        if cache is None or cache.longest == 0:
            self.causal = length > 1
            self.span = length
            return
        cache.reserve(length)
        self.span = cache.longest + length
        if batch > 1 or length > 1:
            self.mask = torch.arange(self.span, device=x.device) <= self.positions[:, None, :, None]

    def store(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Write new keys and values (B, kv_heads, T, D) at their positions; return all up to the longest row."""
        assert self.cache is not None
        keys, values = self.cache.keys[layer], self.cache.values[layer]
        keys[self.rows, :, self.positions] = k.transpose(1, 2)
        values[self.rows, :, self.positions] = v.transpose(1, 2)
        return keys[:, :, : self.span], values[:, :, : self.span]


class SpeechLM(nn.Module):
    """Text ids and speech tokens in, logits over speech tokens out. Batch-first, right-padded."""

    def __init__(self, config: LLMConfig) -> None:
        super().__init__()
        self.config = config
        self.llm = nn.ModuleDict({"model": nn.ModuleDict({"model": Qwen2(config)})})
        self.speech_embedding = nn.Embedding(config.speech_vocab, config.hidden)
        self.llm_decoder = nn.Linear(config.hidden, config.speech_vocab, bias=False)

    @property
    def qwen(self) -> Qwen2:
        inner = self.llm["model"]
        assert isinstance(inner, nn.ModuleDict)
        qwen = inner["model"]
        assert isinstance(qwen, Qwen2)
        return qwen

    @property
    def dtype(self) -> torch.dtype:
        return self.llm_decoder.weight.dtype

    def new_cache(self, batch: int, capacity: int) -> KVCache:
        """An empty cache on this model's device, in its precision."""
        return KVCache(self.config, batch, capacity, self.llm_decoder.weight.device, self.dtype)

    def embed_text(self, ids: Tensor) -> Tensor:
        """Text ids (..., T) int64 -> (..., T, hidden), on the device of ``ids``; the table may be on another."""
        out: Tensor = self.qwen.embed_tokens(ids.to(self.qwen.embed_tokens.weight.device))
        return out.to(ids.device)

    def embed_speech(self, ids: Tensor) -> Tensor:
        """Speech tokens and special rows (..., T) int64 -> (..., T, hidden)."""
        out: Tensor = self.speech_embedding(ids)
        return out

    def forward(self, x: Tensor, lengths: Tensor | None = None, cache: KVCache | None = None) -> Tensor:
        """Hidden states after the last norm.

        ``x`` (B, T, hidden): rows to append, right-padded; ``lengths`` (B,) int64: valid rows of each, None = all T.
        With a cache, valid rows are appended to it. A valid row never sees padding: it is causal, and padding lies
        behind it; padded positions are overwritten by the next call.
        Returns (B, T, hidden); rows beyond ``lengths`` hold nothing of use. Raises ValueError when the cache is full.
        """
        step = Step(self.config, x, cache)
        if cache is not None:
            cache.reserve(x.shape[1])
        qwen = self.qwen
        for index, layer in enumerate(qwen.layers):
            x = layer(x, step, index)
        if cache is not None:
            cache.lengths += x.shape[1] if lengths is None else lengths
            cache.longest = cache.longest + x.shape[1] if lengths is None else int(cache.lengths.max())
        out: Tensor = qwen.norm(x)
        return out

    def logits(self, hidden: Tensor) -> Tensor:
        """(..., hidden) -> float32 logits (..., speech_vocab)."""
        out: Tensor = self.llm_decoder(hidden).float()
        return out
