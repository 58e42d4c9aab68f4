"""Picture of the page after a take: ``python tests/browser/screenshot.py URL FILE [WIDTH [LOCALE]]``."""

import shutil
import sys

from playwright.sync_api import sync_playwright


def main(url, file, width="1280", locale="en-US"):
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": int(width), "height": 900}, locale=locale, device_scale_factor=1.5)
        page.goto(url)
        page.locator("[data-engine=ready]").first.wait_for(timeout=120_000)
        page.locator("#example-zh" if locale.startswith("zh") else "#example-en").click()
        page.locator(".clip-report").wait_for()
        page.locator("#generate").click()
        page.locator("#status [data-status=done]").wait_for(timeout=300_000)
        page.locator("#take #duration").filter(has_not_text="0:00").wait_for()
        page.mouse.move(2, 2)
        page.screenshot(path=file, full_page=True)
        browser.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
