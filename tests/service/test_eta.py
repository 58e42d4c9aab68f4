"""The ETA against an engine whose speed is known, in simulated time."""

import random
import statistics
from pathlib import Path

import numpy as np
import pytest

from cosyui.engine.lanes import Lanes
from cosyui.engine.request import Mode, PromptClip, SynthesisRequest
from cosyui.service.admission import AdmissionQueue
from cosyui.service.job import Job
from cosyui.service.outputs import OutputStore
from cosyui.service.recorder import Recorder
from cosyui.service.speed import Speed

CLIP = PromptClip(np.zeros(16_000, np.float32), 16_000)
SEGMENT = 10.0


def job(name, seconds, *, long=False):
    request = SynthesisRequest(name, "text", Mode.ZERO_SHOT, CLIP, 1, long=long)
    return Job(request, "anonymous", seconds, recorder=Recorder(OutputStore(Path("nowhere")), name))


class Simulation:
    """An engine of some places whose ``speed`` (seconds of speech a second) depends on how many are at work."""

    def __init__(self, places, speed):
        self.queue = AdmissionQueue(1000, places)
        self.lanes = Lanes(places)
        self.speed = speed
        self.tick = 0.1 * places / speed(places)
        self.now = 0.0
        self.lengths = {}
        self.in_engine = set()
        self.told = {}
        self.waits = []

    def submit(self, name, seconds, *, estimate=None, long=False):
        one = job(name, estimate or seconds, long=long)
        self.lengths[one] = seconds
        self.queue.enter(one)
        self.told[one] = (self.now, self.queue.eta(one) if one in self.queue.waiting else None)
        return one

    def run(self, seconds=None):
        """For some time, or until all is done."""
        end = None if seconds is None else self.now + seconds
        while self.queue.running and (end is None or self.now < end):
            self.step()
        if end is not None:
            self.now = max(self.now, end)

    def step(self):
        for one in self.queue.running:
            if one not in self.in_engine:
                self.in_engine.add(one)
                self.lanes.add(one)
                since, eta = self.told[one]
                if eta is not None:
                    self.waits.append((eta, self.now - since))
        running = self.lanes.running()
        for one in running:
            if one.started is None:
                one.started = self.now
                one.segments = round(self.lengths[one] / SEGMENT) if one.request.long else 1
        self.queue.speed.work(self.now, len(running))
        self.now += self.tick
        share = self.speed(len(running)) * self.tick / len(running)
        made = 0.0
        for one in running:
            before, length = one.done_seconds, self.lengths[one]
            one.add_progress(min(length, before + share), redone=False)
            made += one.done_seconds - before
            if one.done_seconds >= length:
                self.lanes.remove(one)
                self.queue.speed.finished()
                self.queue.leave(one)
            elif one.request.long and before // SEGMENT < one.done_seconds // SEGMENT:
                self.lanes.border(one)
        self.queue.speed.work(self.now, len(self.queue.running), made)


def fixed(value):
    return lambda load: value


def growing(load):
    """Batches pay, but less and less: 10, 18, 32, 53, 80 s a second for 1, 2, 4, 8, 16."""
    return 10 * load / (1 + 0.07 * (load - 1)) ** 0.98


def errors(waits):
    return [abs(eta - waited) / max(waited, 1.0) for eta, waited in waits]


@pytest.mark.parametrize("places", [1, 2, 4, 16, 64])
@pytest.mark.parametrize("speed", [fixed(1.2), fixed(40.0), growing], ids=["slow", "fast", "growing"])
def test_eta_of_takes_is_right_at_any_number_of_places(places, speed):
    chance = random.Random(1)
    simulation = Simulation(places, speed)
    for number in range(3 * places + 8):
        simulation.submit(f"early {number}", chance.uniform(2, 12))
    simulation.run(seconds=12 * places / speed(places))
    simulation.waits.clear()
    measured = 0
    while measured < 40:
        for number in range(3):
            simulation.submit(f"take {measured + number}", chance.uniform(2, 12))
        measured += 3
        simulation.run(seconds=6 / speed(places))
    simulation.run()
    late = errors(simulation.waits[-40:])
    assert statistics.median(late) < 0.05
    assert max(late) < 0.2


