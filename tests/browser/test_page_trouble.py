"""Bad input beside its field, failures in plain words, a full queue, Stop. All with the fake engine."""

import re

import pytest
from driving import (
    EN_TRANSCRIPT,
    choose_mode,
    counts,
    generate,
    good_clip,
    open_ops,
    ops_row,
    problem,
    tone,
    upload,
    wait_status,
    wav,
    write_text,
)
from playwright.sync_api import expect

TEXT = "A quiet morning by the harbour."


def no_clip(page):
    page.locator("#transcript textarea").fill(EN_TRANSCRIPT)


def clip(samples):
    def act(page):
        upload(page, wav(samples))
        page.locator("#transcript textarea").fill(EN_TRANSCRIPT)

    return act


def raw(name, mime, body):
    def act(page):
        upload(page, {"name": name, "mimeType": mime, "buffer": body})

    return act


def no_transcript(page):
    upload(page)


def no_instruction(page):
    choose_mode(page, 3)
    upload(page)


def seed(value):
    def act(page):
        good_clip(page)
        page.locator("#seed input, #seed textarea").fill(value)

    return act


BAD_FORMS = {
    "empty text": ("", good_clip, "text", "Type the text"),
    "punctuation only": ("?!... ,", good_clip, "text", "nothing to speak"),
    "text too long": ("word " * 4001, good_clip, "text", "20000"),
    "no clip": (TEXT, no_clip, "clip", "Upload or record"),
    "clip under 3 s": (TEXT, clip(tone(1.0)), "clip", "1.0 s long"),
    "clip over 30 s": (TEXT, clip(tone(31.0)), "clip", "longer than 30 s"),
    "silent clip": (TEXT, clip(tone(4.0) * 0), "clip", "silent"),
    "unreadable clip": (TEXT, raw("clip.wav", "audio/wav", b"no audio at all" * 100), "clip", "cannot be read"),
    "no transcript": (TEXT, no_transcript, "transcript", "what is said in the clip"),
    "no instruction": (TEXT, no_instruction, "instruction", "how it should be spoken"),
    "seed of letters": (TEXT, seed("abc"), "seed", "whole number"),
    "seed too large": (TEXT, seed("99999999999"), "seed", "whole number"),
}


@pytest.mark.parametrize(("text", "act", "field", "words"), BAD_FORMS.values(), ids=list(BAD_FORMS))
def test_bad_input_is_told_beside_its_field(page, text, act, field, words):
    write_text(page, text)
    act(page)
    generate(page)
    wait_status(page, "failed")
    assert words in problem(page, field)
    expect(page.locator("#text textarea")).to_have_value(text)
    expect(page.locator("#generate")).to_be_enabled()
    expect(page.locator("#stop")).to_be_disabled()


def test_every_problem_of_a_form_is_told_at_once(page):
    generate(page)
    wait_status(page, "failed")
    told = [problem(page, field) for field in ("text", "clip", "transcript")]
    assert all(told)
    assert len(set(told)) == 3


def test_problem_goes_when_its_field_is_edited(page):
    generate(page)
    problem(page, "text")
    page.locator("#text textarea").press_sequentially("Better")
    expect(page.locator("#problem-text .problem-line")).to_have_count(0)
    problem(page, "clip")


def test_too_short_clip_is_told_at_upload(page):
    upload(page, wav(tone(1.0)))
    assert "1.0 s long" in problem(page, "clip")


def test_empty_file_is_told_at_upload(page):
    upload(page, {"name": "clip.wav", "mimeType": "audio/wav", "buffer": b""})
    assert "0 bytes" in problem(page, "clip")


def test_counter_follows_the_text(page):
    write_text(page, "你好 world")
    expect(page.locator(".counter")).to_have_text("8 / 200")
    expect(page.locator(".long-text")).to_have_count(0)
    write_text(page, "词" * 540)
    expect(page.locator(".counter")).to_have_text("540 / 200")
    expect(page.locator(".counter.over")).to_have_count(0)
    expect(page.locator(".long-text .t-en")).to_contain_text("about 10 parts, 2 min")
    write_text(page, "x" * 20_001)
    expect(page.locator(".counter.over")).to_have_text("20001 / 20000")
    expect(page.locator(".long-text")).to_have_count(0)


def test_long_text_is_spoken_with_progress_and_can_be_stopped(page):
    good_clip(page)
    write_text(page, "[fake:slow=0.2][fake:segments=30][fake:seconds=30]" + "A story that goes on and on. " * 10)
    generate(page)
    line = page.locator("#status [data-status=running]")
    expect(line).to_contain_text("of about")
    shown = line.inner_text()
    expect(line).not_to_have_text(shown)
    page.locator("#stop").click()
    wait_status(page, "stopped")
    write_text(page, "[fake:segments=4][fake:seconds=8]" + "A story that goes on and on. " * 10)
    generate(page)
    wait_status(page, "done")


