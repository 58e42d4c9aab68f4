"""Turns between clients, one client's share of the line, and requests that are wanted by some time only."""

import math
import random
import time

import pytest
from watching import follow, until

from cosyui.engine.request import Mode, PromptClip, SynthesisRequest
from cosyui.errors import BusyError
from cosyui.service import recorder as recording
from cosyui.service.admission import AdmissionQueue
from cosyui.service.fairness import Line
from cosyui.service.job import Job
from cosyui.service.outputs import OutputStore
from cosyui.service.recorder import Recorder
from cosyui.service.types import ClientQueueFullError, Done, FormError, Problem, QueueFullError, Running, Waiting
from cosyui.settings import Settings
from cosyui.speech.sound.audio_out import WavWriter


def job(tmp_path, name, seconds=10.0, *, long=False):
    """Of the client that the first letter names."""
    request = SynthesisRequest(name, "text", Mode.ZERO_SHOT, PromptClip(None, 16_000), 1, long=long)
    return Job(request, name[0], seconds, recorder=Recorder(OutputStore(tmp_path), name))


@pytest.fixture
def enter(tmp_path):
    """A function that queues jobs by their names, and gives the queue and the jobs by name."""

    def make(names, places=1, **options):
        queue = AdmissionQueue(1000, places)
        jobs = {name: job(tmp_path, name, **options) for name in names.split()}
        for one in jobs.values():
            queue.enter(one)
        return queue, jobs

    return make


def order_of(queue, began=()):
    """Ids in the order in which places are given, when the longest in work ends first."""
    order = [one.id for one in queue.running if one.id not in began]
    while queue.running:
        before = set(queue.running)
        queue.leave(queue.running[0])
        order += [one.id for one in queue.running if one not in before]
    return order


@pytest.mark.parametrize(
    ("names", "places", "order"),
    [
        ("a1 a2 a3 a4 b1", 1, "a1 b1 a2 a3 a4"),
        ("a1 a2 a3 b1 b2 b3 c1", 1, "a1 b1 c1 a2 b2 a3 b3"),
        ("a1 b1 c1 a2 b2 c2", 1, "a1 b1 c1 a2 b2 c2"),
        ("a1 a2 a3 a4 a5 a6 b1 b2 c1", 3, "a1 a2 a3 b1 c1 a4 b2 a5 a6"),
        ("a1 a2 a3 a4 a5", 2, "a1 a2 a3 a4 a5"),
    ],
)
@pytest.mark.parametrize("long", [False, True])
def test_places_go_round(enter, names, places, order, long):
    assert order_of(enter(names, places, long=long)[0]) == order.split()


def test_one_request_does_not_wait_for_ten_of_another(enter):
    queue, jobs = enter(" ".join(f"a{number}" for number in range(10)) + " b1")
    assert queue.position(jobs["b1"]) == 1
    queue.leave(jobs["a0"])
    assert jobs["b1"].turn.is_set()


def test_who_comes_back_waits_behind_those_that_wait(enter, tmp_path):
    """A stream of new clients keeps nobody out, and neither does one who always sends one more."""
    queue, jobs = enter("a1 b1 b2")
    queue.leave(jobs["a1"])
    for name in ("a2", "c1", "d1"):
        queue.enter(job(tmp_path, name))
    assert order_of(queue, began={"b1"}) == ["a2", "c1", "d1", "b2"]


def test_stopped_jobs_cost_their_client_nothing(enter):
    queue, jobs = enter("a1 a2 a3 a4 b1 b2")
    for name in ("a2", "a3"):
        queue.leave(jobs[name])
    assert order_of(queue, began={"a1"}) == ["b1", "a4", "b2"]


def test_a_line_forgets_clients(tmp_path):
    line, jobs = Line(), [job(tmp_path, f"{letter}1") for letter in "abc"]
    for one in jobs:
        line.add(one)
    line.remove(jobs[1])
    for one in (line.take(), line.take()):
        line.ended(one.client)
    assert line.take() is None
    assert (line._waiting, line._at_work, line._rounds) == ({}, {}, {})


def test_outlook_is_the_order_that_comes_true(enter, tmp_path):
    """Whatever the lengths and the clients: with right estimates, positions and times are kept to."""
    chance = random.Random(5)
    for places in (1, 3, 8):
        queue, jobs = AdmissionQueue(1000, places), {}
        for number in range(60):
            name = f"{chance.choice('aaaabbc')}{number}"
            jobs[name] = job(tmp_path, name, chance.uniform(2, 12))
            queue.enter(jobs[name])
        queue.speed.measured(places, seconds=20.0, speech=20.0 * places)
        told = queue.outlook()
        assert [position for position, _ in told.values()] == list(range(1, 60 - places + 1))
        ends, now, came = {one: one.expected_seconds for one in queue.running}, 0.0, []
        while ends:
            first = min(ends, key=ends.get)
            now = ends.pop(first)
            before = set(queue.running)
            queue.leave(first)
            for one in set(queue.running) - before:
                ends[one] = now + one.expected_seconds
                came.append(one)
                assert told[one][1] == pytest.approx(now, rel=1e-6)
        assert came == list(told)


