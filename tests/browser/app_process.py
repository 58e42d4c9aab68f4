"""`app.py` in a process of its own, as a user starts it."""

import os
import signal
import socket
import subprocess
import sys
import threading
from collections import deque
from pathlib import Path

ROOT = Path(__file__).parents[2]
START_SECONDS = 90


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def environment(**settings):
    """The environment of a server: none of the caller's settings, then those given."""
    clean = {name: value for name, value in os.environ.items() if not name.upper().startswith("COSYUI_")}
    return clean | {f"COSYUI_{name.upper()}": str(value) for name, value in settings.items()}


class AppProcess:
    """`app.py` as a user starts it. ``errors`` holds the end of its stderr, ``temporary`` is its TMPDIR."""

    def __init__(self, outputs, **settings):
        self.outputs = outputs
        self.temporary = outputs.with_name(f"{outputs.name}-tmp")
        self.temporary.mkdir()
        settings.setdefault("drain_seconds", 0)
        settings.setdefault("journal", outputs.with_name(f"{outputs.name}.sqlite"))
        settings.setdefault("history_file", outputs.with_name(f"{outputs.name}-history.sqlite"))
        self.url = f"http://127.0.0.1:{settings['port']}"
        self.errors = deque(maxlen=200)
        self.process = subprocess.Popen(
            [sys.executable, "app.py"],
            cwd=ROOT,
            env=environment(outputs_dir=outputs, **settings) | {"TMPDIR": str(self.temporary)},
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
