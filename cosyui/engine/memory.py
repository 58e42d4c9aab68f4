"""What the engine may take of the device's memory, shared out before anything is allocated."""

from __future__ import annotations

import gc
from dataclasses import dataclass, replace

import psutil
import torch

from cosyui.engine.config import EmptyCache
from cosyui.engine.slots import SlotDecoder
from cosyui.engine.vocoder_runner import nbytes as vocoder_bytes
from cosyui.errors import SetupError
from cosyui.model.cosyvoice3 import CosyVoice3
from cosyui.model.flow import MAX_FRAMES

MIB = 1 << 20
DEFAULT_SHARE = 0.8
"""Of the card, when no budget is given."""
CONTEXT = 768 * MIB
"""CUDA's own: context, kernels and graphs, measured on an H200; PyTorch's allocator does not see it."""
OVERHEAD, OVERHEAD_SHARE, BATCH_SHARE = 192 * MIB, 0.03, 0.15
"""And a share of the budget and of the batches' buffers: workspaces of the libraries, what a batch takes for a moment
while it is recorded, and what the allocator loses by rounding."""
SLOT_POSITIONS = 2560
"""Of one KV slot: 30 s of prompt with its transcript (about 1,000), and a segment of a minute."""
CPU_SLOT_POSITIONS = 4096
LONGEST_PIECE = 4096
"""Mel frames of the longest segment with its prompt: 80 s. A batch holds at least that."""
MOST_SLOTS, MOST_FLOW_FRAMES, MOST_VOCODER_FRAMES = 64, 24_576, 2048
"""More of them brings no more speed."""
URGENT_VOCODER_FRAMES = 1024
SHARES = {"kv": 0.25, "flow": 0.2, "vocoder": 0.15}
"""Of what the weights leave; kept keys and values of streams have the rest."""
UNUSED_LIMIT = 512 * MIB
"""Reserved and not allocated: what is more is given back when the engine is idle."""
CPU_CACHE_BYTES = 1024 * MIB


@dataclass(frozen=True)
class MemoryPlan:
    """Bytes by part, and what they buy. ``budget`` is 0 on a CPU, where nothing is promised.

    ``slots``: segments decoded at once, of ``slot_positions`` each; ``flow_frames``, ``vocoder_frames``: mel frames in
    one batch; ``urgent_frames``: in one that listeners wait for, on a lane of its own, 0 without one.
    """

    budget: int
    parts: dict[str, int]
    slots: int
    slot_positions: int
    flow_frames: int
    urgent_frames: int
    vocoder_frames: int
    flow_cache_bytes: int

    def with_cache(self, nbytes: int) -> MemoryPlan:
        """The plan with so much for kept streams, now that it is known what the rest really takes."""
        return replace(self, parts=self.parts | {"kept streams": nbytes}, flow_cache_bytes=nbytes)

    def __str__(self) -> str:
        parts = ", ".join(f"{name} {size / MIB:.0f}" for name, size in self.parts.items())
        return f"memory plan: {self.budget / MIB:.0f} MiB ({parts}), {self.slots} slots, {self.flow_frames} frames"


def budget_of(device: torch.device, budget: int) -> int:
    """Bytes of the card that may be used: ``budget``, 0 for four fifths of it."""
    total = torch.cuda.get_device_properties(device).total_memory
    return min(budget or int(DEFAULT_SHARE * total), total)


def hold_to(device: torch.device, budget: int) -> None:
    """From now on PyTorch's allocator stays within the budget, on CUDA.

    To be called before anything is loaded: a library that finds a whole card free takes workspaces of gigabytes, and
    what is then put into them cannot be moved.
    """
    if device.type != "cuda":
        return
    torch.cuda.empty_cache()
    total = torch.cuda.get_device_properties(device).total_memory
    torch.cuda.set_per_process_memory_fraction(max(0, budget_of(device, budget) - CONTEXT) / total, device)


