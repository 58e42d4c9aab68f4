"""A voice's whole life on the page: saved, spoken with, renamed, exported, deleted, imported."""

import re

from driving import EN_CLIP, EN_TRANSCRIPT, generate, open_voices, problem, wait_status, write_text
from playwright.sync_api import expect


def field(page, name):
    return page.locator(f"#{name} :is(textarea, input)")


def choose(page, name):
    page.locator("#voice input").click()
    page.get_by_role("option", name=name).click()


def test_voice_from_its_saving_to_its_return(page, tmp_path):
    open_voices(page)
    expect(page.locator("#voice-rows")).to_contain_text("No voice is saved yet.")
    page.locator("#voice-clip input[type=file]").set_input_files(EN_CLIP)
    expect(page.locator("#voice-clip-report .clip-length")).to_have_text(re.compile("7.1 s"))
    field(page, "voice-name").fill("Ann")
    field(page, "voice-transcript").fill(EN_TRANSCRIPT)
    page.locator("#voice-save").click()
    assert "who agreed" in problem(page, "voice-consent")
    expect(field(page, "voice-name")).to_have_value("Ann")
    page.locator("#voice-consent-own").click()
    expect(page.locator("#problem-voice-consent .problem-line")).to_have_count(0)
    page.locator("#voice-save").click()
    expect(page.locator("#voice-told")).to_have_text("Saved: Ann.")
    expect(page.locator("#voice-rows li")).to_have_count(1)

    page.get_by_role("tab").nth(0).click()
    choose(page, "Ann")
    expect(page.locator("#voice-about")).to_contain_text(EN_TRANSCRIPT)
    expect(page.locator("#transcript")).to_be_hidden()
    write_text(page, "In the voice of Ann.")
    generate(page)
    wait_status(page, "done")

    open_voices(page)
    page.locator("#voice-rows button").click()
    expect(field(page, "edit-name")).to_have_value("Ann")
    expect(page.locator("#voice-player #duration")).to_have_text("0:07")
    page.locator("#voice-preview").click()
    expect(page.locator("#voice-status [data-status=done]")).to_be_visible()
    expect(page.locator("#voice-spoken #duration")).to_have_text(re.compile(r"0:0[1-9]"))
    field(page, "edit-name").fill("Anna")
    page.locator("#voice-change").click()
    expect(page.locator("#voice-rows li")).to_contain_text("Anna")
    page.get_by_role("tab").nth(0).click()
    expect(page.locator("#voice input")).to_have_value("Anna")

    open_voices(page)
    with page.expect_download() as download:
        page.locator("#voice-export").click()
    assert re.fullmatch(r"voice_[0-9a-f]{24}\.zip", download.value.suggested_filename)
    file = tmp_path / "Ann's own.zip"
    download.value.save_as(file)
    page.locator("#voice-delete").click()
    page.locator("#voice-delete-sure").click()
    expect(page.locator("#voice-list-told")).to_contain_text("Deleted: Anna")
    expect(page.locator("#voice-detail")).to_be_hidden()
    page.get_by_role("tab").nth(0).click()
    assert "deleted" in problem(page, "voice")
    generate(page)
    assert "Check the marked fields" in wait_status(page, "failed")

    open_voices(page)
    page.locator("#voice-file input[type=file]").set_input_files(file)
    expect(page.locator("#voice-file")).to_contain_text("voice.zip")
    page.locator("#voice-import-go").click()
    expect(page.locator("#import-told")).to_have_text("Saved: Anna.")
    page.get_by_role("tab").nth(0).click()
    choose(page, "Anna")
    generate(page)
    wait_status(page, "done")
    open_voices(page)
    page.locator("#voice-rows button").click()
    page.locator("#voice-delete").click()
    page.locator("#voice-delete-sure").click()
    expect(page.locator("#voice-rows")).to_contain_text("No voice is saved yet.")
