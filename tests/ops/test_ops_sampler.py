"""The one sampler: cheap, never held up, gaps where nothing could be measured."""

import asyncio
import os
from dataclasses import replace

import numpy as np
import pytest

from cosyui.ops.aside import Aside
from cosyui.ops.disk import DiskUse
from cosyui.ops.monitor import MachineSample, ProcessSample
from cosyui.ops.nvml import GpuSample
from cosyui.ops.sampler import Sampler, ServiceSample, Sources, until_next
from cosyui.ops.vram import EngineMemory

CARD = GpuSample("GPU-a", "card", used=600, total=1000, utilisation=50, power=300.0, throttle=())
MACHINE = MachineSample(ProcessSample(1, 100, 5.0, 3), None, 8000, 3000, 12.5, 4, ())


class Clock:
    now = 1000.5

    def __call__(self):
        return self.now


class Threads:
    """Starts nothing by itself: `finish` does what was asked for."""

    def __init__(self, hang=False):
        self.hang = hang
        self.open = []
        self.started = 0

    def __call__(self, work):
        self.started += 1
        self.open.append(work)
        if not self.hang:
            self.finish()

    def finish(self):
        while self.open:
            self.open.pop()()


@pytest.fixture
def clock():
    return Clock()


def sampler_of(clock, threads, machine=lambda: MACHINE, service=lambda: ServiceSample(1, 2, 0.0, 0), **changes):
    sources = Sources(service, machine, **changes)
    return Sampler(sources, clock=clock, wall=lambda: clock.now + 5000, start=threads)


def run_for(sampler, clock, seconds):
    for _ in range(seconds):
        sampler.tick()
        clock.now += 1


def test_figures_of_a_machine_without_gpu(clock):
    sampler = sampler_of(clock, Threads(), disk=lambda: DiskUse(77, 88, 99))
    sampler.first_chunk(0.2)
    run_for(sampler, clock, 3)
    latest = sampler.latest
    assert (latest.machine, latest.stale, latest.vram, latest.disk.used) == (MACHINE, False, {}, 77)
    assert (latest.first_chunk_p50, latest.first_chunk_p95) == (0.2, 0.2)
    curve = sampler.curve("quarter")
    assert curve.times[-1] == 5000 + 1003
    last = {name: float(values[-2]) for name, values in curve.mean.items()}
    assert (last["cpu"], last["ram_used"], last["ram_page"]) == (12.5, 5000, 100)
    assert (last["running"], last["waiting"], last["speed"]) == (1, 2, 0)
    assert (last["outputs"], last["disk_free"]) == (77, 88)
    assert "ram_engine" not in last


def test_speech_and_errors_are_rates(clock):
    counts = iter([(0.0, 0), (4.0, 1), None, (8.0, 1), (12.0, 3)])

    def service():
        count = next(counts)
        if count is None:
            raise RuntimeError("the loop is closing")
        return ServiceSample(0, 0, *count)

    sampler = sampler_of(clock, Threads(), service=service)
    rates = []
    for pause in (1, 2, 1, 1, 4):
        sample = sampler.tick()
        rates.append((sample.speed, sample.errors_per_second))
        clock.now += pause
    assert rates == [(None, None), (4.0, 1.0), (None, None), (None, None), (4.0, 2.0)]
    assert np.isnan(sampler.curve("quarter", ["running"]).mean["running"][-7])


def test_a_card_with_an_engine_on_it(clock):
    machine = replace(MACHINE, gpus=(CARD,))
    engines = (EngineMemory(300, 400, weights=200, context=50),)
    sampler = sampler_of(clock, Threads(), lambda: machine, lambda: ServiceSample(0, 0, 0, 0, engines))
    parts = sampler.tick().vram["GPU-a"]
    assert (parts["weights"], parts["unused"], parts["others"], parts["free"]) == (200, 100, 150, 400)
    mean = sampler.curve("hour").mean
    values = [mean[f"GPU-a/{name}"][-1] for name in ("weights", "free", "utilisation", "power", "throttled")]
    assert values == [200, 400, 50, 300, 0]
    assert "GPU-a/temperature" not in mean


