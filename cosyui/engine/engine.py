"""The engine: loads a checkpoint and speaks requests one after another, a small step at a time."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import torch
from torch import nn

from cosyui.engine.config import EngineConfig
from cosyui.engine.lanes import Lanes
from cosyui.engine.precision import choose_device, choose_precision, describe
from cosyui.engine.prompts import PromptCache
from cosyui.engine.request import Cancelled, EngineFacts, EngineStats, Event, Failed, Finished, SynthesisRequest
from cosyui.engine.take import Take
from cosyui.errors import CosyuiError
from cosyui.hub import parse_source, resolve
from cosyui.model.cosyvoice3 import load
from cosyui.speech.prompt_format import TextFrontend
from cosyui.speech.text.lexicon import Lexicon

log = logging.getLogger(__name__)


def parameter_count(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


def weight_bytes(module: nn.Module) -> int:
    tensors = [*module.parameters(), *module.buffers()]
    return sum(t.numel() * t.element_size() for t in tensors)


@dataclass(eq=False)
class Work:
    """A request in the engine; ``take`` and ``events`` from its first step on."""

    request: SynthesisRequest
    take: Take | None = None
    events: Iterator[Event | None] = field(default_factory=lambda: iter(()))


class Engine:
    """Implements `cosyui.engine.base.EngineProtocol` for a real checkpoint."""

    def __init__(self, config: EngineConfig) -> None:
        """Resolve and load the model. Raises CheckpointError or SetupError with a sentence that says what to do."""
        began = time.perf_counter()
        if config.threads:
            torch.set_num_threads(config.threads)
        device = choose_device(config.device)
        precision = choose_precision(config.precision, device)
        folder = resolve(config.model, llm_file=config.llm_file)
        threads = config.threads or torch.get_num_threads()
        self.model = load(folder, llm_file=config.llm_file, device=device, precision=precision, threads=threads)
        lexicon = Lexicon.load(config.lexicon) if config.lexicon else None
        self.frontend = TextFrontend(self.model.tokenizer, self.model.config.text_frontend, lexicon=lexicon)
        self.prompts = PromptCache(self.model, config.prompt_cache_bytes)
        self.on_cuda = device.type == "cuda"
        self.precision = describe(precision)
        self.facts = self._facts(config, folder, time.perf_counter() - began)
        self.lanes: Lanes[Work] = Lanes()
        self.cancelled: list[str] = []
        self.finished = 0
        self.failed = 0
        self.process = psutil.Process()

    @property
    def has_work(self) -> bool:
        return bool(len(self.lanes) or self.cancelled)

    def submit(self, request: SynthesisRequest) -> None:
        self.lanes.add(Work(request))

    def cancel(self, request_id: str) -> None:
        work = self.lanes.find(request_id)
        if work is not None:
            self.lanes.remove(work)
            self.cancelled.append(request_id)

    def step(self) -> list[Event]:
        events: list[Event] = [Cancelled(request_id) for request_id in self.cancelled]
        self.cancelled.clear()
        work = self.lanes.current()
        if work is None:
            return events
        if work.take is None:
            precision = ", ".join(sorted(set(self.precision.values())))
            work.take = Take(work.request, self.model, self.frontend, self.prompts, precision)
            work.events = work.take.events()
        event = self._advance(work, work.take)
        if isinstance(event, Finished | Failed):
            self.lanes.remove(work)
        elif work.take.at_border:
            self.lanes.border()
        if event is not None:
            events.append(event)
        return events

    @torch.inference_mode()
    def _advance(self, work: Work, take: Take) -> Event | None:
        request = work.request
        try:
            with take.clock:
                event = next(work.events)
        except CosyuiError as error:
            failure = Failed(request.id, error.code, error.message, error.field, error.status)
        except torch.OutOfMemoryError:
            failure = Failed(request.id, "out_of_memory", self.memory_message())
        except torch.AcceleratorError:
            raise  # the CUDA context is lost: only a new process helps
        except Exception:
            log.exception("request failed", extra={"request_id": request.id})
            message = "Something went wrong inside the engine; its log has the details under this request's id."
            failure = Failed(request.id, "engine_fault", message)
        else:
            self.finished += isinstance(event, Finished)
            return event
        self.failed += 1
        return failure

    def stats(self) -> EngineStats:
        allocated = reserved = used = total = 0
        if self.on_cuda:
            allocated = torch.cuda.memory_allocated(self.model.device)
            reserved = torch.cuda.memory_reserved(self.model.device)
            free, total = torch.cuda.mem_get_info(self.model.device)
            used = total - free
        return EngineStats(
            running=sum(work.take is not None for work in self.lanes),
            waiting=sum(work.take is None for work in self.lanes),
            finished=self.finished,
            failed=self.failed,
            rss=self.process.memory_info().rss,
            allocated=allocated,
            reserved=reserved,
            device_used=used,
            device_total=total,
            cached_prompts=len(self.prompts),
        )

    def close(self) -> None:
        self.lanes.clear()
        self.prompts.clear()
        del self.model, self.frontend, self.prompts
        if self.on_cuda:
            torch.cuda.empty_cache()

    def memory_message(self) -> str:
        free, total = torch.cuda.mem_get_info(self.model.device)
        torch.cuda.empty_cache()
        return (
            f"The GPU is out of memory ({free >> 20} of {total >> 20} MiB were free). "
            "Try a shorter text, or close other programs that use the GPU."
        )

    def _facts(self, config: EngineConfig, folder: Path, seconds: float) -> EngineFacts:
        model = self.model
        parts = {"llm": model.llm, "flow": model.flow, "vocoder": model.vocoder}
        return EngineFacts(
            model=folder.name,
            source=str(parse_source(config.model)),
            device=torch.cuda.get_device_name(model.device) if self.on_cuda else "cpu",
            precision=self.precision,
            parameters={name: parameter_count(part) for name, part in parts.items()},
            memory={name: weight_bytes(part) for name, part in parts.items()},
            load_seconds=seconds,
            demo_voice=model.config.demo_voice,
            instruct_supported=model.config.instruct_supported,
            languages=model.config.languages,
        )
