"""Figures over time: resolution, gaps, jumps of the wall clock, bounded memory."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cosyui.ops.history import MOST_SERIES, SPANS, History, Recent

WALL = 1_800_000_000.0


def test_a_second_a_bucket_then_coarser_with_mean_and_peak():
    history = History()
    for second in range(3600):
        history.record(second + 0.5, {"a": float(second), "b": 1.0})
    now = 3599.5
    quarter = history.read("quarter", now, WALL + now)
    assert (len(quarter.times), quarter.step) == (900, 1.0)
    assert np.array_equal(quarter.mean["a"], np.arange(2700, 3600))
    assert quarter.times[-1] == WALL + 3599
    hour = history.read("hour", now, WALL + now)
    assert (len(hour.times), hour.step) == (720, 5.0)
    assert np.array_equal(hour.mean["a"], np.arange(720) * 5 + 2)
    assert np.array_equal(hour.peak["a"], np.arange(720) * 5 + 4)
    day = history.read("day", now, WALL + now, ["b"])
    assert list(day.mean) == ["b"]
    assert np.isnan(day.mean["b"][:-60]).all()
    assert (day.mean["b"][-60:] == 1).all()


def test_gaps_stay_gaps_also_those_longer_than_the_ring():
    history = History()
    for second in [*range(10), *range(20, 30), *range(5000, 5010)]:
        history.record(second + 0.5, {"a": 1.0, "b": None if second % 2 else float("nan")})
    values = history.read("quarter", 5009.5, WALL).mean["a"]
    assert np.array_equal(values[-10:], np.ones(10))
    assert np.isnan(values[:-10]).all()
    assert np.isnan(history.read("quarter", 20_000.0, WALL).mean["a"]).all()
    assert history.names == ("a",)
    assert np.isnan(history.read("hour", 5009.5, WALL, ["never"]).peak["never"]).all()
    hour = history.read("hour", 5009.5, WALL).mean["a"]
    assert np.count_nonzero(~np.isnan(hour)) == 2


def test_labels_follow_the_wall_clock_and_figures_do_not():
    history = History()
    for second in range(100):
        history.record(second + 0.5, {"a": float(second)})
    before = history.read("quarter", 99.5, WALL)
    after = history.read("quarter", 99.5, WALL - 2 * 86_400)
    assert np.array_equal(before.mean["a"], after.mean["a"], equal_nan=True)
    assert np.allclose(before.times - after.times, 2 * 86_400)


@pytest.mark.parametrize("interval", [1.0, 2.0, 7.0, 60.0])
def test_a_slow_sampler_leaves_no_holes(interval):
    history = History(interval)
    times = (np.arange(int(900 / interval) + 2) + 0.5) * interval
    for time in times:
        history.record(float(time), {"a": 1.0})
    for span in SPANS:
        values = history.read(span, float(times[-1]), WALL).mean["a"]
        known = np.flatnonzero(~np.isnan(values))
        assert np.array_equal(known, np.arange(known[0], len(values)))


def test_memory_is_bounded_and_later_names_keep_their_place():
    history = History()
    history.record(0.5, {"first": 3.0})
    for number in range(2 * MOST_SERIES):
        history.record(1.5, {f"n{number}": float(number)})
    assert len(history.names) == MOST_SERIES
    full = history.nbytes
    assert full < 40_000 * MOST_SERIES
    for second in range(2, 2000):
        history.record(second + 0.5, {"first": 3.0, f"x{second}": 1.0})
    assert history.nbytes == full
    curve = history.read("hour", 1999.5, WALL, ["first", "n200"])
    assert (curve.mean["first"][-400:] == 3).all()
    assert 200 in curve.peak["n200"]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.floats(0, 400), st.floats(-1e6, 1e6)), min_size=1, max_size=30))
def test_every_figure_of_the_last_quarter_is_in_its_bucket(samples):
    history, now = History(), 0.0
    buckets = {}
    for pause, value in samples:
        now += pause
        history.record(now, {"a": value})
        buckets.setdefault(int(now), []).append(np.float32(value))
    curve = history.read("quarter", now, now)
    for start, mean, peak in zip(curve.times, curve.mean["a"], curve.peak["a"], strict=True):
        expected = buckets.get(round(start))
        if expected is None:
            assert np.isnan(mean)
        else:
            assert mean == pytest.approx(np.mean(expected), rel=1e-3, abs=1)
            assert peak == max(expected)


def test_quantiles_of_the_last_minutes():
    recent = Recent(seconds=60, most=100)
    assert recent.quantiles(0, 0.5) == (None,)
    for value in range(101):
        recent.add(10.0, float(value))
    assert recent.quantiles(10, 0.5, 1.0) == (50.5, 100.0)
    recent.add(50.0, 7.0)
    assert recent.quantiles(71, 0.5, 0.95) == (7.0, 7.0)
    assert recent.quantiles(111, 0.5, 0.95) == (None, None)
