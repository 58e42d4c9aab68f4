"""Clients over HTTP: what they heard adds up, and what went wrong is counted."""

import argparse
import json
import wave

import pytest

from cosyui.bench import http
from cosyui.bench.http import Answer
from cosyui.bench.report import Report
from cosyui.errors import CosyuiError
from tests.api.conftest import api  # noqa: F401
from tests.service.conftest import anyio_backend, fake_service, new_service  # noqa: F401

pytestmark = pytest.mark.anyio


def arguments(url, file, *more):
    parser = argparse.ArgumentParser()
    http.add_arguments(parser)
    return parser.parse_args([url, "--clients", "3", "--requests", "7", "--json", str(file), *more])


def seconds_of(path):
    with wave.open(str(path)) as file:
        return file.getnframes() / file.getframerate()


async def measured(args):
    report = Report("http", http.torch.device("cpu"), args)
    code = await http.measure(args, report)
    return code, json.loads(args.json.read_text("utf-8"))


@pytest.mark.parametrize("kind", ["pcm", "wav", "mp3", "opus"])
async def test_all_sound_is_counted_in_every_format(api, tmp_path, kind):  # noqa: F811
    async with api(fake={"places": 3}) as site:
        code, told = await measured(arguments(site.url, tmp_path / "figures.json", "--format", kind))
        assert code == 0
        made = sum(seconds_of(path) for path in site.service.outputs.root.rglob("*.wav"))
        first = made - told["burst"]["speech_s"] - told["steady"]["speech_s"]
        assert 1 < first < made / 5, "all but the one that made everything ready"
        assert [told[part]["requests"] for part in ("burst", "steady")] == [3, 7]
        for part in (told["burst"], told["steady"]):
            assert part["failed"] == 0
            assert part["speech_per_s"] == pytest.approx(part["speech_s"] / part["wall_s"])
            assert 0 < part["first_byte_p50_s"] <= part["first_byte_p95_s"] <= part["whole_p95_s"]


async def test_failed_requests_are_counted_and_told(api, tmp_path, capsys):  # noqa: F811
    async with api() as site:
        code, told = await measured(arguments(site.url, tmp_path / "figures.json", "--voice", "nobody"))
    assert (code, told["burst"]["failed"], told["steady"]["failed"]) == (1, 3, 7)
    assert told["steady"]["speech_s"] == 0
    assert "HTTP 404" in capsys.readouterr().out


async def test_without_a_server_it_says_so(tmp_path):
    with pytest.raises(CosyuiError, match="no answer from") as caught:
        await measured(arguments("http://127.0.0.1:9", tmp_path / "figures.json"))
    assert caught.value.code == "http_unreachable"


def test_a_stream_runs_dry_where_sound_comes_later_than_it_lasts():
    steady = Answer(arrivals=[(0.1, 10), (0.5, 10), (1.9, 20)], sound=bytes(40), seconds=4.0)
    late = Answer(arrivals=[(0.1, 10), (1.6, 10), (2.0, 20)], sound=bytes(40), seconds=4.0)
    assert steady.longest_gap == 0
    assert late.longest_gap == pytest.approx(0.5)
