"""Made-up voices: mixes of the teacher's voice packs, and a change of vocal tract by resampling."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

HELD_OUT = ("af_nova", "am_eric", "bf_lily", "zf_xiaoyi", "zm_yunxia")
"""Packs that training never sees, pure or mixed. The second letter of a pack is the sex, the first the accent."""
WARP = 25
WARPS = (21, 22, 23, 24, 26, 27, 28, 29)
"""A warped voice is resampled by r / WARP (0.84 .. 1.16), which moves formants and pitch together."""
PROSODY = 128
"""Columns of a style from here on are prosody."""

Style = NDArray[np.float32]
"""(510, 1, 256) or (510, 256): one row for each phoneme count."""


@dataclass(frozen=True)
class Voice:
    """``english`` and ``mandarin`` style; Mandarin takes half its prosody from a Chinese pack. ``warp`` of WARP."""

    name: str
    english: Style
    mandarin: Style
    warp: int

    def style(self, language: str, phonemes: int) -> NDArray[np.float32]:
        """The voice vector (256,) for an utterance of so many phonemes."""
        rows = self.mandarin if language == "zh" else self.english
        row: NDArray[np.float32] = rows[min(phonemes, len(rows)) - 1].reshape(-1)
        return row


class Voices:
    """Draws voices from the packs of ``voices.npz``."""

    def __init__(self, packs: dict[str, Style], generator: np.random.Generator, *, test: bool = False) -> None:
        self.packs, self.random, self.test = packs, generator, test

    def draw(self) -> Voice:
        sex = str(self.random.choice(["f", "m"]))
        name, style = self._of_test(sex) if self.test else self._of_training(sex)
        mandarin = style
        if not name.startswith("z"):
            chinese = [pack for pack in self._allowed(sex) if pack[0] == "z"]
            mandarin = style.copy()
            half = self.packs[str(self.random.choice(chinese))][..., PROSODY:]
            mandarin[..., PROSODY:] = 0.5 * style[..., PROSODY:] + 0.5 * half
        warp = int(self.random.choice(WARPS)) if self.random.random() < 0.5 else WARP
        return Voice(name if warp == WARP else f"{name}|{warp / WARP:.2f}", style, mandarin, warp)

    def _allowed(self, sex: str) -> list[str]:
        return [pack for pack in self.packs if pack[1] == sex and (self.test or pack not in HELD_OUT)]

    def _of_training(self, sex: str) -> tuple[str, Style]:
        """12 % pure, 80 % mixes of 2-3 packs, up to 1.3 times as far from the mean; 8 % of a woman and a man."""
        packs, kind = self._allowed(sex), self.random.random()
        if kind < 0.12:
            name = str(self.random.choice(packs))
            return name, self.packs[name]
        if kind < 0.92:
            chosen = self.random.choice(packs, int(self.random.integers(2, 4)), replace=False)
            shares, reach = self.random.dirichlet([1.0] * len(chosen)), float(self.random.uniform(1.0, 1.3))
            mean = np.mean([self.packs[pack] for pack in packs], 0)
            mix = sum(self.packs[str(pack)] * share for pack, share in zip(chosen, shares, strict=True))
            named = "+".join(f"{pack}*{share:.2f}" for pack, share in zip(chosen, shares, strict=True))
            return f"{reach:.2f}x{named}", (mean + reach * (mix - mean)).astype(np.float32)
        first, second = (str(self.random.choice(self._allowed(one))) for one in "fm")
        name, style = self._pair(first, second, float(self.random.uniform(0.3, 0.7)))
        return f"X:{name}", style

    def _of_test(self, sex: str) -> tuple[str, Style]:
        """A held-out pack, pure or as the main part of a mix."""
        held = str(self.random.choice([pack for pack in HELD_OUT if pack[1] == sex]))
        if self.random.random() >= 0.67:
            return held, self.packs[held]
        other = str(self.random.choice([pack for pack in self._allowed(sex) if pack != held]))
        return self._pair(held, other, float(self.random.uniform(0.5, 0.75)))

    def _pair(self, first: str, second: str, share: float) -> tuple[str, Style]:
        style = share * self.packs[first] + (1 - share) * self.packs[second]
        return f"{first}*{share:.2f}+{second}*{1 - share:.2f}", style.astype(np.float32)


def read_packs(file: Path) -> dict[str, Style]:
    return {name: pack.astype(np.float32) for name, pack in np.load(file).items()}