def test_held_places_keep_the_order(enter):
    queue, jobs = enter("a1 a2 b1 a3")
    queue.hold()
    queue.leave(jobs["a1"])
    assert [one.id for one in queue.outlook()] == ["b1", "a2", "a3"]
    queue.release()
    assert jobs["b1"].turn.is_set()


def test_share_of_a_client(tmp_path):
    queue = AdmissionQueue(4, 1, client_size=2)
    for name in ("a1", "a2", "a3"):
        queue.enter(job(tmp_path, name))
    with pytest.raises(ClientQueueFullError) as caught:
        queue.enter(job(tmp_path, "a4"))
    assert (caught.value.code, caught.value.status, caught.value.retry_after) == ("client_queue_full", 429, 10)
    assert isinstance(caught.value, BusyError)
    assert str(caught.value.retry_after) in caught.value.message
    queue.enter(job(tmp_path, "a4", long=True))  # the other line
    for name in ("b1", "c1"):
        queue.enter(job(tmp_path, name))
    with pytest.raises(QueueFullError) as caught:
        queue.enter(job(tmp_path, "d1"))
    assert caught.value.code == "queue_full"


@pytest.mark.parametrize(
    ("given", "limit"), [({}, 5), ({"queue_size": 0}, 1), ({"queue_size": 7}, 4), ({"client_queue": 3}, 3)]
)
def test_share_is_half_of_the_line_by_itself(given, limit):
    assert Settings.load(given, {}).client_limit == limit


@pytest.mark.anyio
async def test_service_takes_turns_and_bounds_each_client(fake_service, form):
    async with fake_service(queue_size=4) as service:
        many = [await service.submit(form("[fake:hold]", client="many")) for _ in range(3)]
        with pytest.raises(ClientQueueFullError):
            await service.submit(form(client="many"))
        one = await service.submit(form("[fake:hold]", client="one"))
        assert [entry.id for entry in service.overview().waiting] == [one.id, many[1].id, many[2].id]
        updates = one.updates()
        assert (await until(updates, lambda update: isinstance(update, Waiting))).position == 1
        await many[0].cancel()
        await until(updates, lambda update: isinstance(update, Running))
        assert [entry.id for entry in service.overview().waiting] == [many[1].id, many[2].id]


@pytest.mark.anyio
@pytest.mark.parametrize("deadline", [0, -1.0, math.nan, math.inf])
async def test_impossible_deadline_is_a_problem_of_the_form(fake_service, form, deadline):
    async with fake_service(wait=False) as service:
        with pytest.raises(FormError) as caught:
            await service.submit(form(deadline=deadline))
        assert [(problem.code, problem.field) for problem in caught.value.problems] == [
            ("deadline_invalid", "deadline")
        ]


@pytest.mark.anyio
@pytest.mark.parametrize("where", ["waiting", "running", "long"])
async def test_deadline_frees_the_place_and_leaves_nothing(fake_service, form, monkeypatch, where):
    monkeypatch.setattr(recording, "MEMORY_BYTES", 0)
    text = "[fake:seconds=400][fake:slow=0.01]" + ("A story that goes on. " * 12 if where == "long" else "")
    async with fake_service(queue_size=1) as service:
        held = await service.submit(form("[fake:hold]")) if where == "waiting" else None
        ticket = await service.submit(form(text, deadline=0.5))
        last = (await follow(ticket))[-1]
        assert isinstance(last, Problem)
        assert (last.error.code, last.error.status) == ("deadline_passed", 504)
        assert service.ticket(ticket.id) is None
        assert service.overview().waiting == ()
        assert list(service.outputs.root.rglob(f"*{ticket.id}*")) == []
        assert service.client.restarts == 0
        if held is not None:
            await held.cancel()
        assert isinstance((await follow(await service.submit(form(deadline=600))))[-1], Done)


@pytest.mark.anyio
async def test_deadline_while_the_file_is_written(fake_service, form, monkeypatch):
    """The disk is slower than the patience: the file that comes after all is taken away."""
    async with fake_service() as service:
        finish, written = WavWriter.finish, []

        def slow_finish(writer):
            for _ in range(2000):
                if task.cancelling():
                    break
                time.sleep(0.01)
            finish(writer)
            written.append(writer)

        monkeypatch.setattr(WavWriter, "finish", slow_finish)
        ticket = await service.submit(form(deadline=2.0))
        task = service._drive.jobs[ticket.id].task
        assert (await follow(ticket))[-1].error.code == "deadline_passed"
        assert written
        assert not list(service.outputs.root.rglob("*.wav"))


@pytest.mark.anyio
async def test_stop_before_the_deadline_is_a_stop(fake_service, form):
    async with fake_service() as service:
        ticket = await service.submit(form("[fake:hold]", deadline=60))
        await ticket.cancel()
        assert service.overview().stopped == 1
