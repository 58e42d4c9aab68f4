"""The main job, on a real server process: type a text, give a clip, press Generate, get that text spoken."""

import io
import re

import numpy as np
import pytest
import soundfile
from driving import (
    EN_CLIP,
    EN_TRANSCRIPT,
    TAKE_MS,
    choose_mode,
    counts,
    fetch_take,
    figure,
    generate,
    good_clip,
    number,
    open_ops,
    ops_row,
    problem,
    upload,
    wait_status,
    wav,
    write_text,
)
from playwright.sync_api import expect

from cosyui.speech.estimate import speech_seconds
from tests.speech.clips_made import at_rate, by_av

TEXT = "The ferry leaves at half past six, so let us have an early breakfast."


@pytest.fixture(scope="module", params=["fake", "real"])
def speaker(request, serve):
    """A server as a fresh clone starts it (real: default model, CPU), and one with the fake engine."""
    with serve(engine=request.param, device="cpu", transcriber="off") as started:
        yield started


def test_text_and_clip_become_a_file_of_plausible_speech(open_page, speaker):
    page = open_page(speaker.url)
    good_clip(page)
    write_text(page, TEXT)
    generate(page)
    wait_status(page, "done", timeout=3 * TAKE_MS)

    body, response = fetch_take(page)
    assert response.headers["content-type"] in ("audio/wav", "audio/x-wav", "audio/vnd.wave")
    samples, rate = soundfile.read(io.BytesIO(body), dtype="float32")
    seconds = len(samples) / rate
    expected = speech_seconds(TEXT)
    assert rate == 24_000
    assert samples.ndim == 1
    assert np.isfinite(samples).all()
    assert np.sqrt(np.mean(samples**2)) > 0.005, "silent"
    assert 0.4 * expected < seconds < 2.5 * expected

    assert number(figure(page, "length")) == pytest.approx(seconds, abs=0.06)
    assert 0 < number(figure(page, "first")) <= number(figure(page, "total"))
    assert number(figure(page, "rtf")) >= 0
    expect(page.locator("#take #duration")).to_have_text(f"0:{round(seconds):02}")
    stored = list(speaker.outputs.rglob("*.wav"))
    assert body in [path.read_bytes() for path in stored]


def test_cross_lingual_mode_needs_no_transcript(open_page, speaker):
    page = open_page(speaker.url)
    choose_mode(page, 2)
    expect(page.locator("#transcript")).to_be_hidden()
    upload(page)
    page.locator(".clip-report").wait_for()
    write_text(page, "你好，今天天气很好。")
    generate(page)
    wait_status(page, "done", timeout=3 * TAKE_MS)
    assert len(fetch_take(page)[0]) > 24_000


def test_example_button_fills_in_all_that_a_first_take_needs(open_page, speaker):
    page = open_page(speaker.url)
    page.locator("#example-en").click()
    page.locator(".clip-report").wait_for()
    expect(page.locator("#text textarea")).not_to_have_value("")
    generate(page)
    wait_status(page, "done", timeout=3 * TAKE_MS)


def test_clip_report_shows_length_level_and_advice(page):
    upload(page, EN_CLIP)
    report = page.locator(".clip-report")
    expect(report).to_contain_text("7.1 s")
    expect(report).to_contain_text("dBFS")
    expect(report).to_contain_text("Good clip.")


def encoded(container, codec, rate):
    """An upload as a phone or a browser makes it, under a name that tells nothing."""
    samples, own = soundfile.read(EN_CLIP, dtype="float32")
    return {
        "name": f"语音 “备忘” … 😀.{container}",
        "mimeType": f"video/{container}",  # as browsers call them
        "buffer": by_av(at_rate(samples, own, rate), container, codec, rate),
    }


@pytest.mark.parametrize(("container", "codec", "rate"), [("mp4", "aac", 16_000), ("webm", "libopus", 48_000)])
def test_phone_memo_and_browser_recording_are_taken(page, app, container, codec, rate):
    upload(page, encoded(container, codec, rate))
    expect(page.locator(".clip-length")).to_have_text(re.compile(r"7\.[12] s"))
    page.locator("#transcript textarea").fill(EN_TRANSCRIPT)
    write_text(page, TEXT)
    generate(page)
    wait_status(page, "done")
    ours = [path.name for path in app.temporary.glob("cosyui-*/**/*") if path.is_file()]
    assert f"clip.{container}" in ours
    assert [name for name in ours if "备忘" in name] == []


