"""A dialogue of two voices, from the typed words to the downloaded files."""

import csv
import io
import json
import re
import wave
import zipfile

import numpy as np
from driving import TAKE_MS
from playwright.sync_api import expect

from cosyui.ui.locales import en_batch, zh_batch

SCRIPT = """Anna: Did you hear the ferry?
Ben：快点，我们走吧。
Ben: [fake:fail=output_bad] No.

They walk down to the harbour."""


def open_batch(page):
    page.get_by_role("tab", name=re.compile("Batch|批量")).click()
    page.locator("#batch-script textarea").wait_for()


def cast(page, number, name):
    page.locator(f"#batch-role-{number} input").click()
    page.get_by_role("option", name=name).click()
    expect(page.locator(f"#batch-role-{number} input")).to_have_value(name)


def test_dialogue_of_two_voices_becomes_one_download(page, open_page, app):
    open_batch(page)
    page.locator("#batch-script textarea").fill(SCRIPT)
    expect(page.locator("#batch-role-0")).to_contain_text("Anna")
    expect(page.locator("#batch-role-1")).to_contain_text("Ben")
    cast(page, 0, en_batch.LIVE["batch_voice_en"])
    page.locator("#batch-start").click()
    expect(page.locator(".line-problems li")).to_have_count(2)
    expect(page.locator(".line-problems li").first).to_contain_text("Line 2 'Ben' has no voice")
    cast(page, 1, en_batch.LIVE["batch_voice_zh"])
    page.locator("#batch-start").click()
    page.locator("#batch-status [data-status=done]").wait_for(timeout=TAKE_MS)
    expect(page.locator(".line-problems")).to_have_count(0)
    states = page.locator(".batch-lines [data-line]").evaluate_all("all => all.map(row => row.dataset.state)")
    assert states == ["done", "done", "failed", "done"]
    page.locator("[data-pick=batch-line]").nth(1).click()
    expect(page.locator("#batch-player a[data-testid=download-link]")).to_have_attribute(
        "href", re.compile("00002.wav")
    )
    with page.expect_download() as download:
        page.locator("#batch-download").click()
    with zipfile.ZipFile(download.value.path()) as archive:
        assert archive.testzip() is None
        manifest = json.loads(archive.read("manifest.json"))
        failed = list(csv.DictReader(io.StringIO(archive.read("failures.csv").decode())))
        subtitles = archive.read("subtitles.vtt").decode()
        with archive.open("dialogue.wav") as inner, wave.open(inner) as file:
            samples = np.frombuffer(file.readframes(file.getnframes()), "<i2")
    assert [line["voice"] for line in manifest["lines"]] == ["en", "zh", "zh", "en"]
    assert [row["code"] for row in failed] == ["output_bad"]
    seconds = sum(line["seconds"] for line in manifest["lines"])
    assert abs(len(samples) / 24_000 - seconds - 2 * manifest["pause"]) < 0.002
    assert "<v Ben>快点，我们走吧。" in subtitles
    page.reload()
    open_batch(page)
    expect(page.locator(".batch-lines [data-line]")).to_have_count(4)
    stranger = open_page(locale="zh-CN")
    open_batch(stranger)
    expect(stranger.locator("#batch-empty")).to_contain_text(zh_batch.LABELS["batch_none"])
    page.locator("#batch-delete").click()
    page.locator("#batch-delete-sure").click()
    expect(page.locator("#batch-empty")).to_be_visible()
    assert list(app.outputs.glob("batches/batch_*")) == []


def test_file_is_read_and_its_problems_have_lines(page):
    open_batch(page)
    files = page.locator("#batch-file input[type=file]")
    files.set_input_files({"name": "a.csv", "mimeType": "text/csv", "buffer": b"text,seed\nHello.,x\n"})
    expect(page.locator(".line-problems li")).to_contain_text("Line 2")
    page.locator("#batch-file button[aria-label]").last.click()
    page.locator("#batch-script textarea").wait_for()
    files.set_input_files({"name": "a.txt", "mimeType": "text/plain", "buffer": "Cy: Grüße.\n".encode()})
    expect(page.locator("#batch-script textarea")).to_have_value("Cy: Grüße.\n")
    expect(page.locator("#batch-role-0")).to_contain_text("Cy")
