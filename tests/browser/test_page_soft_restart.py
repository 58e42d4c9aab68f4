"""A soft restart pressed while a take runs: both succeed."""

from driving import TAKE_MS, fetch_take, generate, good_clip, wait_status, write_text
from playwright.sync_api import expect


def test_soft_restart_while_a_take_runs(open_page, serve):
    with serve(engine="fake", transcriber="off", fake_directives="[fake:slow=0.4]") as speaker:
        page = open_page(speaker.url)
        good_clip(page)
        write_text(page, "This take is running while somebody presses the button.")
        generate(page)
        wait_status(page, "running", timeout=TAKE_MS)
        page.get_by_role("tab", name="Ops").click()
        page.locator("#soft-restart").click()
        page.locator("#soft-restart-sure").click()
        told = page.locator("#soft-restart-told")
        expect(told).to_contain_text("Waiting for 1 running takes")
        expect(told).to_contain_text("Freed", timeout=TAKE_MS)
        expect(page.locator("#soft-restart")).to_be_visible()
        page.get_by_role("tab", name="Speak").click()
        wait_status(page, "done", timeout=TAKE_MS)
        body, _ = fetch_take(page)
        assert body[:4] == b"RIFF"
