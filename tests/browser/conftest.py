"""A real server process and a real browser; tests wait for what the page shows, never for time."""

import contextlib
import shutil
from pathlib import Path

import pytest
from app_process import AppProcess, free_port

sync_api = pytest.importorskip("playwright.sync_api", reason="the browser tests need playwright: ./run.sh test")

CHROMIUM = ("chromium", "chromium-browser", "google-chrome")
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--use-fake-ui-for-media-stream",
    "--use-fake-device-for-media-stream",
    "--host-resolver-rules=MAP 192.0.2.1 127.0.0.1",
]


def pytest_collection_modifyitems(items):
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.browser)


@pytest.fixture(scope="session")
def serve(tmp_path_factory):
    """A function that starts a server with the given settings, as a context manager."""

    @contextlib.contextmanager
    def start(engine="fake", **settings):
        app = AppProcess(tmp_path_factory.mktemp("outputs"), engine=engine, port=free_port(), **settings)
        try:
            yield app
        finally:
            app.stop()

    return start


@pytest.fixture(scope="session")
def app(serve):
    """One server with the fake engine for all tests that leave it as they found it."""
    with serve(transcriber="fake") as started:
        yield started


@pytest.fixture(scope="module")
def browser():
    """A module at a time: while Playwright runs, its event loop keeps others in this process from running."""
    executable = next(filter(None, map(shutil.which, CHROMIUM)), None)
    with sync_api.sync_playwright() as playwright:
        if executable is None and not Path(playwright.chromium.executable_path).exists():
            pytest.skip("there is no Chromium: apt-get install chromium")
        launched = playwright.chromium.launch(executable_path=executable, args=FLAGS)
        yield launched
        launched.close()


@pytest.fixture
def open_page(browser, app):
    """A function that opens the page, in its own context, when the engine is ready. Script errors fail the test."""
    contexts, faults = [], []

    def open_(url=app.url, locale="en-US", width=1280, engine="ready", **options):
        context = browser.new_context(viewport={"width": width, "height": 900}, locale=locale, **options)
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.goto(url)
        page.locator(f"[data-engine={engine}]").first.wait_for(timeout=120_000)
        return page

    yield open_
    for context in contexts:
        context.close()
    assert faults == []


@pytest.fixture
def page(open_page):
    return open_page()
