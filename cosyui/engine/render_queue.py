"""Which segments are rendered next, in batches: what a listener waits for first, long work in the gaps."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cosyui.engine.flow_runner import FlowRunner
from cosyui.engine.needs import Render
from cosyui.engine.render import stretch
from cosyui.engine.vocoder_runner import VocoderPiece, VocoderRunner
from cosyui.engine.voice import Before

log = logging.getLogger(__name__)

Samples = NDArray[np.float32]


@dataclass(frozen=True)
class Rendered:
    """The answer to a `Render`: new ``samples`` (S,) on the CPU, and the seconds its batch took in each stage."""

    samples: Samples
    flow_seconds: float
    vocoder_seconds: float


class Marks:
    """Moments on the device, or on the CPU where it is the device."""

    def __init__(self, on_cuda: bool) -> None:
        self._events = [torch.cuda.Event(enable_timing=True) for _ in range(3)] if on_cuda else []  # type: ignore[no-untyped-call]
        self._times: list[float] = []

    def __call__(self) -> None:
        """The next of the three moments is now, behind all work that was enqueued so far."""
        if self._events:
            self._events[len(self._times)].record()
        self._times.append(time.perf_counter())

    @property
    def passed(self) -> bool:
        return not self._events or bool(self._events[-1].query())  # type: ignore[no-untyped-call]

    def seconds(self) -> tuple[float, float]:
        """Between the moments. Only once the last has passed."""
        if self._events:
            first, second, third = self._events
            return first.elapsed_time(second) / 1000, second.elapsed_time(third) / 1000
        first_time, second_time, third_time = self._times
        return second_time - first_time, third_time - second_time


@dataclass
class Batch:
    """Work that the device has been given."""

    renders: list[Render]
    before: list[Before]
    marks: Marks
    waves: list[Tensor] = field(default_factory=list)


Kind = Literal["urgent", "patient", "any", "safe"]
"""What a lane takes: chunks with a deadline, whole segments, both; or what half precision has failed."""


class RenderLane:
    """A stream of the device with one batch on it at a time; ``max_frames``: packed mel frames of it, with prompts."""

    def __init__(self, flow: FlowRunner, vocoder: VocoderRunner, device: torch.device, kind: Kind) -> None:
        self.flow = flow
        self.vocoder = vocoder
        self.kind = kind
        self.on_cuda = device.type == "cuda"
        self.max_frames = flow.max_frames
        self.batch: Batch | None = None
        # Blocks of an urgent kernel are scheduled before those of the others, which go on where there is room.
        self.stream: torch.cuda.Stream | None = None
        if self.on_cuda:
            self.stream = torch.cuda.Stream(device, priority=-1 if kind == "urgent" else 0)  # type: ignore[no-untyped-call]

    def choose(self, waiting: Sequence[Render], gathered: Callable[[Sequence[Render]], bool]) -> list[Render]:
        """The next batch: with a deadline, soonest first, or else first come, first served, long jobs last.

        ``gathered``: whether what has no deadline is enough for a batch.
        """
        mine = [one for one in waiting if one.voice.safe == (self.kind == "safe")]
        urgent = sorted((one for one in mine if one.deadline is not None), key=lambda one: one.deadline or 0.0)
        patient = sorted((one for one in mine if one.deadline is None), key=lambda one: one.long)
        match self.kind:
            case "urgent":
                return self._fill(urgent)
            case "patient":
                return self._fill(patient) if gathered(patient) else []
            case _:
                return self._fill(urgent or (patient if gathered(patient) else []))

    def frames_of(self, render: Render) -> int:
        """Packed mel frames."""
        return self.flow.frames_of(render.voice.piece(render.end, final=render.final))

    def _fill(self, order: Sequence[Render]) -> list[Render]:
        """As many from the head of ``order`` as one batch takes, at least one."""
        chosen: list[Render] = []
        frames = 0
        for render in order:
            frames += self.frames_of(render)
            if chosen and frames > self.max_frames:
                break
            chosen.append(render)
        return chosen

    def launch(self, renders: Sequence[Render]) -> None:
        """Give a batch to the device. Whatever it raises, the voices are as before."""
        before = [render.voice.before() for render in renders]
        with torch.cuda.stream(self.stream):
            marks = Marks(self.on_cuda)
            marks()
            mels = self.flow.run([render.voice.piece(render.end, final=render.final) for render in renders])
            marks()
            pieces = [
                VocoderPiece(render.voice.state, stretch(mel[None], render.voice.speed)[0], render.final)
                for mel, render in zip(mels, renders, strict=True)
            ]
            waves = [self._to_cpu(wave) for wave in self.vocoder.run(pieces)]
            marks()
        for render in renders:
            render.voice.in_flight = True
        self.batch = Batch(list(renders), before, marks, waves)

    def collect(self) -> Iterator[tuple[Render, Before, Rendered]]:
        """What the batch made, once it is done."""
        if self.batch is None or not self.batch.marks.passed:
            return
        batch, self.batch = self.batch, None
        flow_seconds, vocoder_seconds = batch.marks.seconds()
        for render, before, wave in zip(batch.renders, batch.before, batch.waves, strict=True):
            yield render, before, Rendered(wave.numpy(), flow_seconds, vocoder_seconds)

    def shrink(self) -> None:
        """A batch did not fit into memory."""
        self.max_frames //= 2
        log.warning("out of memory in a batch", extra={"fields": {"max_frames": self.max_frames}})
        if self.on_cuda:
            torch.cuda.empty_cache()

    def _to_cpu(self, wave: Tensor) -> Tensor:
        if not self.on_cuda:
            return wave
        return torch.empty_like(wave, device="cpu", pin_memory=True).copy_(wave, non_blocking=True)


class RenderQueue:
    """Everything that waits to be rendered. ``lanes`` are all there are at first; ``safe`` gives one in float32.

    A piece whose sound is not finite is made again on that one, and the rest of its segment too. ``redone`` counts.
    ``gathered``: see `RenderLane.choose`.
    """

    def __init__(
        self,
        lanes: Sequence[RenderLane],
        safe: Callable[[], RenderLane] | None = None,
        gathered: Callable[[Sequence[Render]], bool] = bool,
    ) -> None:
        self.lanes = list(lanes)
        self._gathered = gathered
        self.waiting: list[Render] = []
        self.redone = 0
        self._safe = safe

    @property
    def busy(self) -> bool:
        return bool(self.waiting) or self.on_device

    @property
    def on_device(self) -> bool:
        """A batch is being rendered."""
        return any(lane.batch is not None for lane in self.lanes)

    def add(self, render: Render) -> None:
        self.waiting.append(render)

    def drop(self, render: Render) -> None:
        """Nobody waits for it any more; what is on the device already comes to its end unheard."""
        if render in self.waiting:
            self.waiting.remove(render)

    def advance(self) -> Iterator[tuple[Render, Rendered | Exception]]:
        """Collect what is done and start the next batches."""
        for lane in list(self.lanes):
            for render, before, rendered in lane.collect():
                if self._is_redone(render, before, rendered):
                    continue
                render.voice.rendered()
                yield render, rendered
            if lane.batch is None:
                yield from self._start(lane, lane.choose(self.waiting, self._gathered))

    def _is_redone(self, render: Render, before: Before, rendered: Rendered) -> bool:
        """Whether the sound is not finite and float32 is to help."""
        if self._safe is None or render.voice.safe or render.voice.closed or np.isfinite(rendered.samples).all():
            return False
        try:
            lane = self._safe()
        except torch.OutOfMemoryError:
            log.warning("no memory for float32 stages: a sound that is not finite is given up")
            return False
        if lane not in self.lanes:
            self.lanes.append(lane)
        render.voice.redo(lane.flow, before)
        self.waiting.append(render)
        self.redone += 1
        return True

    def _start(self, lane: RenderLane, renders: list[Render]) -> Iterator[tuple[Render, Exception]]:
        """Launch a batch; yields those that cannot be rendered, with the reason.

        When a batch fails it is halved until the one that causes it stands alone: the others are not touched.
        """
        while renders:
            try:
                lane.launch(renders)
            except torch.AcceleratorError:
                raise  # the CUDA context is lost: only a new process helps
            except Exception as error:  # noqa: BLE001  (told to the one request that causes it)
                if isinstance(error, torch.OutOfMemoryError):
                    lane.shrink()
                if len(renders) > 1:
                    renders = renders[: len(renders) // 2]
                    continue
                renders[0].voice.rendered()
                yield renders[0], error
            self.waiting = [one for one in self.waiting if one not in renders]
            return