def test_eta_with_estimates_that_are_off():
    chance = random.Random(2)
    simulation = Simulation(8, fixed(20.0))
    for number in range(120):
        seconds = chance.uniform(2, 12)
        simulation.submit(f"take {number}", seconds, estimate=seconds * chance.uniform(0.75, 1.3))
        simulation.run(seconds=0.1)
    simulation.run()
    late = errors(simulation.waits[40:])
    assert statistics.median(late) < 0.15


def test_eta_after_a_sudden_rush_is_on_the_safe_side_and_soon_right():
    """So far only one at a time, ten times slower than what all places together give."""
    simulation = Simulation(16, growing)
    for number in range(3):
        simulation.submit(f"single {number}", 8.0)
        simulation.run()
    for number in range(20):
        simulation.submit(f"rush {number}", 8.0)
    last = simulation.submit("last", 8.0)
    assert simulation.queue.eta(last) == pytest.approx(8.0 * 16 / growing(1), rel=0.05)
    simulation.run(seconds=1.0)
    began, eta = simulation.now, simulation.queue.eta(last)
    while last in simulation.queue.waiting:
        simulation.step()
    assert eta == pytest.approx(simulation.now - began, rel=0.5)


@pytest.mark.parametrize("places", [1, 4])
def test_eta_of_short_takes_between_long_jobs(places):
    chance = random.Random(3)
    simulation = Simulation(places, fixed(4.0 * places))
    for number in range(places):
        simulation.submit(f"story {number}", 600.0, long=True)
    simulation.run(seconds=5.0)
    for number in range(2 * places):
        simulation.submit(f"warm {number}", 6.0)
    simulation.run(seconds=20.0)
    for number in range(8 * places):
        simulation.submit(f"take {number}", chance.uniform(3, 9))
    simulation.waits.clear()
    simulation.run(seconds=60.0)
    assert statistics.median(errors(simulation.waits)) < 0.35


@pytest.mark.parametrize("places", [1, 4])
def test_time_left_of_a_running_take(places):
    simulation = Simulation(places, fixed(10.0))
    simulation.submit("first", 10.0)
    simulation.run()
    takes = [simulation.submit(f"take {number}", 10.0 * (number + 1)) for number in range(places)]
    simulation.run(seconds=0.3)
    began, told = simulation.now, {take: simulation.queue.left(take) for take in takes}
    for take in takes:
        while take in simulation.queue.running:
            simulation.step()
        assert told[take] == pytest.approx(simulation.now - began, rel=0.1, abs=0.1)


def test_speed_is_not_known_before_a_request_is_done_and_stands_still_while_idle():
    speed = Speed()
    speed.work(0.0, 1)
    speed.work(1.0, 1, 2.0)
    assert speed.at(1) is None
    speed.finished()
    assert speed.at(1) == pytest.approx(2.0, rel=0.02)
    speed.work(1.0, 0)
    speed.work(1000.0, 1)
    assert speed.at(1) == pytest.approx(2.0, rel=0.02)


def test_each_load_has_a_speed_of_its_own():
    speed = Speed()
    speed.measured(1, seconds=20, speech=40)
    assert speed.at(64) == speed.at(1) == pytest.approx(2.0)
    speed.measured(64, seconds=20, speech=400)
    assert speed.at(64) == pytest.approx(20, rel=0.1)
    assert speed.at(1) == pytest.approx(2.0, rel=0.5)
    assert speed.seconds(100, 64) == pytest.approx(100 / speed.at(64))


def test_old_measurements_fade():
    speed = Speed()
    for speech in [1] * 100 + [5] * 60:
        speed.measured(1, seconds=1, speech=speech)
    assert speed.at(1) == pytest.approx(5, rel=0.15)
