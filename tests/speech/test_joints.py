"""Segments to one recording: trimmed, faded, joined by the pauses asked for, level, and the same in any pieces."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from numpy.typing import NDArray

from cosyui.speech.sound.joints import HEAD_SECONDS, TAIL_SECONDS, Joiner
from cosyui.speech.sound.loudness import CEILING, KNEE, MOST_GAIN_DB, Leveller, frame_powers, limit_peaks, speech_level

RATE = 24_000
Samples = NDArray[np.float32]


def silence(seconds: float) -> Samples:
    return np.zeros(round(seconds * RATE), np.float32)


def voice(seconds: float, level: float = -20.0, hz: float = 150.0) -> Samples:
    """A tone of ``level`` dBFS (RMS) that starts and ends abruptly."""
    time = np.arange(round(seconds * RATE)) / RATE
    return (10 ** (level / 20) * np.sqrt(2) * np.cos(2 * np.pi * hz * time)).astype(np.float32)


def segment(head: float, *parts: float, tail: float, level: float = -20.0) -> Samples:
    """Silence, then by turns voice and silence, then silence."""
    waves = [voice(part, level) if index % 2 == 0 else silence(part) for index, part in enumerate(parts)]
    return np.concatenate([silence(head), *waves, silence(tail)])


def record(segments: list[tuple[Samples, float]], piece: int | None = None, clip_level: float = -20.0) -> Samples:
    """The recording of segments with their pauses, each given whole or in pieces of so many samples."""
    joiner = Joiner(clip_level)
    out = []
    for wave, pause in segments:
        sound = joiner.segment(pause)
        size = piece or len(wave)
        out += [sound.push(wave[start : start + size]) for start in range(0, len(wave), size)]
        out.append(sound.finish())
    return np.concatenate(out)


def stretches(wave: Samples, threshold: float = -55.0) -> list[tuple[bool, float]]:
    """Runs of sound (True) and silence with their seconds, to a hundredth."""
    loud = frame_powers(wave) > 10 ** (threshold / 10)
    borders = [0, *(np.flatnonzero(np.diff(loud)) + 1), len(loud)]
    return [(bool(loud[a]), (b - a) / 100) for a, b in pairwise(borders)]


@pytest.mark.parametrize("piece", [None, 24_000, 7_777, 100])
@pytest.mark.parametrize(("head", "tail"), [(0.0, 0.0), (0.02, 0.05), (0.8, 1.5), (3.0, 3.0)])
def test_edges_are_trimmed_and_inner_pauses_stay(head: float, tail: float, piece: int | None) -> None:
    wave = record([(segment(head, 0.5, 0.4, 1.0, 1.2, 0.3, tail=tail), 0.0)], piece)
    found = stretches(wave)
    if not found[0][0]:
        assert found.pop(0)[1] <= HEAD_SECONDS + 0.02
    if not found[-1][0]:
        assert found.pop()[1] <= TAIL_SECONDS + 0.02
    assert [seconds for _, seconds in found] == pytest.approx([0.5, 0.4, 1.0, 1.2, 0.3], abs=0.03)


@pytest.mark.parametrize("piece", [None, 24_000, 5_000])
@pytest.mark.parametrize("pause", [0.05, 0.15, 0.25, 0.6, 2.0])
@pytest.mark.parametrize("edge", [0.0, 0.06, 0.7])
def test_pause_at_a_joint_is_as_long_as_asked(pause: float, edge: float, piece: int | None) -> None:
    parts = [segment(edge, 1.0, tail=edge) for _ in range(3)]
    wave = record([(parts[0], pause), (parts[1], pause), (parts[2], 0.0)], piece)
    found = stretches(wave)
    pauses = [seconds for loud, seconds in found[1:-1] if not loud]
    assert len(pauses) == 2
    # Without silence of its own a segment fades within its first and last sounds: 20 ms more are quiet.
    assert pauses == pytest.approx([pause, pause], abs=0.03)


@pytest.mark.parametrize("piece", [None, 24_000, 1_000])
def test_no_click_where_segments_begin_and_end(piece: int | None) -> None:
    """The tone starts and ends at its peak: only the fade keeps its ends from jumping."""
    wave = record([(segment(0.0, 0.5, tail=0.0), 0.3)] * 3, piece)
    largest = np.abs(np.diff(voice(0.5))).max()
    assert np.abs(np.diff(np.concatenate([[0.0], wave, [0.0]]))).max() <= 1.1 * largest


def test_pieces_make_the_recording_of_the_whole_but_for_a_hair_of_loudness() -> None:
    parts = [(segment(0.3, 0.7, 0.2, 1.1, tail=0.4), 0.4), (segment(0.0, 2.0, tail=0.2), 0.0)]
    whole = record(parts)
    for piece in (24_000, 3_001):
        assert np.abs(record(parts, piece) - whole).max() < 0.02 * np.abs(whole).max()


def test_a_segment_that_is_dropped_leaves_no_trace() -> None:
    good = segment(0.1, 1.0, tail=0.1)
    joiner = Joiner(-20.0)
    joiner.segment(9.0).push(segment(0.1, 1.0, tail=0.1, level=-40.0))
    sound = joiner.segment(0.0)
    assert np.array_equal(np.concatenate([sound.push(good), sound.finish()]), record([(good, 0.0)]))


def test_a_silent_segment_gives_nothing() -> None:
    assert len(record([(silence(2.0), 0.0)])) == 0


LEVELS = [-20.0, -25.5, -15.0, -22.0, -17.0]


@pytest.mark.parametrize("piece", [None, 24_000])
def test_loudness_does_not_jump_between_segments(piece: int | None) -> None:
    joiner = Joiner(-20.0)
    found = []
    for level in LEVELS:
        sound = joiner.segment(0.3)
        wave = segment(0.05, 4.0, tail=0.05, level=level)
        size = piece or len(wave)
        out = [sound.push(wave[start : start + size]) for start in range(0, len(wave), size)]
        measured = speech_level(np.concatenate([*out, sound.finish()]))
        assert measured is not None
        found.append(measured)
    assert max(LEVELS) - min(LEVELS) > 10
    assert max(found) - min(found) <= 1.0


@pytest.mark.parametrize("level", [-23.5, -20.0, -17.0])
def test_one_short_take_is_left_as_it_is(level: float) -> None:
    wave = segment(0.0, 1.0, 0.2, 1.0, tail=0.0, level=level)
    assert np.abs(record([(wave, 0.0)], 10_000)[1000:-1000] - wave[1000:-1000]).max() < 1e-4


@pytest.mark.parametrize(("level", "gain"), [(-50.0, 6.0), (-30.0, 6.0), (-26.0, 2.0), (-12.0, -4.0), (-3.0, -6.0)])
def test_gain_is_bounded_and_relative_to_the_clip(level: float, gain: float) -> None:
    measured = speech_level(Leveller(-20.0).segment()(voice(1.0, level)))
    assert measured is not None
    assert measured - level == pytest.approx(gain, abs=0.7)
    assert abs(gain) <= MOST_GAIN_DB


def test_gain_of_a_stream_moves_slowly_and_without_jumps() -> None:
    leveller = Leveller(-20.0)
    first = leveller.segment()
    first(voice(2.0, -20.0))
    first.close()
    stream = leveller.segment()
    gains = []
    for level in (-20.0, -26.0, -26.0, -26.0, -14.0, -14.0):
        wave = np.full(RATE, 10 ** (level / 20), np.float32)
        gains.append(20 * np.log10(stream(wave) / wave))
    curve = np.concatenate(gains)
    assert np.abs(np.diff(curve)).max() * RATE <= 3.1
    assert curve.max() > 1.0


@pytest.mark.parametrize("peak", [0.1, 0.7, 0.95, 1.5, 4.0])
def test_peaks_stay_below_the_ceiling_and_the_rest_is_untouched(peak: float) -> None:
    wave = voice(0.2, 0.0) / np.float32(np.sqrt(2)) * np.float32(peak)
    out = limit_peaks(wave)
    assert np.abs(out).max() <= CEILING
    assert np.array_equal(out[np.abs(wave) <= KNEE], wave[np.abs(wave) <= KNEE])
    assert (np.diff(out[np.argsort(wave)]) >= -1e-6).all()


def test_level_is_that_of_the_speech_alone() -> None:
    for wave in (segment(0.0, 1.0, tail=0.0), segment(2.0, 1.0, 3.0, 1.0, tail=4.0)):
        assert speech_level(wave) == pytest.approx(-20.0, abs=0.2)
    assert speech_level(silence(1.0)) is None
    assert speech_level(np.zeros(0, np.float32)) is None
