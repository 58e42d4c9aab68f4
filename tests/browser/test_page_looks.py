"""Both languages, small screens, the ops tab, the states of the engine."""

import pytest
from driving import counts, generate, good_clip, open_ops, ops_row, problem, wait_status, write_text
from playwright.sync_api import expect

from cosyui.ui.locales import en, zh

HIDE = """(hidden) => {
    Object.defineProperty(document, "hidden", { configurable: true, value: hidden });
    document.dispatchEvent(new Event("visibilitychange"));
}"""


def test_title_and_english_words(page):
    expect(page).to_have_title("CosyUI")
    expect(page.locator("#generate")).to_have_text(en.PAGE["generate"])
    expect(page.get_by_text(en.PAGE["text"], exact=True)).to_be_visible()
    expect(page.get_by_text(zh.PAGE["text_placeholder"])).to_have_count(0)


@pytest.mark.parametrize("locale", ["zh-CN", "zh-TW", "zh-HK"])
def test_chinese_browser_gets_chinese_words_and_errors(open_page, locale):
    page = open_page(locale=locale)
    expect(page.locator("#generate")).to_have_text(zh.PAGE["generate"])
    expect(page.get_by_role("tab").last).to_have_text(zh.PAGE["tab_ops"])
    expect(page.locator(".badge").first).to_have_text(zh.LIVE["engine_ready"])
    expect(page.get_by_text(en.PAGE["take_empty"])).to_be_hidden()
    generate(page)
    assert problem(page, "text") == zh.ERRORS["text_empty"]


def test_other_browsers_get_english(open_page):
    page = open_page(locale="de-DE")
    expect(page.locator("#generate")).to_have_text(en.PAGE["generate"])
    generate(page)
    assert "Type the text" in problem(page, "text")


def test_language_switch_holds_for_labels_and_errors(open_page):
    page = open_page(locale="en-US")
    page.locator("#language").click()
    expect(page.locator("#generate")).to_have_text(zh.PAGE["generate"])
    generate(page)
    assert problem(page, "text") == zh.ERRORS["text_empty"]
    page.locator("#language").click()
    expect(page.locator("#generate")).to_have_text(en.PAGE["generate"])


def test_typed_words_survive_a_reload(page):
    write_text(page, "Half a sentence")
    page.locator("#transcript textarea").fill("what the clip says")
    page.reload()
    expect(page.locator("#text textarea")).to_have_value("Half a sentence")
    expect(page.locator("#transcript textarea")).to_have_value("what the clip says")
    expect(page.locator(".counter")).to_have_text("15 / 200")


def test_theme_switch_is_kept(page):
    page.locator("#theme").click()
    expect(page.locator("body.dark")).to_have_count(1)
    page.reload()
    expect(page.locator("body.dark #generate")).to_be_visible()


@pytest.mark.parametrize("locale", ["en-US", "zh-CN"])
def test_no_sideways_scrolling_on_a_phone(open_page, locale):
    page = open_page(width=390, locale=locale)
    generate(page)
    problem(page, "text")
    good_clip(page)
    write_text(page, "[fake:seconds=4] A take on the phone.")
    generate(page)
    wait_status(page, "done")
    width = "Math.max(document.documentElement.scrollWidth, document.body.scrollWidth)"
    assert page.evaluate(width) == 390
    page.locator("#mode label:nth-of-type(3)").click()
    page.locator("#instruction").wait_for()
    assert page.evaluate(width) == 390
    open_ops(page)
    assert page.evaluate(width) == 390


def test_ops_tab_shows_model_memory_and_counts(page):
    good_clip(page)
    write_text(page, "Counted.")
    generate(page)
    wait_status(page, "done")
    open_ops(page)
    expect(ops_row(page, "model", "Model")).to_have_text("fake")
    expect(ops_row(page, "model", "Device")).to_have_text("cpu")
    expect(page.locator("[data-card=memory]")).to_contain_text("MiB")
    assert counts(page)["done"] >= 1


def test_ops_tab_asks_for_news_only_while_it_is_open(page):
    """By the browser's clock, which is the test's own here."""
    page.clock.install()
    open_ops(page)
    for _ in range(3):
        with page.expect_response(is_call):
            page.clock.run_for(2_000)
    calls = []
    with page.expect_response(is_call):
        page.evaluate(HIDE, True)  # another tab of the browser
    page.on("request", lambda request: calls.append(request.url))
    page.clock.run_for(20_000)
    assert len(calls) <= 2, "only the header's slow look at the engine may remain"
    with page.expect_response(is_call):
        page.evaluate(HIDE, False)
    with page.expect_response(is_call):
        page.clock.run_for(2_000)
    with page.expect_response(is_call):
        page.get_by_role("tab").nth(0).click()
    expect(page.locator("#generate")).to_be_visible()
    calls.clear()
    page.clock.run_for(20_000)
    assert len(calls) <= 2, "only the header's slow look at the engine may remain"


def is_call(response):
    return response.request.method == "POST" and "/gradio_api/run/" in response.url


def test_page_is_there_while_the_model_loads_and_says_so(open_page, serve):
    with serve(fake_directives="[fake:load_hang]") as own:
        page = open_page(own.url, engine="starting")
        expect(page.locator("[data-banner=wait]")).to_contain_text("The model is loading.")
        good_clip(page)
        write_text(page, "Waits for the model.")
        generate(page)
        assert "Loading the model" in wait_status(page, "waiting")
        page.locator("#stop").click()
        wait_status(page, "stopped")


def test_broken_model_is_told_with_its_reason(open_page, serve):
    with serve(fake_directives="[fake:load_error]") as own:
        page = open_page(own.url, engine="broken")
        expect(page.locator("[data-banner=trouble]")).to_contain_text("llm.pt")
        good_clip(page)
        write_text(page, "Cannot be spoken.")
        generate(page)
        assert "llm.pt" in wait_status(page, "failed")
