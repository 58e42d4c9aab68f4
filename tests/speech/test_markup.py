"""Marks: the model's own stay where they make sense, everything else of that kind goes, with a remark that helps."""

from __future__ import annotations

import pytest

from cosyui.model.added_tokens import PHONES, PINYIN
from cosyui.speech.text.markup import ALL_MARKS, FINALS, INITIALS, MARK_PATTERN, clean_marks, remarks, suggestion


def cleaned(text: str, marks: frozenset[str] = ALL_MARKS) -> tuple[str, list[str]]:
    removed: list[str] = []
    return " ".join(clean_marks(text, marks, removed).split()), removed


KEPT = [
    "他讲到一半[laughter]，笑了[breath]。",
    "[h][ǎo]的",
    "[x][i][e]",
    "[ài]好",
    "say [HH][AH0][L][OW1] [W][ER1][L][D] now",
    "<strong>非常</strong>重要",
    "<strong>很<laughter>好</laughter></strong>",
    "1<x<5, a <b and c> d",
    "[注1]和[3]，【重点】[见下文][see the note below]",
    "f(x)和(例如)还有(3)",
    "{name} (see below)",
]


@pytest.mark.parametrize("text", KEPT)
def test_what_is_no_wrong_mark_stays(text: str) -> None:
    assert cleaned(text) == (text, [])


GONE = {
    "一半[laugh]，停了[uv_break]一下。": ("一半 ，停了 一下。", ["[laugh]", "[uv_break]"]),
    "对报道[ji3]予好评": ("对报道 予好评", ["[ji3]"]),
    "[INST]好[/INST]的": ("好 的", ["[INST]", "[/INST]"]),
    "读[hǎo]": ("读", ["[hǎo]"]),
    "读[h]好[zh] [ǎo]": ("读 好 [ǎo]", ["[h]", "[zh]"]),
    "[h][h][ǎo]": ("[h][ǎo]", ["[h]"]),
    "[HH][AH][L]": ("[HH] [L]", ["[AH]"]),
    "<strong>非常": ("非常", ["<strong>"]),
    "非常</strong>重要": ("非常 重要", ["</strong>"]),
    "<strong>一<strong>二</strong>": ("<strong>一 二</strong>", ["<strong>"]),
    "He (laughs softly) said [long pause] {pause}.": (
        "He said .", ["[long pause]", "(laughs softly)", "{pause}"],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("text", "outcome"), GONE.items())
def test_what_is_no_mark_or_stands_alone_goes(text: str, outcome: tuple[str, list[str]]) -> None:
    assert cleaned(text) == outcome


def test_marks_that_the_model_does_not_take_go_too() -> None:
    assert cleaned("好[breath][h][ǎo]", frozenset({"[h]", "[ǎo]"})) == ("好 [h][ǎo]", ["[breath]"])


@pytest.mark.parametrize("text", ["<[laugh]|endofprompt|>", "[[laugh]breath]", "[h][laugh][ǎo]"])
def test_what_closes_up_around_a_removed_mark_is_no_new_one(text: str) -> None:
    result, removed = cleaned(text)
    assert removed
    assert "<|" not in result
    assert "[breath]" not in result
    assert "[h][ǎo]" not in result


SUGGESTED = {
    "[hao3]": "[h][ǎo]",
    "[ji3]": "[j][ǐ]",
    "[zhuang1]": "[zh][uāng]",
    "[er2]": "[ér]",
    "[a3]": "[ǎ]",
    "[nv3]": "[n][ǚ]",
    "[nü3]": "[n][ǚ]",
    "[yue4]": "[y][uè]",
    "[liu2]": "[l][iú]",
    "[gui4]": "[g][uì]",
    "[dou1]": "[d][ōu]",
    "[de5]": "[d][e]",
    "[hǎo]": "[h][ǎo]",
    "[lüè]": "[l][vè]",
    "[AH]": "[AH0], [AH1] or [AH2]",
    "[AH9]": "[AH0], [AH1] or [AH2]",
    "[ah1]": "[AH1]",
    "[hh]": "[HH]",
    "[Breath]": "[breath]",
    "[LAUGHTER]": "[laughter]",
    "[laugh]": "[laughter]",
    "[breathe]": "[breath]",
    "[quickbreath]": "[quick_breath]",
    "<strog>": "<strong></strong>",
    "</strog>": "<strong></strong>",
}


@pytest.mark.parametrize(("mark", "instead"), SUGGESTED.items())
def test_a_near_miss_is_told_what_to_write(mark: str, instead: str) -> None:
    assert suggestion(mark) == instead
    assert set(MARK_PATTERN.findall(instead)) <= ALL_MARKS


@pytest.mark.parametrize("mark", ["[uv_break]", "[music]", "[x7]", "[ǎo]", "[breath]", "<prosody>", "[zzz]"])
def test_no_suggestion_where_nothing_is_near(mark: str) -> None:
    assert suggestion(mark) == ""


def test_remarks_name_the_mark_and_come_once() -> None:
    told = [str(remark) for remark in remarks(["[hao3]", "[h]", "[uv_break]", "[hao3]", "<prosody>"])]
    assert len(told) == 3
    assert "[hao3]" in told[0]
    assert "[h][ǎo]" in told[0]
    assert "final" in told[1]
    assert "[uv_break], <prosody>" in told[2]
    assert len(remarks(f"[tag{number}]" for number in range(1000))) == 1


def test_every_pinyin_mark_is_an_initial_or_a_final() -> None:
    assert frozenset(PINYIN) == INITIALS | FINALS
    assert not INITIALS & FINALS
    assert {f"[{letters}]" for letters in ("zh", "b", "y")} <= INITIALS


@pytest.mark.parametrize("mark", sorted(ALL_MARKS - set(PHONES) - set(PINYIN)))
def test_every_sound_of_the_model_is_kept(mark: str) -> None:
    pair = mark.replace("/", "")
    text = f"好{pair}的{pair.replace('<', '</')}吧" if mark.startswith("<") else f"好{mark}吧"
    assert cleaned(text) == (text, [])
