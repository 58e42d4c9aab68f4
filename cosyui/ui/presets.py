"""Ready-made instructions for instruct mode: the phrasings the released model was trained with."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Preset:
    """A button of the page: its label in both languages and the instruction it fills in."""

    en: str
    zh: str
    instruction: str


def _dialect(en: str, zh: str) -> Preset:
    return Preset(en, zh, f"请用{zh}表达。")


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
        Preset("Happy", "开心", "请非常开心地说一句话。"),
        Preset("Sad", "伤心", "请非常伤心地说一句话。"),
        Preset("Angry", "生气", "请非常生气地说一句话。"),
    ),
    "pace": (
        Preset("Fast", "快", "请用尽可能快地语速说一句话。"),
        Preset("Slow", "慢", "请用尽可能慢地语速说一句话。"),
    ),
    "volume": (
        Preset("Loud", "大声", "Please say a sentence as loudly as possible."),
        Preset("Soft", "轻声", "Please say a sentence in a very soft voice."),
    ),
}
"""Group (a key ``preset_<group>`` of the tables) to its presets, in the order of the page."""
