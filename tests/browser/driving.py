"""What a person does on the page, in the words of the tests."""

import io
import re
import wave
from pathlib import Path

import numpy as np

CLIPS = Path(__file__).parents[1] / "data" / "clips"
EN_CLIP = CLIPS / "en_librivox_0870.flac"
EN_TRANSCRIPT = (
    "and mister john dashwood had then leisure to consider "
    "how much there might be prudently in his power to do for them"
)
TAKE_MS = 120_000
"""Longest wait for a take, far more than it needs: a broken page should fail, a busy machine should not."""


def wav(samples, rate=16_000):
    """An upload: mono int16."""
    buffer = io.BytesIO()
    with wave.open(buffer, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes((np.asarray(samples) * 32767).astype("<i2").tobytes())
    return {"name": "clip.wav", "mimeType": "audio/wav", "buffer": buffer.getvalue()}


def tone(seconds, rate=16_000):
    return 0.3 * np.sin(2 * np.pi * 180 * np.arange(int(seconds * rate)) / rate)


def write_text(page, text):
    page.locator("#text textarea").fill(text)


def upload(page, file=EN_CLIP):
    page.locator("#clip input[type=file]").set_input_files(file)


def good_clip(page):
    """Upload a real clip, wait for its report, fill in what is said."""
    upload(page)
    page.locator(".clip-report").wait_for()
    page.locator("#transcript textarea").fill(EN_TRANSCRIPT)


def choose_mode(page, number):
    """1 clone, 2 cross-lingual, 3 instruct."""
    page.locator(f"#mode label:nth-of-type({number})").click()


def generate(page):
    page.locator("#generate").click()


def wait_status(page, kind, timeout=TAKE_MS):
    """The status line's text once it is of this kind."""
    line = page.locator(f"#status [data-status={kind}]")
    line.wait_for(timeout=timeout)
    return line.inner_text()


def problem(page, field):
    """The red line of a field; waits for it."""
    line = page.locator(f"#problem-{field} .problem-line")
    line.wait_for()
    return line.inner_text()


def fetch_take(page):
    """The finished file as the browser would download it: bytes and response."""
    href = page.locator("#take a[data-testid=download-link]").get_attribute("href")
    response = page.request.get(href)
    assert response.ok
    return response.body(), response


def figure(page, name):
    return page.locator(f"[data-figure={name}] dd").inner_text()


def number(text):
    return float(re.search(r"[\d.]+", text).group())


def open_ops(page):
    page.get_by_role("tab").last.click()
    page.locator(".ops").wait_for()


def open_voices(page):
    page.get_by_role("tab").nth(1).click()
    page.locator("#voice-rows :is(p, li)").first.wait_for()


def ops_row(page, card, label):
    """The value of a row of the ops tab."""
    return page.locator(f"[data-card={card}] .rows > div", has=page.get_by_text(label, exact=True)).locator("dd")


def counts(page):
    """Takes since the start of the server, from the open ops tab."""
    text = ops_row(page, "engine", "Takes: done / failed / stopped / refused").inner_text()
    return dict(zip(("done", "failed", "stopped", "refused"), map(int, text.split(" / ")), strict=True))
