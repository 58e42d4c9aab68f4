"""The command: what it reads, what it prints, and that it can be held against a service."""

import argparse
import json
import subprocess
import sys

import pytest

from cosyui.bench import capacity, measured, open_load
from cosyui.bench.queueing import Bound, Curve, Load
from cosyui.bench.simulate import closed
from cosyui.errors import SetupError


def options(*given):
    parser = argparse.ArgumentParser()
    capacity.add_arguments(parser)
    return parser.parse_args(given)


def test_points_are_read_or_refused():
    assert measured.typed("1:49, 64:450") == {1: 49.0, 64: 450.0}
    for wrong in ("", "1", "0:5", "1:0", "one:5"):
        with pytest.raises(SetupError) as told:
            measured.typed(wrong)
        assert told.value.code == "setting_invalid"


def test_files_of_the_bench_are_a_curve(tmp_path):
    engine, stream, other = (tmp_path / name for name in ("engine.json", "stream.json", "other.json"))
    rows = [{"clients": count, "speech_per_s": speed} for count, speed in ((1, 40.0), (8, 200.0), (32, 240.0))]
    engine.write_text(json.dumps({"bench": "engine", "settings": {"places": 16}, "throughput": rows}))
    rows = [{"clients": 1, "first_p95": 40.0}, {"clients": 8, "first_p95": 90.0}]
    stream.write_text(json.dumps({"bench": "stream", "settings": {"places": 16}, "listeners": rows}))
    # More clients than places: they wait, and the places are as fast as they get.
    assert measured.read([engine, stream]) == Curve({1: 40.0, 8: 200.0, 16: 240.0}, {1: 0.04, 8: 0.09})
    for text in ("{}", "no json", "[]"):
        other.write_text(text)
        with pytest.raises(SetupError, match=r"other\.json"):
            measured.read([other])
    with pytest.raises(SetupError, match="No speed"):
        measured.read([stream])
    takes = {"speech_per_s": 320.0}
    other.write_text(json.dumps({"bench": "service", "settings": {"places": 64, "clients": 32}, "takes": takes}))
    assert measured.read([other]).speeds == {32: 320.0}


def test_a_plan_names_the_replicas_with_and_without_one_to_lose(capsys, tmp_path):
    file = tmp_path / "plan.json"
    common = ["--speeds", "1:10,4:20", "--seconds", "5", "--takes", "2000"]
    assert capacity.run(options(*common, "--per-minute", "300", "--json", str(file))) == 0
    (row,) = json.loads(file.read_text())
    needed = row["replicas"]
    assert row["with spare"] == needed + 1
    assert row["wait p95"] <= 1.0
    assert row["busy"] < 1
    assert needed * 20 > 25  # speech that is asked for
    shown = capsys.readouterr().out.splitlines()
    assert len(shown) == 3
    assert len({line.count("|") for line in shown}) == 1
    row = capacity.planned(Curve({1: 10.0}, {1: 0.5}), Load(1.0, 5.0), Bound(first=0.1), 1, 500, 0)
    assert row["replicas"] is None
    assert "–" in capacity.markdown([row])


def test_what_does_not_belong_together_is_refused():
    with pytest.raises(SetupError, match="--speeds"):
        capacity.run(options("--firsts", "1:0.1"))


def test_the_measured_card_gives_what_its_service_gave():
    """The second run of docs/performance.md, 64 clients with takes of 6 s: 321 s/s; ``extra`` comes from the first."""
    curve, lengths = measured.H200["h200-64"], [3.0, 4.5, 6.0, 7.5, 9.0] * 200
    seconds = sum(closed(curve, lengths, 64) for _ in range(10))
    assert 10 * sum(lengths) / seconds == pytest.approx(321, rel=0.06)


def test_it_needs_no_torch():
    code = "import sys, cosyui.bench.capacity, cosyui.bench.open_load; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_service_is_held_against_the_model():
    given = options("--check", "fake", "--places", "2", "--count", "6", "--words", "2")
    real, same, ever = open_load.check(given)
    assert real["speech s/s"] > 0
    assert same["speech s/s"] > 0
    assert set(real) == set(same) == set(ever)
