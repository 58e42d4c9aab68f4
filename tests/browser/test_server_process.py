"""The server without a browser: wrong setups end in one line, signals in a clean end, closed routes stay closed."""

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request

import pytest
from app_process import ROOT, environment, free_port


def run_app(*arguments, **settings):
    """Exit code and stderr lines of an `app.py` that ends by itself."""
    done = subprocess.run(
        [sys.executable, "app.py", *arguments],
        cwd=ROOT,
        env=environment(engine="fake", **settings),
        capture_output=True,
        text=True,
        timeout=60,
    )
    return done.returncode, done.stderr.strip().splitlines()


def get(url):
    try:
        with urllib.request.urlopen(url, timeout=20) as response:
            return response.status, response.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


@pytest.mark.parametrize(
    ("arguments", "settings", "words"),
    [
        (["--no-such-option", "1"], {}, "--no-such-option"),
        (["--port"], {}, "--port"),
        (["--device", "tpu"], {}, "device"),
        ([], {"outputs_dirr": "x"}, "COSYUI_OUTPUTS_DIR"),
        (["--port", "99999"], {}, "port"),
    ],
)
def test_wrong_setting_ends_in_one_line_and_code_2(arguments, settings, words):
    code, lines = run_app(*arguments, **settings)
    assert code == 2
    assert len(lines) == 1
    assert words in lines[0]


def test_port_in_use_ends_in_one_line_and_code_2(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, lines = run_app("--port", str(port), "--outputs-dir", str(tmp_path))
    assert code == 2
    assert lines == [f"cosyui: Port {port} is in use. Stop the other program or choose another with --port."]


def test_output_folder_that_cannot_be_written_ends_in_one_line_and_code_2(tmp_path):
    """A file where the folder's parent should be: refused for every user, root too."""
    (tmp_path / "file").write_text("in the way")
    code, lines = run_app("--port", str(free_port()), "--outputs-dir", str(tmp_path / "file" / "outputs"))
    assert code == 2
    assert len(lines) == 1
    assert "cannot be written" in lines[0]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_ends_the_server_with_code_0_and_takes_the_engine_along(serve, number):
    with serve() as own:
        engine = int(subprocess.check_output(["pgrep", "-P", str(own.process.pid), "-f", "cosyui.host.worker"]))
        assert own.stop(number) == 0
        with pytest.raises(ProcessLookupError):
            os.kill(engine, 0)
        assert not any("Traceback" in line for line in own.errors)


def speech(url, text):
    body = json.dumps({"model": "cosyui", "voice": "en", "input": text, "response_format": "pcm"}).encode()
    ask = urllib.request.Request(f"{url}/v1/audio/speech", body, {"content-type": "application/json"})
    return urllib.request.urlopen(ask, timeout=30)


def test_an_answer_goes_on_to_its_end_while_the_server_drains(serve, tmp_path):
    release = tmp_path / "release"
    with serve(fake_release_file=release, drain_seconds=30) as own:
        with speech(own.url, "[fake:hold][fake:seconds=2] A sentence.") as answer:
            sound = answer.read(2)
            own.process.send_signal(signal.SIGTERM)
            while get(f"{own.url}/health/ready")[0] != 503:
                pass
            assert b'"draining"' in get(f"{own.url}/health/ready")[1]
            assert get(f"{own.url}/health/live")[0] == 200
            with pytest.raises(urllib.error.HTTPError) as refused:
                speech(own.url, "One more.")
            assert refused.value.code == 503
            assert int(refused.value.headers["retry-after"]) > 0
            release.touch()
            sound += answer.read()
        assert len(sound) == 2 * 2 * 24_000
        assert own.process.wait(30) == 0


def test_a_second_signal_does_not_wait(serve):
    with serve(drain_seconds=3600) as own, speech(own.url, "[fake:hold][fake:seconds=2] A sentence.") as answer:
        answer.read(2)
        own.process.send_signal(signal.SIGTERM)
        while get(f"{own.url}/health/ready")[0] != 503:
            pass
        assert own.stop(signal.SIGTERM) == 0


def test_files_are_served_from_the_output_folder_only(app):
    inside = app.outputs / "probe.wav"
    inside.write_bytes(b"RIFF")
    assert get(f"{app.url}/gradio_api/file={inside}") == (200, b"RIFF")
    record = app.outputs / "batches" / "probe" / "order.json"
    record.parent.mkdir(parents=True)
    record.write_text("{}")
    assert get(f"{app.url}/gradio_api/file={record}")[0] == 403
    for outside in ("/etc/passwd", ROOT / "app.py", ROOT / "cosyui/settings.py", f"{app.outputs}/../probe"):
        assert get(f"{app.url}/gradio_api/file={outside}")[0] in (403, 404)


@pytest.mark.parametrize(
    "path",
    [
        "/monitoring",
        "/monitoring/summary",
        "/config",
        "/gradio_api/info",
        "/gradio_api/openapi.json",
        "/gradio_api/proxy=http://127.0.0.1/",
        "/gradio_api/file=http://127.0.0.1/",
        "/gradio_api/file=https:/example.org/x",
        "/gradio_api/runs",
        "/docs",
        "/openapi.json",
    ],
)
def test_routes_that_the_page_does_not_need_are_closed(app, path):
    assert get(f"{app.url}{path}")[0] in (403, 404)


def test_health_routes_answer_beside_the_page(app):
    assert get(f"{app.url}/health/live")[0] == 200
    status, body = get(f"{app.url}/")
    assert status == 200
    assert b"cosyui_lang" in body
