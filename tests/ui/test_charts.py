"""Pictures of figures: parts fill the bar, gaps stay gaps, peaks survive, and labels are text."""

from __future__ import annotations

import re

import numpy as np
import pytest

from cosyui.ui.charts import HEIGHT, MOST_POINTS, WIDTH, Line, Part, chart, parts_bar, path, thin


def plain(value: float) -> str:
    return f"{value:g}"


def test_the_parts_fill_the_bar_and_are_named() -> None:
    html = parts_bar([Part("weights", "Weights", 3), Part("free", "<Free>", 5), Part("other", "Other", 0)], plain, 0.8)
    widths = [float(width) for width in re.findall(r"width:([\d.]+)%", html)]
    assert widths == [37.5, 62.5]
    assert "&lt;Free&gt; 5" in html
    assert "Other" not in html
    assert 'style="left:80%"' in html


def test_no_parts_no_bar() -> None:
    assert parts_bar([Part("free", "Free", 0)], plain) == ""


def test_a_gap_lifts_the_pen() -> None:
    drawn = path(np.array([0, 1, np.nan, np.nan, 1, 0], np.float32), 1.0)
    assert re.findall("[ML]", drawn) == ["M", "L", "M", "L"]
    assert drawn.startswith(f"M0.0 {HEIGHT:.1f}")
    assert drawn.endswith(f"L{WIDTH:.1f} {HEIGHT:.1f}")


def test_a_lone_value_is_seen() -> None:
    assert path(np.array([np.nan, 1, np.nan], np.float32), 1.0) == f"M{WIDTH / 2:.1f} 0.0h1"


def test_values_beyond_the_scale_stay_in_the_picture() -> None:
    heights = [float(at) for at in re.findall(r" (-?[\d.]+)", path(np.array([-3, 9], np.float32), 1.0))]
    assert heights == [HEIGHT, 0.0]


@pytest.mark.parametrize("size", [1, 7, MOST_POINTS, MOST_POINTS + 1, 1440])
def test_thinning_keeps_peaks_and_gaps(size: int) -> None:
    values = np.full(size, np.nan, np.float32)
    values[size // 2] = 7
    few = thin(values)
    assert len(few) <= MOST_POINTS
    assert np.nanmax(few) == 7
    assert np.isnan(few).sum() == len(few) - 1


def test_a_chart_tells_the_last_values_and_its_scale() -> None:
    times = np.arange(4.0)
    lines = [
        Line("one", "p50", np.array([1, 2, 3, 3.4], np.float32)),
        Line("two", "p95", np.array([1, 2, 3, np.nan], np.float32)),
    ]
    html = chart("A & B", times, lines, plain)
    assert "A &amp; B" in html
    assert "p50 3.4" in html
    assert "p95 –" in html
    assert "<em>5</em>" in html
    assert html.count("<path") == 2


def test_a_chart_of_nothing_is_empty() -> None:
    html = chart("Empty", np.zeros(0), [Line("one", "p50", np.zeros(0, np.float32))], plain)
    assert 'd=""' in html