def plan_memory(model: CosyVoice3, budget: int = 0, places: int = 0) -> MemoryPlan:
    """Share ``budget`` bytes (0: four fifths of the card) out.

    ``places``: at most so many requests are worked on at once; 0: one on a CPU, what the budget allows on CUDA.
    Raises SetupError when not even one segment fits beside the weights.
    """
    if model.device.type != "cuda":
        cache = min(CPU_CACHE_BYTES, psutil.virtual_memory().available // 4)
        return MemoryPlan(0, {}, places or 1, CPU_SLOT_POSITIONS, MAX_FRAMES, 0, MAX_FRAMES, cache)
    gc.collect()  # of what the precision was tried on
    torch.cuda.empty_cache()
    budget = budget_of(model.device, budget)
    weights = weight_bytes(model)
    overhead = OVERHEAD + int(OVERHEAD_SHARE * budget)
    left = int((budget - CONTEXT - weights - overhead) / (1 + BATCH_SHARE * (SHARES["flow"] + SHARES["vocoder"])))
    one, two = (SlotDecoder.nbytes(model.config.llm, n, SLOT_POSITIONS, model.llm.dtype) for n in (1, 2))
    slot = two - one
    flow_frame = flow_frame_bytes(model)
    vocoder_frame = vocoder_bytes(model.config.vocoder, 1, model.vocoder.conv_post.weight.dtype)
    slots = _fit(SHARES["kv"] * left, slot, 1, places or MOST_SLOTS)
    flow = _fit(SHARES["flow"] * left, flow_frame, LONGEST_PIECE, MOST_FLOW_FRAMES)
    urgent = LONGEST_PIECE if flow == MOST_FLOW_FRAMES else 0
    vocoder = _fit(SHARES["vocoder"] * left, vocoder_frame, MOST_VOCODER_FRAMES // 4, MOST_VOCODER_FRAMES)
    batches = {
        "flow batches": (flow + urgent) * flow_frame,
        "vocoder batches": (vocoder + (URGENT_VOCODER_FRAMES if urgent else 0)) * vocoder_frame,
    }
    overhead += int(BATCH_SHARE * sum(batches.values()))
    rest = budget - CONTEXT - weights - overhead - sum(batches.values())
    slots = max(1, min(slots, 1 + (rest - one) // slot))
    slots_bytes = one + (slots - 1) * slot
    parts = {"CUDA": CONTEXT, "weights": weights, "overhead": overhead, "kv slots": slots_bytes, **batches}
    cache = budget - sum(parts.values())
    if cache < 0:
        needed = (budget - cache - OVERHEAD_SHARE * budget) / (1 - OVERHEAD_SHARE)
        message = (
            f"{budget / MIB:.0f} MiB of GPU memory are too few: this model needs {needed / MIB + 1:.0f} MiB. "
            "Give it more with COSYUI_VRAM_BUDGET, or choose a smaller precision."
        )
        raise SetupError("out_of_memory", message)
    parts["kept streams"] = cache
    return MemoryPlan(budget, parts, slots, SLOT_POSITIONS, flow, urgent, vocoder, cache)


def room_for_streams(model: CosyVoice3, plan: MemoryPlan) -> int:
    """Bytes left for kept streams once all but the flow is built and warm: measured, not estimated."""
    if not plan.budget:
        return plan.flow_cache_bytes
    torch.cuda.empty_cache()
    held = torch.cuda.memory_reserved(model.device) - used_up_bytes(model)
    rest = plan.budget - plan.parts["CUDA"] - plan.parts["overhead"] - plan.parts["flow batches"]
    return max(0, rest - held)


def give_back(device: torch.device, policy: EmptyCache, *, idle: bool) -> None:
    """Hand unused memory back to the card after a request, as ``policy`` says; on a CPU there is nothing to do."""
    if device.type != "cuda" or policy == "never":
        return
    if policy == "always" or (idle and unused_bytes(device) > UNUSED_LIMIT):
        torch.cuda.empty_cache()


def unused_bytes(device: torch.device) -> int:
    """What PyTorch keeps of the card for later."""
    if device.type != "cuda":
        return 0
    return torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)


def weight_bytes(model: CosyVoice3) -> int:
    """Of the weights that stay on the device: without the text table, and what only feeds the flow's constants."""
    table = model.llm.qwen.embed_tokens.weight.nbytes
    return torch.cuda.memory_allocated(model.device) - used_up_bytes(model) - table


def used_up_bytes(model: CosyVoice3) -> int:
    """Of the weights that the flow's runner makes constants of and frees."""
    estimator = model.flow.estimator
    modules = [estimator.time_embed, estimator.norm_out, *(block.attn_norm for block in estimator.blocks)]
    return sum(weight.nbytes for module in modules for weight in module.parameters())


def flow_frame_bytes(model: CosyVoice3) -> int:
    """Buffers of the flow for one packed mel frame, both rows of the guidance."""
    from cosyui.model.flow_static import StaticFlow

    return StaticFlow.nbytes(model.config.flow, model.flow.estimator.proj_out.weight.dtype, 1024) // 1024


def _fit(share: float, each: int, least: int, most: int) -> int:
    return max(least, min(most, int(share) // each))
