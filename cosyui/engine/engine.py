"""The engine: loads a checkpoint and speaks many requests at once, a small step at a time."""

from __future__ import annotations

import logging
import time
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from dataclasses import replace
from functools import partial

import torch

from cosyui.engine.clearing import clear
from cosyui.engine.config import EngineConfig
from cosyui.engine.facts import facts_of
from cosyui.engine.gauge import Gauge
from cosyui.engine.lanes import Lanes
from cosyui.engine.loading import OnProgress, Steps
from cosyui.engine.memory import give_back, hold_to, plan_memory
from cosyui.engine.needs import Aside, Decode, Need, NewTokens, Render
from cosyui.engine.precision import choose_device, choose_precision, describe
from cosyui.engine.prompts import PromptCache
from cosyui.engine.request import Cancelled, Cleared, EngineStats, Event, Failed, Finished, SynthesisRequest
from cosyui.engine.self_test import self_test
from cosyui.engine.shortage import is_out_of_memory, memory_message
from cosyui.engine.stages import Stages
from cosyui.engine.take import Studio, Take
from cosyui.engine.work import Work
from cosyui.errors import CosyuiError, InputError
from cosyui.hub import parse_source, resolve
from cosyui.model.config import load_config
from cosyui.model.cosyvoice3 import load
from cosyui.speech.prompt_format import TextFrontend
from cosyui.speech.text.lexicon import Lexicon

log = logging.getLogger(__name__)

SHORT_WAIT, LONGEST_WAIT = 0.0002, 0.02
"""Seconds that a step with nothing to do lasts."""


