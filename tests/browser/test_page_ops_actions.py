"""What an operator does on the ops tab: stop somebody's take, look through the journal, ask what would be deleted."""

import csv
from pathlib import Path

from driving import TAKE_MS, generate, good_clip, open_ops, wait_status, write_text
from playwright.sync_api import expect


def ask_for(page, text):
    good_clip(page)
    write_text(page, text)
    generate(page)


def rows(page):
    """Rows of the journal without its head."""
    return page.locator("#journal-table tr").filter(has=page.locator("td"))


def test_an_operator_stops_takes_and_reads_the_journal(open_page, serve):
    with serve(transcriber="off") as own:
        operator, waiting = open_page(own.url), open_page(own.url)
        faults = []
        for page in (operator, waiting):
            page.on("console", lambda message: faults.append(message.text) if message.type == "error" else None)
        ask_for(operator, "[fake:hold] This one is at work.")
        wait_status(operator, "running", TAKE_MS)
        ask_for(waiting, "This one has to wait.")
        wait_status(waiting, "waiting", TAKE_MS)

        open_ops(operator)
        expect(operator.locator("#ops-lock")).to_be_hidden()
        expect(operator.locator("#ops-password")).to_be_hidden()
        queue = operator.locator("[data-card=queue]")
        expect(queue.locator("tr[data-state]")).to_have_count(2)
        queue.locator("tr[data-state=waiting] button").click()
        wait_status(waiting, "stopped")
        expect(queue.locator("tr[data-state]")).to_have_count(1)
        expect(operator.locator("#cancel-told").get_by_text("is stopped")).to_be_visible()
        queue.locator("tr[data-state] button").press("Enter")
        expect(queue.locator("tr[data-state]")).to_have_count(0)

        write_text(waiting, "[fake:oom] This one fails.")
        generate(waiting)
        wait_status(waiting, "failed")
        operator.locator("#journal-refresh").click()
        expect(rows(operator)).to_have_count(3)
        operator.locator("#journal-outcome input").click()
        operator.get_by_role("option", name="stopped").click()
        expect(rows(operator)).to_have_count(2)
        operator.locator("[data-pick=journal-sort][data-value=total]").click()
        expect(operator.locator("th[aria-sort]")).to_contain_text("Total")
        with operator.expect_download() as download:
            operator.locator("#journal-export").click()
        assert download.value.suggested_filename.endswith(".csv")
        saved = list(csv.DictReader(Path(download.value.path()).read_text("utf-8").splitlines()))
        assert [row["outcome"] for row in saved] == ["stopped", "stopped"]

        operator.locator("#purge-look").click()
        told = operator.locator("#purge-look-told").get_by_text("would be deleted")
        expect(told).to_be_visible(timeout=TAKE_MS)
        assert faults == []


def test_an_admin_unlocks_the_actions_and_a_take_wakes_the_model(open_page, serve):
    with serve(transcriber="off", admin_password="open sesame") as own:
        page = open_page(own.url)
        open_ops(page)
        expect(page.locator("#ops-gate-line")).to_be_visible()
        expect(page.locator("#unload")).to_be_hidden()
        page.locator("#ops-password input").fill("guessed")
        page.locator("#ops-unlock").click()
        expect(page.locator("#ops-gate-told [role=alert]")).to_be_visible()
        expect(page.locator("#unload")).to_be_hidden()
        page.locator("#ops-password input").fill("open sesame")
        page.locator("#ops-unlock").click()

        page.locator("#trim").click()
        expect(page.locator("#trim-told").get_by_text("Gave back")).to_be_visible()
        page.locator("#unload").click()
        page.locator("#unload-sure").click()
        expect(page.locator("#unload-told").get_by_text("is unloaded")).to_be_visible(timeout=TAKE_MS)
        page.get_by_role("tab", name="Speak").click()
        expect(page.locator("#banner")).to_contain_text("not loaded", timeout=TAKE_MS)
        ask_for(page, "This one wakes the model.")
        wait_status(page, "done", TAKE_MS)

        open_ops(page)
        page.locator("#restart-engine").click()
        page.locator("#restart-engine-sure").click()
        expect(page.locator("#restart-engine-told .hint, #restart-engine-told p").last).to_contain_text("again")
        expect(page.locator("[data-card=engine]")).to_contain_text("Ready", timeout=TAKE_MS)
