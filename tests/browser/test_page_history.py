"""Past takes on the page: after a reload they are there to be heard, used again, kept and deleted."""

from driving import EN_TRANSCRIPT, TAKE_MS, fetch_take, figure, generate, good_clip, wait_status, write_text
from playwright.sync_api import expect

TEXT = "[fake:seconds=3] The ferry leaves at half past six."


def open_history(page):
    page.get_by_role("tab", name="History").click()
    page.locator("#past-list :is(li, .empty)").first.wait_for()


def test_a_take_outlives_a_reload_and_is_used_again(open_page, serve):
    with serve(transcriber="off") as own:
        page = open_page(own.url)
        faults = []
        page.on("console", lambda message: faults.append(message.text) if message.type == "error" else None)
        good_clip(page)
        write_text(page, TEXT)
        generate(page)
        wait_status(page, "done")
        seed, (body, _) = figure(page, "seed"), fetch_take(page)

        stranger = open_page(own.url)
        open_history(stranger)
        expect(stranger.locator("#past-list li")).to_have_count(0)

        page.reload()
        page.locator("[data-engine=ready]").first.wait_for(timeout=TAKE_MS)
        open_history(page)
        expect(page.locator("#past-list li")).to_have_count(1)
        page.locator("#past-list .past-open").click()
        expect(page.locator("#past-player #duration")).to_have_text("0:03")
        link = page.locator("#past-player a[data-testid=download-link]").get_attribute("href")
        assert page.request.get(link).body() == body

        page.locator("#past-list .past-star").click()
        expect(page.locator("#past-list .past-star")).to_have_attribute("aria-pressed", "true")
        expect(page.locator("#past-star")).to_have_text("No favourite any more")

        text = page.locator("#text textarea")
        page.get_by_role("tab", name="Speak").click()
        text.fill("Something else")
        open_history(page)
        page.locator("#past-reuse").click()
        expect(text).to_be_visible()
        expect(text).to_have_value(TEXT)
        expect(page.locator("#seed input, #seed textarea")).to_have_value(seed)
        expect(page.locator("#transcript textarea")).to_have_value(EN_TRANSCRIPT)
        page.locator(".clip-report").wait_for()
        generate(page)
        wait_status(page, "done")
        assert figure(page, "seed") == seed

        open_history(page)
        expect(page.locator("#past-list li")).to_have_count(2)
        page.locator("#past-search input, #past-search textarea").fill("nothing like it")
        expect(page.locator("#past-list li")).to_have_count(0)
        page.locator("#past-search input, #past-search textarea").fill("FERRY")
        expect(page.locator("#past-list li")).to_have_count(2)
        page.locator("#past-starred input").check()
        expect(page.locator("#past-list li")).to_have_count(1)
        page.locator("#past-remove").click()
        expect(page.locator("#past-list li")).to_have_count(0)
        page.locator("#past-starred input").uncheck()
        expect(page.locator("#past-list li")).to_have_count(1)
        gone = page.request.get(link)
        assert (gone.status, gone.json()["code"]) == (410, "take_gone")

        page.locator("#past-clear").click()
        page.locator("#past-clear-sure").click()
        expect(page.locator("#past-list li")).to_have_count(0)
        assert not list(own.outputs.rglob("*.wav"))
        assert faults == []