def test_long_clip_is_cut_by_the_page_and_needs_its_own_words(page):
    samples, rate = soundfile.read(EN_CLIP, dtype="float32")
    long = np.resize(np.concatenate([samples, np.zeros(rate // 2)]), 40 * rate)
    write_text(page, TEXT)
    page.locator("#transcript textarea").fill(EN_TRANSCRIPT)
    upload(page, wav(long, rate))
    assert "best part" in problem(page, "clip")
    page.locator("#best-part").click()
    expect(page.locator(".clip-report .clip-length")).to_have_text(re.compile(r"^1?\d\.\d s$"))
    expect(page.locator("#transcript textarea")).to_have_value("")
    page.locator("#transcript textarea").fill(EN_TRANSCRIPT)
    generate(page)
    assert "whole recording" in problem(page, "transcript")
    page.locator("#transcribe").click()
    expect(page.locator("#transcript textarea")).to_have_value(re.compile(r"A clip of \d+\.\d seconds\."))
    expect(page.locator("#problem-transcript .problem-line")).to_have_count(0)
    page.locator("#transcript textarea").focus()
    page.locator("#transcript textarea").blur()
    expect(page.locator("#transcript-note")).to_contain_text("takes only about")
    generate(page)
    wait_status(page, "done")
    expect(page.locator(".result .notes")).to_contain_text("takes only about")


def test_without_a_recogniser_the_page_says_how_to_get_one(open_page, speaker):
    page = open_page(speaker.url)
    expect(page.locator("#transcribe")).to_be_disabled()
    expect(page.locator("#transcribe-hint")).to_contain_text("pip install")


def test_recording_by_microphone_becomes_the_clip(page):
    """Chromium's fake device beeps; how long it was on is not ours to say, but the page has measured it."""
    page.get_by_role("button", name="Record audio").click()
    clip = page.locator("#clip")
    clip.get_by_role("button", name="Record", exact=True).click()
    # Stopped before the first sample there would be no recording at all.
    expect(clip.locator("time.duration")).to_have_text(re.compile(r"[1-9]"))
    clip.get_by_role("button", name="Stop", exact=True).click()
    measured = page.locator(".clip-report, #problem-clip .problem-line").first
    measured.wait_for()
    assert re.search(r"\d\.\d s", measured.inner_text())


def test_without_https_the_page_of_another_machine_says_why_there_is_no_microphone(open_page, app):
    note = ".microphone-far"
    expect(open_page().locator(note).first).to_be_hidden()
    expect(open_page(app.url.replace("127.0.0.1", "192.0.2.1")).locator(note).first).to_be_visible()


def test_seed_is_shown_kept_and_repeats_the_take(page):
    good_clip(page)
    write_text(page, TEXT)
    generate(page)
    wait_status(page, "done")
    first, seed = page.locator("[data-take]").get_attribute("data-take"), figure(page, "seed")
    page.locator("#reuse-seed").click()
    expect(page.locator("#seed input, #seed textarea")).to_have_value(seed)
    generate(page)
    page.locator(f"[data-take]:not([data-take='{first}'])").wait_for()
    assert figure(page, "seed") == seed


def test_two_presses_at_once_are_one_take(page):
    open_ops(page)
    before = counts(page)
    page.get_by_role("tab").first.click()
    good_clip(page)
    write_text(page, "[fake:seconds=1][fake:slow=0.2] A sentence to speak.")
    page.locator("#generate").dblclick()
    wait_status(page, "done")
    open_ops(page)
    expect(ops_row(page, "engine", "Takes: done / failed / stopped / refused")).to_contain_text(
        re.compile(rf"^{before['done'] + 1} / {before['failed']} / {before['stopped']} / {before['refused']}$")
    )


def test_dice_rolls_a_seed_that_the_take_uses(page):
    page.locator("#dice").click()
    field = page.locator("#seed input, #seed textarea")
    expect(field).not_to_have_value("")
    good_clip(page)
    write_text(page, TEXT)
    generate(page)
    wait_status(page, "done")
    assert figure(page, "seed") == field.input_value()


def test_preset_writes_an_instruction_that_can_be_edited(page):
    choose_mode(page, 3)
    expect(page.locator("#transcript")).to_be_hidden()
    page.locator("#preset-sichuan").click()
    field = page.locator("#instruction textarea")
    expect(field).to_have_value("请用四川话表达。")
    field.fill("请用四川话，慢慢地说。")
    upload(page)
    page.locator(".clip-report").wait_for()
    write_text(page, "今天我们去河边走走。")
    generate(page)
    wait_status(page, "done")
