"""How long the text gate takes for 25,000, 50,000 and 100,000 characters of every kind that could be slow."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence

from cosyui.errors import InputError
from cosyui.speech.prompt_format import TextFrontend
from cosyui.speech.text.prepare import prepare

SIZES = (25_000, 50_000, 100_000)
KINDS = {
    "Han without marks": "清晨的雾气慢慢散开远处的山露出了轮廓",
    "Chinese prose": "今年3月5日，他花了1,280元买了2.5公斤茶叶。",
    "English prose": "On March 5 he paid $1,280 for 2.5 kg of tea. ",
    "digits": "0123456789",
    "commas": "，",
    "square brackets": "[",
    "angle brackets": "<",
    "asterisks": "*",
    "dots": "1.",
    "mail signs": "a@",
    "marks": "[h][ǎo]",
    "emoji": "好😀",
    "tags": "<b>好</b>",
    "short lines": "好\n",
    "table rows": "| a | b |\n",
    "headings": "第一章\n",
    "control tokens": "好<|endofprompt|>",
}


def kind(name: str, size: int) -> str:
    """``size`` characters of a kind."""
    unit = KINDS[name]
    return (unit * (size // len(unit) + 1))[:size]


def report(frontend: TextFrontend, sizes: Sequence[int] = SIZES) -> None:
    """Print a row per kind: CPU seconds for each size, a refusal included."""
    print(f"{'CPU seconds for characters':26}" + "".join(f"{size:>9,}" for size in sizes))
    prepare("好3。It is 3.", frontend.count)  # what is made at the first use
    for name in KINDS:
        print(f"{name:26}" + "".join(f"{_seconds(kind(name, size), frontend):9.2f}" for size in sizes), flush=True)


def _seconds(text: str, frontend: TextFrontend) -> float:
    began = time.process_time()
    with contextlib.suppress(InputError):  # a text of signs alone is refused; the time until then counts
        prepare(text, frontend.count, None, frontend.limits)
    return time.process_time() - began
