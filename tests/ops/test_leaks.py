"""The leak alarm: finds steady growth, and does not cry wolf."""

import numpy as np
import pytest

from cosyui.ops.journal_file import Row
from cosyui.ops.leaks import LEAST, find_leaks, theil_sen

MIB = 1 << 20
BASE = 2000 * MIB


def rows_of(values, column="allocated_after", **columns):
    def cell(name, index):
        given = columns.get(name)
        return given(index) if callable(given) else given

    return [
        Row(f"r{i}", "page", 1.0 * i, "done", **{column: int(value)}, **{name: cell(name, i) for name in columns})
        for i, value in enumerate(values)
    ]


def noise(count, deviation, seed=0):
    return np.random.default_rng(seed).normal(0, deviation, count)


@pytest.mark.parametrize("deviation", [0, 1, 5])
@pytest.mark.parametrize("column", ["allocated_after", "engine_rss_after", "page_rss_after"])
def test_a_mebibyte_a_request_over_50_requests_is_found(deviation, column):
    (leak,) = find_leaks(rows_of(BASE + np.arange(50) * MIB + noise(50, deviation * MIB), column))
    assert leak.column == column
    assert leak.slope == pytest.approx(MIB, rel=0.15)
    assert leak.at_least <= leak.slope
    assert leak.rows == 50
    assert "MiB a request" in leak.reason


def test_a_slow_leak_is_found_over_more_requests():
    values = BASE + np.arange(300) * 40_000 + noise(300, MIB)
    (leak,) = find_leaks(rows_of(values))
    assert leak.slope == pytest.approx(40_000, rel=0.2)
    assert "KiB a request" in leak.reason


def test_only_the_last_requests_count_and_few_say_nothing():
    leaking = BASE + np.arange(200) * MIB
    assert find_leaks(rows_of(np.concatenate([leaking, np.full(300, leaking[-1])]))) == ()
    assert find_leaks(rows_of(leaking[: LEAST - 1])) == ()
    assert find_leaks([]) == ()
    assert find_leaks(rows_of(leaking, "device_after")) == ()


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("deviation", [0.1, 10, 200])
def test_noise_is_no_leak(seed, deviation):
    assert find_leaks(rows_of(BASE + noise(200, deviation * MIB, seed))) == ()


@pytest.mark.parametrize("at", [5, 25, 50, 75, 100, 150, 180, 195])
@pytest.mark.parametrize("deviation", [0, 2])
@pytest.mark.parametrize("height", [-500, 30, 500])
def test_a_step_is_no_leak(at, deviation, height):
    values = BASE + np.where(np.arange(200) < at, 0, height * MIB) + noise(200, deviation * MIB)
    assert find_leaks(rows_of(values)) == ()


@pytest.mark.parametrize("seed", range(5))
def test_a_warm_up_in_shrinking_steps_is_no_leak(seed):
    values = BASE + 400 * MIB * (1 - np.exp(-np.arange(200) / 20)) + noise(200, MIB, seed)
    assert find_leaks(rows_of(values)) == ()
    stairs = np.searchsorted([3, 10, 22, 60], np.arange(200)) * 50.0 * MIB
    assert find_leaks(rows_of(BASE + stairs + noise(200, MIB, seed))) == ()


def test_a_sawtooth_that_is_given_back_is_no_leak():
    assert find_leaks(rows_of(BASE + np.arange(200) % 25 * 10 * MIB)) == ()


def test_a_leak_in_stairs_is_one():
    values = BASE + np.arange(200) // 10 * 10 * MIB + noise(200, MIB)
    (leak,) = find_leaks(rows_of(values))
    assert leak.slope == pytest.approx(MIB, rel=0.1)


def test_memory_that_follows_the_load_is_no_leak_but_a_leak_under_load_is():
    time = np.arange(200)
    load = np.round(8 + 8 * np.sin(time / 12) + time / 40)
    used = BASE + load * 30 * MIB + noise(200, MIB)
    assert find_leaks(rows_of(used, beside=lambda i: int(load[i]))) == ()
    (leak,) = find_leaks(rows_of(used + time * MIB, beside=lambda i: int(load[i])))
    assert leak.slope == pytest.approx(MIB, rel=0.2)
    ramp = BASE + time * 30 * MIB
    assert find_leaks(rows_of(ramp, beside=lambda i: i)) == ()


@pytest.mark.parametrize(
    ("column", "kind", "other", "words"),
    [
        ("mode", "instruct", "zero_shot", "mode=instruct"),
        ("stream", True, False, "stream=true"),
        ("precision", "float16", "bfloat16", "precision=float16"),
        ("retries", 1, 0, "segments made again"),
        ("redone", 2, None, "pieces made again in float32"),
        ("speech_seconds", 20.0, 3.0, "long speech"),
    ],
)
def test_the_suspect_is_named(column, kind, other, words):
    guilty = np.random.default_rng(1).random(150) < 0.3
    values = BASE + np.cumsum(guilty) * 3 * MIB + noise(150, 0.3 * MIB)
    (leak,) = find_leaks(rows_of(values, **{column: lambda i: kind if guilty[i] else other}))
    assert leak.suspects[0].what == words
    assert leak.suspects[0].each == pytest.approx(3 * MIB, rel=0.1)
    assert abs(leak.suspects[0].otherwise) < 0.2 * MIB
    assert words in leak.reason


def test_a_cache_that_fills_is_told_as_such():
    new = np.random.default_rng(1).random(150) < 0.4
    values = BASE + np.cumsum(new) * 2 * MIB
    (leak,) = find_leaks(rows_of(values, cached_prompts=lambda i: int(np.cumsum(new)[i])))
    assert "new to the cache" in leak.suspects[0].what


def test_no_suspect_where_all_requests_are_the_same():
    (leak,) = find_leaks(rows_of(BASE + np.arange(100) * MIB, mode="instruct"))
    assert leak.suspects == ()
    assert "No kind of request stands out." in leak.reason


def test_one_engine_of_two_leaks():
    values = BASE + np.arange(200) // 2 * MIB * (np.arange(200) % 2) + (np.arange(200) % 2) * 900 * MIB
    rows = rows_of(values, engine=lambda i: i % 2, page_rss_after=BASE)
    (leak,) = find_leaks(rows)
    assert (leak.engine, leak.rows) == (1, 100)
    assert leak.slope == pytest.approx(MIB)
    assert "(engine 1)" in leak.reason
    (page,) = find_leaks(rows_of(BASE + np.arange(200) * MIB, "page_rss_after", engine=lambda i: i % 2))
    assert (page.engine, page.column) == (None, "page_rss_after")


def test_slopes():
    assert theil_sen(np.arange(60.0) * 3)[0] == 3
    assert theil_sen(np.arange(60.0) * 3)[1] == 3
    assert theil_sen(np.zeros(60)) == (0, 0)
    slope, bound = theil_sen(noise(60, 1.0))
    assert bound < 0.02
    assert abs(slope) < 0.02
