"""A loaded checkpoint made ready to serve: slots to decode in, lanes to render on, float32 for when they fail."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch

from cosyui.engine.flow_runner import FlowRunner
from cosyui.engine.memory import URGENT_VOCODER_FRAMES, MemoryPlan, room_for_streams
from cosyui.engine.render_queue import RenderLane, RenderQueue
from cosyui.engine.safe import SafeStages
from cosyui.engine.slots import SlotDecoder
from cosyui.engine.token_stream import Decoding
from cosyui.engine.turns import Turns
from cosyui.engine.vocoder_runner import VocoderRunner
from cosyui.model.cosyvoice3 import CosyVoice3, load_flow, load_llm, load_vocoder
from cosyui.model.flow_meta import sizes
from cosyui.model.llm_decode import SlotState


class Stages:
    """``decoding`` and ``rendering`` serve; ``flow`` and ``vocoder`` are what segments are opened with; ``slot_bytes``:
    of all that the decoder's slots hold.

    On CUDA everything is recorded as graphs and warmed up here, so that the first request is as fast as the tenth;
    ``on_part`` hears which part of that (0 to 1) is done.
    """

    @torch.inference_mode()
    def __init__(
        self,
        model: CosyVoice3,
        plan: MemoryPlan,
        folder: Path,
        llm_file: str,
        on_part: Callable[[float], None] = lambda part: None,
    ) -> None:
        config, device, on_cuda = model.config, model.device, model.device.type == "cuda"
        self.decoding = Decoding(SlotDecoder(model.llm, plan.slots, plan.slot_positions, graphs=on_cuda))
        on_part(0.3)
        self.slot_bytes = SlotState.nbytes(config.llm, plan.slots + 1, plan.slot_positions, model.llm.dtype)
        self.vocoder = VocoderRunner(model.vocoder, max_frames=plan.vocoder_frames, graphs=on_cuda)
        urgent_vocoder = self.vocoder
        if plan.urgent_frames:
            urgent_vocoder = VocoderRunner(
                model.vocoder, max_frames=URGENT_VOCODER_FRAMES, beside=self.vocoder, graphs=on_cuda
            )
        for vocoder in {self.vocoder, urgent_vocoder}:
            vocoder.warm_up()
        on_part(0.5)
        self.plan = plan.with_cache(room_for_streams(model, plan))
        self.flow = FlowRunner(
            model.flow,
            max_frames=plan.flow_frames,
            cache_bytes=self.plan.flow_cache_bytes,
            graphs=on_cuda,
            modulation="drop" if on_cuda else "keep",
        )
        if plan.urgent_frames:
            urgent_flow = self.flow.lane(plan.urgent_frames, graphs=on_cuda)
            lanes = [
                RenderLane(urgent_flow, urgent_vocoder, device, "urgent"),
                RenderLane(self.flow, self.vocoder, device, "patient"),
            ]
        else:
            lanes = [RenderLane(self.flow, self.vocoder, device, "any")]
        if on_cuda:
            torch.cuda.empty_cache()  # while graphs are recorded the allocator cannot give anything back
        to_warm = [(lane, frames) for lane in lanes for frames in (sizes(lane.flow.max_frames) if on_cuda else ())]
        for number, (lane, frames) in enumerate(to_warm, 1):
            with torch.cuda.stream(lane.stream):
                lane.flow.warm(frames, pages=lane.kind != "patient")
            on_part(0.5 + 0.5 * number / len(to_warm))
        self.safe = SafeStages(
            partial(load_llm, config, folder / llm_file, device, torch.float32),
            partial(load_flow, config, folder / "flow.pt", device, torch.float32),
            partial(load_vocoder, config, folder / "hift.pt", device, torch.float32),
            device,
            plan.slot_positions,
            plan.flow_frames,
        )
        half = torch.float32 not in (self.flow.packed.dtype, model.vocoder.conv_post.weight.dtype)
        self.turns = Turns(self.decoding, lanes[-1].frames_of)
        self.rendering = RenderQueue(lanes, (lambda: self.safe.lane) if half else None, self.turns.gathered)

    def advance(self, soonest: float | None = None) -> bool:
        """Enqueue what can be decoded; True if new tokens have come. ``soonest`` deadline for some."""
        moved = self.decoding.advance(hold=self.turns.held(self.rendering.on_device, soonest))
        return self.safe.advance() or moved

    def rest(self) -> None:
        """Nobody has work here: free what was loaded for a piece that half precision failed."""
        if self.safe.loaded and not self.rendering.busy:
            self.rendering.lanes = [lane for lane in self.rendering.lanes if lane.kind != "safe"]
            self.safe.drop()
