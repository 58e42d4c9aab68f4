"""The model of capacity against what is known exactly, and against itself."""

import math

import pytest

from cosyui.bench.queueing import Bound, Curve, Load, computed
from cosyui.bench.simulate import Arrival, closed, replicas_for, run, simulated

ONE = Curve({1: 1.0})
TAKES = 60_000


def servers(count):
    """So many of speed 1, as one replica whose takes do not hinder each other."""
    return Curve({1: 1.0, count: float(count)})


def erlang_c(count, offered):
    """Probability that one waits in M/M/c."""
    last = offered**count / math.factorial(count) / (1 - offered / count)
    return last / (sum(offered**k / math.factorial(k) for k in range(count)) + last)


@pytest.mark.parametrize("busy", [0.5, 0.8])
def test_one_place_with_exponential_lengths(busy):
    load = Load(busy, 1.0, 1.0)
    mean = busy / (1 - busy)
    assert computed(ONE, load).wait_mean == pytest.approx(mean, rel=1e-9)
    found = simulated(ONE, load, takes=TAKES)
    assert found.wait_mean == pytest.approx(mean, rel=0.06)
    assert found.waiting == pytest.approx(busy, rel=0.02)
    assert found.wait_p95 == pytest.approx(math.log(busy / 0.05) / (1 - busy), rel=0.06)


@pytest.mark.parametrize("busy", [0.5, 0.8])
def test_one_place_with_equal_lengths(busy):
    load = Load(busy, 1.0, 0.0)
    mean = busy / (2 * (1 - busy))
    assert computed(ONE, load).wait_mean == pytest.approx(mean, rel=1e-9)
    assert simulated(ONE, load, takes=TAKES).wait_mean == pytest.approx(mean, rel=0.05)


@pytest.mark.parametrize(("count", "busy"), [(4, 0.8), (16, 0.9)])
@pytest.mark.parametrize("replicas", [1, 2])
def test_many_places_with_exponential_lengths(count, busy, replicas):
    """However they are spread over replicas: their takes do not hinder each other."""
    load = Load(busy * count, 1.0, 1.0)
    waits = erlang_c(count, busy * count)
    mean = waits / (count * (1 - busy))
    curve = servers(count // replicas)
    assert computed(curve, load, replicas).waiting == pytest.approx(waits, rel=1e-9)
    assert computed(curve, load, replicas).wait_mean == pytest.approx(mean, rel=1e-9)
    found = simulated(curve, load, replicas, takes=TAKES)
    assert found.waiting == pytest.approx(waits, rel=0.06)
    assert found.wait_mean == pytest.approx(mean, rel=0.12)


@pytest.mark.parametrize("spread", [0.0, 0.5, 1.0])
def test_takes_that_share_a_speed_care_for_the_mean_length_only(spread):
    """One processor shared by all: busy / (1 - busy) are in it, whatever the lengths."""
    shared = Curve({1: 1.0, 64: 1.0})
    found = simulated(shared, Load(0.7, 1.0, spread), takes=TAKES)
    # Who comes finds that many before him, and is one more.
    assert found.takes == pytest.approx(1 + 0.7 / 0.3, rel=0.05)
    assert found.waiting == 0


def test_a_batch_is_as_fast_as_measured_and_linear_between():
    curve = Curve({1: 50.0, 64: 450.0}, {1: 0.04, 16: 0.16})
    assert (curve.places, curve.speed(64), curve.speed(0)) == (64, 450.0, 0.0)
    assert curve.slowness(1) == pytest.approx(0.02)
    middle = (curve.slowness(1) * 32 + curve.slowness(64) * 31) / 63
    assert curve.slowness(32) == pytest.approx(middle)
    assert curve.first_chunk(8) == pytest.approx(0.04 + 0.12 * 7 / 15)
    assert curve.first_chunk(31) == pytest.approx(0.28)
    assert Curve({1: 1.0}).first_chunk(5) == 0
    together = run(curve, [Arrival(0.0, 450 / 64)] * 64)
    assert together.ended == pytest.approx(1.0)


def test_the_queue_has_an_end():
    run_of_ten = run(ONE, [Arrival(0.0, 1.0)] * 10, queue=3)
    assert (len(run_of_ten.waits), run_of_ten.refused) == (4, 6)
    assert run_of_ten.waits == pytest.approx([0.0, 1.0, 2.0, 3.0])
    assert run_of_ten.outlook(1.0, 0.0).refused == 0.6


CARD = Curve({1: 49.0, 64: 450.0}, {1: 0.043, 16: 0.158, 32: 0.272})


def test_more_load_waits_longer_and_more_replicas_shorter():
    loads = [Load(rate, 10.0) for rate in (20, 30, 38, 42, 44)]
    for found in ([computed(CARD, load) for load in loads], [simulated(CARD, load, takes=4000) for load in loads]):
        assert [each.wait_p95 for each in found] == sorted(each.wait_p95 for each in found)
        assert [each.first_p95 for each in found] == sorted(each.first_p95 for each in found)
    less = [simulated(CARD, Load(80.0, 10.0), count, takes=4000).first_p95 for count in (2, 3, 4)]
    assert less == sorted(less, reverse=True)


def test_what_each_take_costs_beside_its_speech():
    plain, costly = Curve({1: 1.0}), Curve({1: 1.0}, extra=0.5)
    assert computed(costly, Load(0.5, 1.0, 0.0)) == computed(plain, Load(0.5, 1.5, 0.0))
    assert closed(costly, [1.0, 1.0], 1) == pytest.approx(3.0)
    assert simulated(costly, Load(0.5, 1.0, 0.0), takes=500).busy == pytest.approx(0.75)


def test_both_ways_agree_on_a_card():
    for rate in (30.0, 42.0):
        load = Load(rate, 10.0, 0.5)
        exact, found = computed(CARD, load), simulated(CARD, load, takes=30_000)
        assert found.takes == pytest.approx(exact.takes, rel=0.1)
        assert found.waiting == pytest.approx(exact.waiting, abs=0.05)


def test_the_smallest_number_that_keeps_the_bound():
    load = Load(100.0, 10.0, 0.5)
    bound = Bound(wait=0.5, first=0.3)
    count = replicas_for(CARD, load, bound, takes=4000)
    assert count is not None
    assert simulated(CARD, load, count, bound, takes=4000).holds(bound)
    assert not simulated(CARD, load, count - 1, bound, takes=4000).holds(bound)
    assert replicas_for(CARD, load, bound, spare=1, takes=4000) == count + 1
    assert replicas_for(CARD, Load(0.1, 10.0), bound, takes=500) == 1
    assert replicas_for(CARD, load, Bound(first=0.01), takes=500) is None


def test_too_much_is_never_kept():
    assert not computed(CARD, Load(46.0, 10.0)).holds(Bound())
    assert not simulated(CARD, Load(46.0, 10.0), takes=500).holds(Bound())


def test_clients_who_send_one_after_the_other():
    assert closed(ONE, [1.0, 2.0, 3.0], 2) == pytest.approx(6.0)
    assert closed(servers(2), [1.0, 2.0, 3.0], 2) == pytest.approx(4.0)
    assert closed(servers(2), [1.0, 2.0, 3.0], 1) == pytest.approx(6.0)
    assert 64 * 50 * 10 / closed(CARD, [10.0] * 64 * 50, 64) == pytest.approx(450, rel=0.01)
