"""The same stages in float32, for the rare piece that half precision cannot hold; loaded when the first one comes."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import cached_property

import torch

from cosyui.engine.flow_runner import FlowRunner
from cosyui.engine.render_queue import RenderLane
from cosyui.engine.slots import SlotDecoder
from cosyui.engine.token_stream import Decoding
from cosyui.engine.vocoder_runner import VocoderRunner
from cosyui.model.flow import Flow
from cosyui.model.llm import SpeechLM
from cosyui.model.vocoder import CausalHiFT

log = logging.getLogger(__name__)


class SafeStages:
    """``load_*`` bring the weights in float32 from the checkpoint; what was loaded stays until the engine is idle.

    Attributes raise torch.OutOfMemoryError when there is no room beside the half-precision weights.
    """

    def __init__(
        self,
        load_llm: Callable[[], SpeechLM],
        load_flow: Callable[[], Flow],
        load_vocoder: Callable[[], CausalHiFT],
        device: torch.device,
        positions: int,
        frames: int,
    ) -> None:
        self._load_llm = load_llm
        self._load_flow = load_flow
        self._load_vocoder = load_vocoder
        self._device = device
        self._positions = positions
        self._frames = frames

    @property
    def loaded(self) -> bool:
        return "lane" in vars(self) or "decoding" in vars(self)

    def advance(self) -> bool:
        """`Decoding.advance`, if there is anything to decode."""
        return "decoding" in vars(self) and self.decoding.advance()

    @cached_property
    def lane(self) -> RenderLane:
        log.warning("float32 stages are loaded: a sound was not finite", extra={"fields": {"stages": "flow, vocoder"}})
        flow = FlowRunner(self._load_flow(), max_frames=self._frames, graphs=False, kernels=False)
        vocoder = VocoderRunner(self._load_vocoder(), max_frames=self._frames, graphs=False, fused=False)
        return RenderLane(flow, vocoder, self._device, kind="safe")

    @cached_property
    def decoding(self) -> Decoding:
        log.warning("float32 stages are loaded: a logit was not finite", extra={"fields": {"stages": "llm"}})
        return Decoding(SlotDecoder(self._load_llm(), 1, self._positions, graphs=False))

    def drop(self) -> None:
        """Free what was loaded. Only while nothing of it is in use."""
        vars(self).pop("lane", None)
        vars(self).pop("decoding", None)