def test_engine_failure_is_told_and_everything_entered_stays(page):
    text = "[fake:fail=output_bad] A text that fails."
    good_clip(page)
    write_text(page, text)
    generate(page)
    assert "The engine failed" in wait_status(page, "failed")
    expect(page.locator("#text textarea")).to_have_value(text)
    expect(page.locator("#transcript textarea")).to_have_value(EN_TRANSCRIPT)
    expect(page.locator(".clip-report")).to_be_visible()
    write_text(page, TEXT)
    generate(page)
    wait_status(page, "done")


def test_death_of_the_engine_is_survived_once(page):
    open_ops(page)
    restarts = int(ops_row(page, "engine", "Engine restarts").inner_text())
    page.get_by_role("tab").nth(0).click()
    good_clip(page)
    write_text(page, "[fake:die] This one dies, then goes well.")
    generate(page)
    wait_status(page, "done")
    open_ops(page)
    expect(ops_row(page, "engine", "Engine restarts")).to_have_text(str(restarts + 1))


def test_stop_really_stops_the_work(page, app):
    open_ops(page)
    stopped, files = counts(page)["stopped"], set(app.outputs.rglob("*.wav"))
    page.get_by_role("tab").nth(0).click()
    good_clip(page)
    write_text(page, "[fake:hold] Held until it is stopped.")
    generate(page)
    wait_status(page, "running")
    expect(page.locator("#generate")).to_be_disabled()
    expect(page.locator("#stop")).to_be_enabled()
    page.locator("#stop").click()
    wait_status(page, "stopped")
    expect(page.locator("#generate")).to_be_enabled()
    expect(page.locator("#stop")).to_be_disabled()
    open_ops(page)
    # The panel may still show the moment before the take.
    expect(ops_row(page, "engine", "Takes: done / failed / stopped / refused")).to_have_text(
        re.compile(rf"^\d+ / \d+ / {stopped + 1} / \d+$")
    )
    expect(ops_row(page, "queue", "Running")).to_have_text("0")
    assert set(app.outputs.rglob("*.wav")) == files


def test_leaving_the_page_stops_its_take(open_page):
    gone, watcher = open_page(), open_page()
    good_clip(gone)
    write_text(gone, "[fake:hold] Nobody will hear this.")
    generate(gone)
    wait_status(gone, "running")
    open_ops(watcher)
    expect(ops_row(watcher, "queue", "Running")).to_have_text("1")
    gone.close()
    expect(ops_row(watcher, "queue", "Running")).to_have_text("0", timeout=30_000)


def test_server_ends_cleanly_while_a_page_listens_to_a_take(open_page, serve):
    with serve() as own:
        page = open_page(own.url)
        good_clip(page)
        write_text(page, "[fake:hold] Cut off by the end of the server.")
        generate(page)
        wait_status(page, "running")
        assert own.stop() == 0
        assert not any("Traceback" in line for line in own.errors)


def test_waiting_takes_see_their_position_and_a_full_queue_refuses(open_page, serve):
    with serve(queue_size=1) as own:
        first, second, third = (open_page(own.url) for _ in range(3))
        for page in (first, second, third):
            good_clip(page)
            write_text(page, TEXT)
        write_text(first, "[fake:hold] First in line.")
        generate(first)
        wait_status(first, "running")
        generate(second)
        assert "Next in line" in wait_status(second, "waiting")
        open_ops(third)
        expect(ops_row(third, "queue", "Waiting")).to_have_text("1 of 1")
        third.get_by_role("tab").nth(0).click()
        generate(third)
        assert "queue is full" in wait_status(third, "failed")
        expect(third.locator("#text textarea")).to_have_value(TEXT)
        first.locator("#stop").click()
        wait_status(second, "done")
        generate(third)
        wait_status(third, "done")


def test_waiting_take_can_be_stopped(open_page):
    first, second = open_page(), open_page()
    for page in (first, second):
        good_clip(page)
        write_text(page, "[fake:hold] Held.")
    generate(first)
    wait_status(first, "running")
    generate(second)
    wait_status(second, "waiting")
    second.locator("#stop").click()
    wait_status(second, "stopped")
    open_ops(second)
    expect(ops_row(second, "queue", "Waiting")).to_have_text("0 of 10")
    expect(ops_row(second, "queue", "Running")).to_have_text("1")
    first.locator("#stop").click()
    wait_status(first, "stopped")