class Engine:
    """Implements `cosyui.engine.base.EngineProtocol` for a real checkpoint."""

    def __init__(self, config: EngineConfig, on_progress: OnProgress = lambda progress: None) -> None:
        """Resolve and load the model. Raises CheckpointError or SetupError with a sentence that says what to do."""
        began, step = time.perf_counter(), Steps(on_progress)
        step("files")
        if config.threads:
            torch.set_num_threads(config.threads)
        device = choose_device(config.device)
        self._enter(device)
        hold_to(device, config.vram_budget)
        folder = resolve(config.model, llm_file=config.llm_file)
        step("precision")
        precision = choose_precision(
            config.precision, device, load_config(folder), folder, config.llm_file, partial(step, "precision")
        )
        threads = config.threads or torch.get_num_threads()
        self.model = load(
            folder, llm_file=config.llm_file, device=device, precision=precision, threads=threads, on_step=step
        )
        step("kernels")
        lexicon = Lexicon.load(config.lexicon) if config.lexicon else None
        self.frontend = TextFrontend(self.model.tokenizer, self.model.config.text_frontend, lexicon=lexicon)
        self.prompts = PromptCache(self.model, config.prompt_cache_bytes)
        self.on_cuda = device.type == "cuda"
        self.precision = describe(precision)
        plan = plan_memory(self.model, config.vram_budget, config.places)
        self.stages = Stages(self.model, plan, folder, config.llm_file, partial(step, "kernels"))
        self.plan = self.stages.plan
        if self.on_cuda:
            log.info(str(self.plan))
        names = ", ".join(sorted(set(self.precision.values())))
        self.studio = Studio(
            self.model.config, self.frontend, self.prompts, self.stages.flow, self.stages.vocoder, names
        )
        self.rendering = self.stages.rendering
        self.gauge = Gauge(device)
        self.threads = ThreadPoolExecutor(2, "aside", self._enter, (device,))
        self.lanes: Lanes[Work] = Lanes(self.plan.slots)
        self.empty_cache = config.empty_cache
        self.cancelled: list[str] = []
        self.finished = 0
        self.failed = 0
        source = str(parse_source(config.model))
        self.facts = facts_of(self.model, source, folder, self.precision, self.plan.slots)
        step("self_test")
        tested = self_test(self) if config.self_test else None
        self.gauge.loaded(self.plan, self.stages)
        self.facts = replace(self.facts, self_test=tested, load_seconds=time.perf_counter() - began)
        step("ready")

    @property
    def has_work(self) -> bool:
        return bool(len(self.lanes) or self.cancelled or self.rendering.busy)

    def submit(self, request: SynthesisRequest) -> None:
        self.lanes.add(Work(request))

    def cancel(self, request_id: str) -> None:
        work = self.lanes.find(request_id)
        if work is not None:
            self._drop(work)
            self.gauge.drop(request_id)
            self.cancelled.append(request_id)

    @torch.inference_mode()
    def step(self) -> list[Event]:
        events: list[Event] = [Cancelled(request_id) for request_id in self.cancelled]
        self.cancelled.clear()
        moved = self.stages.advance(self._soonest())
        moved = self._take_in_renders(events) or moved
        running = self.lanes.running()
        for work in self.lanes:
            if work.take is not None and work.aside_since is None and work not in running:
                work.aside_since = time.perf_counter()
        for work in running:
            if work.steps is None or self._is_answered(work):
                self._resume(work, events)
                moved = True
        if not moved and not events:
            self._wait()
        return events

    def _soonest(self) -> float | None:
        """When the first listener runs dry of those who wait for tokens."""
        needs = (work.need for work in self.lanes if isinstance(work.need, NewTokens))
        return min((need.deadline for need in needs if need.deadline is not None), default=None)

    def _take_in_renders(self, events: list[Event]) -> bool:
        """Hand the sound that is done to those who wait for it, and start the next batch."""
        waiting = {id(work.need): work for work in self.lanes if isinstance(work.need, Render)}
        moved = False
        for render, outcome in self.rendering.advance():
            moved = True
            work = waiting.get(id(render))
            if work is None:
                continue  # cancelled in the meantime
            if isinstance(outcome, Exception):
                self._fail(work, outcome, events)
            else:
                work.need, work.answer = None, outcome
        return moved

    def _is_answered(self, work: Work) -> bool:
        """Whether ``work`` can go on; what it needs is put into its ``answer``."""
        match work.need:
            case Render():
                return False
            case NewTokens(stream):
                if not stream.ready:
                    return False
                work.answer = stream.take()
            case Decode() as need:
                decoding = self.stages.safe.decoding if need.safe else self.stages.decoding
                if not decoding.free:
                    return False
                try:
                    work.answer = decoding.open(need.text_ids, need.prompt_speech, need.rule, need.seed)
                except ValueError as error:
                    work.answer = _too_long(error)
                except torch.AcceleratorError:
                    raise  # the CUDA context is lost: only a new process helps
                except Exception as error:  # noqa: BLE001  (told to the one request that causes it)
                    work.answer = error
            case Aside():
                assert work.future is not None
                if not work.future.done():
                    return False
                work.answer = work.future.exception() or work.future.result()
                work.future = None
        work.need = None
        return True

    def _resume(self, work: Work, events: list[Event]) -> None:
        """Let a take go on until it waits for something, is put aside, or ends."""
        if work.steps is None:
            self.gauge.begin(work.request.id)
            work.take = Take(work.request, self.studio)
            work.steps = work.take.events()
        take, steps = work.take, work.steps
        assert take is not None
        if work.aside_since is not None:
            take.aside += time.perf_counter() - work.aside_since
            work.aside_since = None
        while work.need is None:
            answer, work.answer = work.answer, None
            try:
                step = steps.throw(answer) if isinstance(answer, BaseException) else steps.send(answer)
            except torch.AcceleratorError:
                raise  # the CUDA context is lost: only a new process helps
            except Exception as error:  # noqa: BLE001  (told to the one request that causes it)
                self._fail(work, error, events)
                return
            if isinstance(step, Need):
                self._begin(work, step)
                continue
            if isinstance(step, Finished):
                self.finished += 1
                self._drop(work)
                memory = self.gauge.end(step.request_id)
                events.append(Finished(step.request_id, replace(step.stats, memory=memory)))
                return
            if step is not None:
                events.append(step)
            if take.at_border:
                self.lanes.border(work)
                return
            if not self.on_cuda:
                return  # on a CPU a step must stay short

    def _begin(self, work: Work, need: Need) -> None:
        work.need = need
        if isinstance(need, Render):
            self.rendering.add(need)
        elif isinstance(need, Aside):
            work.future = self.threads.submit(torch.inference_mode()(need.work))

    def _drop(self, work: Work) -> None:
        """Take it out, with all that it holds."""
        self.lanes.remove(work)
        if isinstance(work.need, Render):
            self.rendering.drop(work.need)
        work.close()
        idle = not len(self.lanes)
        if idle:
            self.stages.rest()
        give_back(self.model.device, self.empty_cache, idle=idle)

    def _fail(self, work: Work, error: Exception, events: list[Event]) -> None:
        request_id = work.request.id
        if isinstance(error, CosyuiError):
            failure = Failed(request_id, error.code, error.message, error.field, error.status)
        elif is_out_of_memory(error):
            failure = Failed(request_id, "out_of_memory", memory_message(self.model.device, error))
        else:
            log.error("request failed", exc_info=error, extra={"request_id": request_id})
            message = "Something went wrong inside the engine; its log has the details under this request's id."
            failure = Failed(request_id, "engine_fault", message)
        self.failed += 1
        self._drop(work)
        events.append(replace(failure, memory=self.gauge.end(request_id)))

    def _wait(self) -> None:
        """Nothing can go on: leave the core to others for a moment."""
        futures = [work.future for work in self.lanes if work.future is not None]
        if futures and not self.on_cuda:
            wait(futures, timeout=LONGEST_WAIT, return_when=FIRST_COMPLETED)
        else:
            # What the GPU is at and the threads cannot be waited for together.
            time.sleep(SHORT_WAIT)

    @staticmethod
    def _enter(device: torch.device) -> None:
        """Streams, graphs and Triton go by the thread's current device."""
        if device.type == "cuda":
            torch.cuda.set_device(device)

    def stats(self) -> EngineStats:
        counters = EngineStats(
            running=sum(work.take is not None for work in self.lanes),
            waiting=sum(work.take is None for work in self.lanes),
            finished=self.finished,
            failed=self.failed,
            rss=0,
            cached_prompts=len(self.prompts),
            extra={"redone_in_float32": float(self.rendering.redone)},
        )
        return self.gauge.fill(counters, self.prompts, idle=not self.has_work)

    def clear(self, *, light: bool = False) -> Cleared:
        cleared = clear(self.model, self.prompts, self.stages, idle=not len(self.lanes), light=light)
        if not light:
            self.gauge.forget_peaks()
        return cleared

    def close(self) -> None:
        for work in self.lanes:
            work.close()
        self.lanes.clear()
        self.threads.shutdown(cancel_futures=True)
        self.prompts.clear()
        del self.model, self.frontend, self.prompts, self.studio, self.stages, self.rendering
        if self.on_cuda:
            torch.cuda.empty_cache()


def _too_long(error: ValueError) -> InputError:
    message = f"The clip's transcript and this piece of text are too long together ({error}). Use a shorter clip."
    return InputError("text_too_long", message, "text")
