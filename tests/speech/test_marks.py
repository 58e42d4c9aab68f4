"""Text to pronunciation marks: the same as the embedded voice was trained with."""

from __future__ import annotations

import marshal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cosyui.speech import marks as marks_module
from cosyui.speech.marks import MarkFrontend, english_marks, pinyin_marks
from cosyui.speech.text.markup import ALL_MARKS

FRONTEND = MarkFrontend(ALL_MARKS)

CONVERTED = {
    "Hello, world.": "[HH][AH0][L][OW1],[W][ER1][L][D].",
    "你好。": "[n][ǐ][h][ǎo].",
    "谢谢！": "[x][iè][x][iè]!",
    "绿色，女儿；": "[l][ǜ][s][è],[n][ǚ][ér],",
    "嗯，好的": "[én],[h][ǎo][d][e]",
    "他说“好”。": "[t][ā][sh][uō][h][ǎo].",
    "用meeting这个词。": "[y][òng][M][IY1][T][IH0][NG][zh][è][g][e][c][í].",
    "A4纸": "[AH0][s][ì][zh][ǐ]",
    "读[h][ǎo]字": "[d][ú][h][ǎo][z][ì]",
    "……你": "[n][ǐ]",
    "。！": "",
}


@pytest.mark.parametrize(("text", "marks"), CONVERTED.items())
def test_convert(text: str, marks: str) -> None:
    assert FRONTEND.convert(text) == marks


def test_stress_belongs_to_the_next_vowel() -> None:
    assert english_marks("həlˈO, wˈɜɹld.") == "[HH][AH0][L][OW1],[W][ER1][L][D]."
    assert english_marks("sˌɪstəm  - wˈʌn") == "[S][IH2][S][T][AH0][M] [W][AH1][N]"


def test_a_final_that_is_no_mark_is_taken_apart() -> None:
    assert pinyin_marks("xie", ALL_MARKS) == ["[x]", "[i]", "[e]"]


@pytest.mark.parametrize("syllable", ["zhuāng", "xiǎo", "lǜ", "lüè", "ér", "a", "zi", "wen", "ńg", "q?"])
def test_syllables_give_marks_only(syllable: str) -> None:
    marks = pinyin_marks(syllable, ALL_MARKS)
    assert marks
    assert set(marks) <= ALL_MARKS


@settings(max_examples=100, deadline=None)
@given(st.text(alphabet="你好世界歷史abcX，。！？,. 12[]<|>é\U00020bb7", max_size=30))
def test_the_result_is_marks_and_pauses_only(text: str) -> None:
    converted = FRONTEND.convert(text)
    rest = converted
    for mark in sorted(FRONTEND.marks, key=len, reverse=True):
        rest = rest.replace(mark, "\0")
    assert set(rest) <= set("\0,.?! ")
    assert not rest.startswith((",", ".", "?", "!", " "))


def test_what_has_no_sound_is_listed() -> None:
    assert FRONTEND.unknown("好\U00030edd的ж[h]a1。") == "\U00030eddж"
    assert FRONTEND.unknown("你好 world") == ""


def test_words_are_cut_without_a_writable_home(monkeypatch, tmp_path):
    blocked = tmp_path / "file"
    blocked.touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(blocked))
    assert marks_module._private_cache().is_dir()


@pytest.mark.parametrize("left", [b"", b"nonsense", marshal.dumps(7)])
def test_a_damaged_cache_of_words_is_passed_over(left, tmp_path, monkeypatch):
    monkeypatch.setattr(marks_module, "_private_cache", lambda: tmp_path)
    monkeypatch.setattr("jieba.Tokenizer.initialize", lambda self: made.append(self.initialized))
    made = []
    for content, known in ((left, False), (marshal.dumps(({"早上": 1}, 1)), True)):
        (tmp_path / "jieba.cache").write_bytes(content)
        assert MarkFrontend(frozenset())._words.__self__.initialized is known
    assert made == [False, True]
