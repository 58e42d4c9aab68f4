"""Japanese in katakana as it is pronounced, and what happens without the packages for it."""

from __future__ import annotations

import sys

import pytest

from cosyui.notice import Notice
from cosyui.speech.text import kana
from cosyui.speech.text.kana import to_katakana

READ = {
    "世界においては、過去は過ぎ去ったものではない。": "セカイ ニ オイ テ ワ、カコ ワ スギサッ タ モノ デ ワ ナイ。",
    "わたしの妹は25歳で、東京へ行きます。": "ワタシ ノ イモート ワ ニジュー ゴ サイ デ、トーキョー エ イキ マス。",
    "4月に4人で1本と3本と20個、5本。": "シ ガツ ニ ヨ ニン デ イッ ポン ト サン ボン ト ニジュッ コ、ゴ ホン。",
    "9:05に1分": "ク ジ ゴ フン ニ イッ プン",
    "1,234円と0.5%": "セン ニヒャク サンジュー ヨ エン ト ゼロ テン ゴ パーセント",
    "カタカナ テスト ヲ シマス。": "カタカナ テスト ヲ シマス。",
    "AIを使う[laughter]。": "AI オ ツカウ[laughter]。",
    "Hello, world.": "Hello, world.",
}


@pytest.mark.parametrize(("text", "expected"), READ.items())
def test_readings(text: str, expected: str) -> None:
    pytest.importorskip("fugashi")
    pytest.importorskip("unidic_lite")
    remarks: list[Notice] = []
    assert to_katakana(text, remarks) == expected
    assert to_katakana(expected, remarks) == expected
    assert remarks == []


@pytest.mark.parametrize("text", ["0" * 100_000 + "です", "1-2-3-4です", "９億", "12345678901234567890個"])
def test_odd_numbers_are_read_somehow(text: str) -> None:
    pytest.importorskip("fugashi")
    assert "1" not in to_katakana(text, [])


def test_without_the_packages_the_text_stays_and_the_user_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    kana._tagger.cache_clear()
    monkeypatch.setitem(sys.modules, "fugashi", None)
    try:
        remarks: list[Notice] = []
        assert to_katakana("東京へ。", remarks) == "東京へ。"
        assert [remark.code for remark in remarks] == ["japanese_missing"]
        assert "fugashi" in str(remarks[0])
        assert to_katakana("これはペンです", remarks) == "これはペンです"
        assert len(remarks) == 1
    finally:
        kana._tagger.cache_clear()