def test_a_driver_that_hangs_costs_one_thread_and_its_own_figures(clock):
    threads, engines = Threads(), (EngineMemory(300, 400, device_used=700, device_total=1000),)
    machine = replace(MACHINE, gpus=(CARD,))
    sampler = sampler_of(clock, threads, lambda: machine, lambda: ServiceSample(3, 0, 0, 0, engines))
    run_for(sampler, clock, 2)
    threads.hang = True
    run_for(sampler, clock, 60)
    assert threads.started == 3
    assert sampler.latest.stale
    assert sampler.latest.machine_age == pytest.approx(60)
    assert sampler.latest.machine is machine
    assert sampler.latest.vram["GPU-a"]["free"] == 300  # as the engine says
    curve = sampler.curve("quarter", ["running", "cpu", "GPU-a/free"]).mean
    assert (curve["running"][-62:-1] == 3).all()
    assert np.isnan(curve["cpu"][-50:]).all()
    threads.hang = False
    threads.finish()
    run_for(sampler, clock, 2)
    assert not sampler.latest.stale


def test_a_source_that_fails_leaves_a_gap(clock):
    def broken():
        raise OSError("gone")

    sampler = sampler_of(clock, Threads(), broken, disk=broken)
    sample = sampler.tick()
    assert (sample.machine, sample.machine_age, sample.disk) == (None, None, None)
    assert sampler.curve("quarter").mean["running"][-1] == 1


def test_the_disk_is_asked_rarely(clock):
    asked = []
    sampler = sampler_of(clock, Threads(), disk=lambda: asked.append(1) or DiskUse(1, 2, 3))
    run_for(sampler, clock, 120)
    assert len(asked) == 2


@pytest.mark.parametrize("late", [0.0, 0.3, -0.001])
def test_ticks_are_in_the_middle_of_each_bucket_however_late_the_last_one_was(clock, late):
    times = []

    async def sleep(seconds):
        if len(times) == 50:
            raise asyncio.CancelledError
        clock.now += seconds + late
        times.append(clock.now)

    sampler = sampler_of(clock, Threads())
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(sampler.run(sleep))
    assert [int(time) for time in times] == list(range(1001, 1051))
    assert not np.isnan(sampler.curve("quarter", ["running"]).mean["running"][-49:]).any()


def test_after_a_standstill_there_is_one_tick_and_a_gap(clock):
    assert until_next(1000.5 + 1e-9, 1.0) == pytest.approx(1)
    assert until_next(1030.9, 1.0) == pytest.approx(0.6)
    assert until_next(1031.45, 1.0) == pytest.approx(1.05)
    assert until_next(10.0, 4.0) == 4.0


def test_a_question_that_is_open_is_not_asked_again(clock):
    threads = Threads(hang=True)
    aside = Aside(lambda: 3, every=10, clock=clock, start=threads)
    aside.poke()
    aside.poke()
    assert (threads.started, aside.get(), aside.age) == (1, None, None)
    clock.now += 60
    aside.poke()
    threads.finish()
    assert (threads.started, aside.get(), aside.age) == (1, 3, 60)
    assert aside.get(limit=59) is None
    aside.poke()
    assert threads.started == 2


def test_no_thread_to_be_had_is_a_question_without_answer(clock):
    def start(_):
        raise RuntimeError("can't start new thread")

    aside = Aside(lambda: 3, clock=clock, start=start)
    aside.poke()
    aside.poke()
    assert (aside.get(), aside.problem) == (None, "can't start new thread")


def test_real_threads_answer():
    done = []
    aside = Aside(lambda: done.append(1) or 4)
    aside.poke()
    while aside.get() is None:
        os.sched_yield()
    assert aside.get() == 4
