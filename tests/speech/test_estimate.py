"""How long a text is expected to take."""

from __future__ import annotations

import pytest

from cosyui.speech.estimate import speech_seconds


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("今天天气很好我们出去走走吧好不好呀", 17 / 4.5),
        ("one two three four five six seven eight nine ten", 10 / 2.6),
        ("[breath]one two[laughter] three <strong>four</strong>", 4 / 2.6 + 0.2),
        ("[n][ǐ][h][ǎo][n][ǐ]", 6 * 0.1),
        ("ひらがなだよ", 6 / 7),
        ("room 2026", 1 / 2.6 + 4 * 0.3),
        ("as PDF", 1 / 2.6 + 3 * 0.3),
        ("SHOUT it", 2 / 2.6),
        ("我喜欢 deep learning", 3 / 4.5 + 1 / 2.6 + 8 / 14),
        ("hi", 0.5),
    ],
)
def test_estimated_seconds_of_speech(text: str, seconds: float) -> None:
    assert speech_seconds(text) == pytest.approx(seconds, rel=0.01)
    assert speech_seconds(text, speed=2.0) == pytest.approx(seconds / 2, rel=0.01)
