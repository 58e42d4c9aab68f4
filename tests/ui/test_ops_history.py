"""The charts show what the sampler kept, with cards only where there are any."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import pytest

from cosyui.ops.monitor import MachineSample, ProcessSample
from cosyui.ops.nvml import GpuSample
from cosyui.ops.sampler import Sampler, ServiceSample, Sources
from cosyui.ui.i18n import Language, Words
from cosyui.ui.ops_history import history

GIB = 1 << 30


@dataclass
class Watched:
    """A sampler whose clock the test turns."""

    gpus: tuple[GpuSample, ...] = ()
    now: float = 1000.0
    running: int = 1
    sampler: Sampler = field(init=False)

    def __post_init__(self) -> None:
        sources = Sources(lambda: ServiceSample(self.running, 0, 0.0, 0), self._machine)
        self.sampler = Sampler(sources, clock=lambda: self.now, wall=lambda: 1e9 + self.now, start=lambda work: work())

    def tick(self, seconds: int) -> None:
        for _ in range(seconds):
            self.now += 1.0
            self.sampler.tick()

    def _machine(self) -> MachineSample:
        own = ProcessSample(1, 2 * GIB, 3.0, 4)
        return MachineSample(own, None, 16 * GIB, 8 * GIB, 25.0, 2, self.gpus)


def card(uuid: str) -> GpuSample:
    return GpuSample(uuid=uuid, name="Card", used=6 * GIB, total=12 * GIB, utilisation=55, temperature=61, power=170.0)


@pytest.mark.parametrize("language", ["en", "zh"])
def test_without_a_card_there_are_charts_of_the_machine(language: Language) -> None:
    watched = Watched()
    watched.tick(5)
    html = history(watched.sampler, "quarter", Words(language, {}))
    assert html.count("<figure") == 6
    assert "25 %" in html
    assert "8.0 GiB" in html
    assert "GPU" not in html


def test_the_last_figure_is_told_before_the_next_one_comes() -> None:
    watched = Watched()
    watched.tick(5)
    watched.now += 1.0
    assert 'CPU</b><span class="line-one"> 25 %' in history(watched.sampler, "quarter", Words("en", {}))
    watched.now += 10.0
    assert "25 %" not in history(watched.sampler, "quarter", Words("en", {}))


def test_each_card_has_its_charts() -> None:
    watched = Watched((card("GPU-a"), card("GPU-b")))
    watched.tick(3)
    html = history(watched.sampler, "hour", Words("en", {}))
    assert html.count("<figure") == 6 + 2 * 4
    assert "GPU memory · GPU 1" in html
    assert "used 6.0 GiB" in html
    assert "170 W" in html


def test_a_time_when_nothing_was_measured_is_a_gap() -> None:
    watched = Watched()
    watched.tick(60)
    watched.now += 300
    watched.tick(60)
    html = history(watched.sampler, "quarter", Words("en", {}))
    (queue,) = re.findall(r"<b>Takes</b>.*?</figure>", html)
    assert re.findall(r'class="line-one" d="([^"]*)"', queue)[0].count("M") == 2
