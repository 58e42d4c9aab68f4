"""A real server process and a real browser; tests wait for what the page shows, never for time."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections import deque
from pathlib import Path

import pytest

sync_api = pytest.importorskip("playwright.sync_api", reason="the browser tests need playwright: ./run.sh test")

ROOT = Path(__file__).parents[2]
START_SECONDS = 90
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
]


def pytest_collection_modifyitems(items):
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.browser)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def environment(**settings):
    """The environment of a server: none of the caller's settings, then those given."""
    clean = {name: value for name, value in os.environ.items() if not name.upper().startswith("COSYUI_")}
    return clean | {f"COSYUI_{name.upper()}": str(value) for name, value in settings.items()}


class AppProcess:
    """`app.py` as a user starts it. ``errors`` holds the end of its stderr."""

    def __init__(self, outputs, **settings):
        self.outputs = outputs
        self.url = f"http://127.0.0.1:{settings['port']}"
        self.errors = deque(maxlen=200)
        self.process = subprocess.Popen(
            [sys.executable, "app.py"],
            cwd=ROOT,
            env=environment(outputs_dir=outputs, **settings),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        threading.Thread(target=self._listen, daemon=True).start()
        watchdog = threading.Timer(START_SECONDS, self.process.kill)
        watchdog.start()
        line = self.process.stdout.readline()
        watchdog.cancel()
        assert self.url in line, f"the server did not start: {''.join(self.errors)}"

    def _listen(self):
        for line in self.process.stderr:
            self.errors.append(line)

    def stop(self, number=signal.SIGTERM):
        """The exit code after a signal."""
        self.process.send_signal(number)
        try:
            return self.process.wait(timeout=30)
        finally:
            self.process.kill()


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
    with serve() as started:
        yield started


@pytest.fixture(scope="session")
def browser():
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
