"""Splitting: nothing lost, order kept, every segment within the limit, at the best place, with bounded work."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cosyui.speech.text.markup import MARK_PATTERN
from cosyui.speech.text.split import Cut, SplitLimits, last_cut, split


def letters(text: str) -> int:
    return len(text)


def words(text: str) -> int:
    return len(text.split())


def squeezed(text: str) -> str:
    return re.sub(r"\s+", "", text)


WORDS = [
    "清晨的雾气",
    "慢慢散开",
    "，",
    "。",
    "！”",
    "？",
    "the boat",
    " moved",
    ", ",
    ". ",
    "[breath]",
    "3.14",
    "a",
    " ",
]
PIECES = st.lists(st.sampled_from(WORDS) | st.text(max_size=6), max_size=60)


@given(PIECES, st.integers(1, 40), st.sampled_from([letters, words, lambda text: len(text.encode("utf-8", "replace"))]))
def test_nothing_is_lost_and_no_segment_is_too_long(pieces: list[str], limit: int, count) -> None:
    text = "".join(pieces)
    segments = split(text, count, SplitLimits(max_tokens=limit))
    assert squeezed("".join(segments)) == squeezed(text)
    assert all(segment == segment.strip() and segment for segment in segments)
    assert all(count(segment) <= limit or len(segment) == 1 or MARK_PATTERN.fullmatch(segment) for segment in segments)


@given(PIECES, st.integers(1, 40))
def test_marks_are_never_cut(pieces: list[str], limit: int) -> None:
    text = "".join(pieces)
    segments = split(text, letters, SplitLimits(max_tokens=limit))
    found = [mark for segment in segments for mark in MARK_PATTERN.findall(segment)]
    assert found == MARK_PATTERN.findall(text)


@pytest.mark.parametrize("limit", [3, 5, 8, 13])
def test_the_marks_of_a_word_stay_together_while_there_is_another_place(limit: int) -> None:
    def marks(text: str) -> int:
        return len(MARK_PATTERN.sub("#", text))

    words = ["[K][UW2][B]", "[h][ǎo]", "[n][ǐ]", "的"]
    for segment in split("的".join(words * 6), marks, SplitLimits(max_tokens=limit)):
        assert marks(segment) <= limit
        assert re.fullmatch(r"(?:\[K\]\[UW2\]\[B\]|\[h\]\[ǎo\]|\[n\]\[ǐ\]|的)+", segment)
    for segment in split("[h][ǎo]" * 20, marks, SplitLimits(max_tokens=limit)):
        assert segment.startswith("[h]")
        assert segment.endswith("[ǎo]")


ENDS = {
    "好。": Cut.SENTENCE,
    "好！”": Cut.SENTENCE,
    "Well...": Cut.SENTENCE,
    "好。[breath]": Cut.SENTENCE,
    "好，": Cut.CLAUSE,
    "then:": Cut.CLAUSE,
    "好，</strong>": Cut.CLAUSE,
    "好的": Cut.HARD,
    "boat": Cut.HARD,
    "": Cut.HARD,
}


@pytest.mark.parametrize(("text", "cut"), ENDS.items())
def test_where_a_segment_was_cut(text: str, cut: Cut) -> None:
    assert last_cut(text) is cut


def test_a_text_that_fits_is_one_segment() -> None:
    assert split("第一句。第二句。", letters, SplitLimits(max_tokens=8)) == ["第一句。第二句。"]
    assert split("  ", letters) == []


def test_sentence_ends_are_preferred_to_commas_and_commas_to_words() -> None:
    text = "我们一起，去北边的山谷里露营。明天不下雨，就带上帐篷。"
    assert split(text, letters, SplitLimits(max_tokens=16)) == [
        "我们一起，去北边的山谷里露营。",
        "明天不下雨，就带上帐篷。",
    ]
    text = "the boat moved along the shore, while gulls turned above the water"
    assert split(text, words, SplitLimits(max_tokens=7)) == [
        "the boat moved along the shore,",
        "while gulls turned above the water",
    ]
    segments = split("the boat moved slowly along the quiet shore", letters, SplitLimits(max_tokens=24))
    assert " ".join(segments) == "the boat moved slowly along the quiet shore"


@pytest.mark.parametrize("sentences", [3, 7, 20])
def test_segments_are_balanced(sentences: int) -> None:
    sizes = [len(piece) for piece in split("清晨的雾气慢慢散开。" * sentences, letters, SplitLimits(max_tokens=25))]
    assert max(sizes) <= 25
    assert max(sizes) - min(sizes) <= 10


def test_closing_quotes_stay_with_their_sentence() -> None:
    segments = split("他说：“你好。”她说：“再见！”", letters, SplitLimits(max_tokens=9))
    assert segments == ["他说：“你好。”", "她说：“再见！”"]


def test_decimals_and_addresses_are_no_sentence_ends() -> None:
    assert split("It is 3.14 or so.", words, SplitLimits(max_tokens=4)) != ["It is 3.", "14 or so."]
    segments = split("see example.com now please", words, SplitLimits(max_tokens=2))
    assert any("example.com" in segment for segment in segments)


@pytest.mark.parametrize("unit", ["清晨的雾气慢慢散开，", "清晨的雾气慢慢散开。", "清晨的雾气慢慢散开", "boat ", "x"])
def test_the_work_grows_little_faster_than_the_text(unit: str) -> None:
    """The characters handed to the counter: what costs time, whatever the machine."""

    def characters_counted(length: int) -> int:
        seen = 0

        def count(text: str) -> int:
            nonlocal seen
            seen += len(text)
            return len(text)

        split((unit * length)[:length], count, SplitLimits(max_tokens=80))
        return seen

    short, long = characters_counted(2_000), characters_counted(16_000)
    assert short <= 12 * 2_000
    assert long <= 16 * 16_000


def test_limits_must_allow_something() -> None:
    with pytest.raises(ValueError, match="max_tokens"):
        SplitLimits(max_tokens=0)
