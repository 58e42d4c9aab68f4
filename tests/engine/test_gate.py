"""What may leave the engine: sane lengths, no endless repetition or silence, and decoding that stops at once."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import pytest
import torch

from cosyui.engine.decode import LengthRule, SpecialRows, decode
from cosyui.engine.gate import BadOutputError, LengthBand, TokenWatch, check_spoken, check_wave, doubt
from cosyui.model.config import SILENT_TOKENS

RATE = 25
BAND = LengthBand(expected=40.0, shortest=20.0, longest=100.0, transcript=0.0)
RANDOM = random.Random(5)


def watch(tokens: Iterator[int], band: LengthBand = BAND, silent: tuple[int, ...] = ()) -> tuple[int, str]:
    """How many tokens were taken, and what was seen ("" if nothing)."""
    seen = TokenWatch(band, RATE, silent)
    try:
        for token in tokens:
            seen(token)
    except BadOutputError as error:
        return seen.count, f"{error.code}: {error.message}"
    return seen.count, ""


def speech(count: int = 10_000) -> Iterator[int]:
    return (RANDOM.randrange(6561) for _ in range(count))


def repeated(pattern: list[int], noise: float = 0.0) -> Iterator[int]:
    for index in range(10_000):
        yield RANDOM.randrange(6561) if RANDOM.random() < noise else pattern[index % len(pattern)]


def after(seconds: float, then: Iterator[int]) -> Iterator[int]:
    yield from speech(round(seconds * RATE))
    yield from then


@pytest.mark.parametrize("period", [1, 2, 3, 7, 12, 25])
@pytest.mark.parametrize("noise", [0.0, 0.05])
@pytest.mark.parametrize("before", [0.0, 5.0])
def test_repetition_is_stopped_within_a_few_seconds(period: int, noise: float, before: float) -> None:
    pattern = [RANDOM.randrange(6561) for _ in range(period)]
    count, seen = watch(after(before, repeated(pattern, noise)))
    assert seen.startswith("output_endless")
    assert count <= (before + 6) * RATE


def test_a_stuck_sound_is_stopped_also_when_it_is_not_periodic() -> None:
    few = [11, 12, 13, 14, 15]
    count, seen = watch(after(3.0, (RANDOM.choice(few) for _ in range(10_000))))
    assert "stuck" in seen
    assert count <= 6 * RATE


@pytest.mark.parametrize(("silent", "stops"), [(SILENT_TOKENS, True), ((), True)])
def test_endless_silence_is_stopped(silent: tuple[int, ...], stops: bool) -> None:
    count, seen = watch(after(2.0, (RANDOM.choice(SILENT_TOKENS[:6]) for _ in range(10_000))), silent=silent)
    assert bool(seen) is stops
    assert count <= 6 * RATE


def test_pauses_and_drawn_out_sounds_are_let_through() -> None:
    tokens: list[int] = []
    for _ in range(12):
        tokens += [*speech(40), *[RANDOM.choice(SILENT_TOKENS) for _ in range(30)], *([77] * 12)]
    assert watch(iter(tokens), silent=SILENT_TOKENS) == (len(tokens), "")


def test_ordinary_speech_is_let_through_up_to_the_band_and_no_further() -> None:
    count, seen = watch(speech())
    assert count == BAND.longest * RATE + 1
    assert "ran on" in seen


@pytest.mark.parametrize("text", ["嗯", "好的。", "3号选手", "I", "No."])
def test_one_to_four_characters_may_take_a_fifth_of_a_second_to_four_seconds(text: str) -> None:
    band = LengthBand.of(text, "今天下午我在公园里散步，湖边的柳树已经发芽了。")
    assert (band.shortest, band.longest) == (0.2, 4.0)


@pytest.mark.parametrize(
    "text", ["今天下午我在公园里散步，湖边的柳树已经发芽了。" * 3, "We walked along the river this morning. " * 4]
)
def test_band_is_half_to_two_and_a_half_times_the_expected_length(text: str) -> None:
    band = LengthBand.of(text)
    assert band.shortest == pytest.approx(0.5 * band.expected)
    assert band.longest == pytest.approx(2.5 * band.expected)


@pytest.mark.parametrize(
    ("seconds", "hole", "at_limit", "code"),
    [
        (10.0, 0.3, False, None),
        (6.0, 0.3, False, None),
        (15.9, 2.9, False, None),
        (4.9, 0.3, False, "length_short"),
        (18.0, 0.3, False, "length_leak"),
        (24.0, 0.3, False, None),
        (10.0, 3.5, False, "long_silence"),
        (10.0, 0.3, True, "length_limit"),
    ],
)
def test_doubts(seconds: float, hole: float, at_limit: bool, code: str | None) -> None:
    band = LengthBand(expected=10.0, shortest=5.0, longest=25.0, transcript=8.0)
    notice = doubt(3, band, seconds, hole, at_limit=at_limit)
    assert (notice.code if notice else None) == code
    if notice:
        assert "Part 3" in notice.message


@pytest.mark.parametrize("wave", [torch.empty(0), torch.tensor([0.0, torch.nan]), torch.tensor([torch.inf, 0.1])])
def test_a_wave_that_is_nothing_or_not_finite_is_broken(wave: torch.Tensor) -> None:
    with pytest.raises(BadOutputError):
        check_wave(wave)


@pytest.mark.parametrize(("peak", "seconds", "fine"), [(0.3, 1.0, True), (0.3, 0.05, False), (0.0, 1.0, False)])
def test_silence_and_clicks_are_broken(peak: float, seconds: float, fine: bool) -> None:
    if fine:
        check_spoken(peak, seconds)
    else:
        with pytest.raises(BadOutputError):
            check_spoken(peak, seconds)


class Scripted:
    """The part of a speech LLM that `decode` touches, with the choices written down."""

    def __init__(self, size: int) -> None:
        self.config = type("Config", (), {"speech_token_size": size})()

    def embed_speech(self, ids: torch.Tensor) -> torch.Tensor:
        return torch.zeros(len(ids), 4)


@pytest.mark.parametrize("stop", [100, 101, 102, 103, 250, 299])
def test_ids_that_are_no_speech_end_decoding_and_are_not_passed_on(stop: int) -> None:
    """The flow knows speech tokens only: whatever else is chosen must never reach it."""
    choices = iter([5, 99, 0, stop, 7, 8])
    choose: Callable[..., int] = lambda logits, tokens: next(choices)  # noqa: E731
    forward: Callable[..., torch.Tensor] = lambda rows: torch.zeros(300)  # noqa: E731
    llm = Scripted(100)
    tokens = list(decode(llm, torch.zeros(1, 4), LengthRule(0, 50), choose, forward=forward))  # type: ignore[arg-type]
    assert tokens == [5, 99, 0]
    assert all(token < SpecialRows.of(llm.config).sos for token in tokens)  # type: ignore[arg-type]
