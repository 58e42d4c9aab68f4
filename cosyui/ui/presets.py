"""Ready-made instructions for instruct mode: the phrasings the released model was trained with."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Preset:
    """A button of the page: its label in both languages and the instruction it fills in."""

    key: str
    en: str
    zh: str
    instruction: str


def _dialect(en: str, zh: str) -> Preset:
    return Preset(f"preset_{en.lower()}", en, zh, f"请用{zh}表达。")


GROUPS: dict[str, tuple[Preset, ...]] = {
    "dialect": (
        _dialect("Cantonese", "广东话"),
        _dialect("Sichuan", "四川话"),
        _dialect("Dongbei", "东北话"),
        _dialect("Shanghai", "上海话"),
        _dialect("Minnan", "闽南话"),
        _dialect("Shaanxi", "陕西话"),
        _dialect("Shandong", "山东话"),
        _dialect("Tianjin", "天津话"),
        _dialect("Henan", "河南话"),
        _dialect("Hunan", "湖南话"),
    ),
    "emotion": (
        Preset("preset_happy", "Happy", "开心", "请非常开心地说一句话。"),
        Preset("preset_sad", "Sad", "伤心", "请非常伤心地说一句话。"),
        Preset("preset_angry", "Angry", "生气", "请非常生气地说一句话。"),
    ),
    "pace": (
        Preset("preset_fast", "Fast", "快", "请用尽可能快地语速说一句话。"),
        Preset("preset_slow", "Slow", "慢", "请用尽可能慢地语速说一句话。"),
    ),
    "volume": (
        Preset("preset_loud", "Loud", "大声", "Please say a sentence as loudly as possible."),
        Preset("preset_soft", "Soft", "轻声", "Please say a sentence in a very soft voice."),
    ),
}
"""Group (a key ``preset_<group>`` of the tables) to its presets, in the order of the page."""


def labels(language: str) -> dict[str, str]:
    """Words of the buttons, to be added to the tables of the page."""
    presets = [preset for group in GROUPS.values() for preset in group]
    return {preset.key: preset.zh if language == "zh" else preset.en for preset in presets}
