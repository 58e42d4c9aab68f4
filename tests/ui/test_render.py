"""What the page shows of reports, progress, results and the engine's state; hostile text stays text."""

from dataclasses import replace
from html import escape
from pathlib import Path
from types import SimpleNamespace

import gradio as gr
import pytest

from cosyui.engine.loading import BEGINS, LoadProgress
from cosyui.engine.request import EngineFacts, RequestStats, SelfTest
from cosyui.errors import CheckpointError, InputError
from cosyui.notice import Notice
from cosyui.service.types import Result, Running, Waiting
from cosyui.settings import Settings
from cosyui.speech.clip.intake import ClipReport
from cosyui.ui import banner, pieces, render
from cosyui.ui.controls import clip_input, take_player
from cosyui.ui.i18n import Dictionary
from cosyui.ui.synthesis import _whole

HOSTILE = "<img src=x onerror=alert(1)>"
SETTINGS = Settings.load(environ={})


@pytest.fixture(params=["en", "zh"])
def words(request):
    headers = {"accept-language": request.param}
    return Dictionary(SETTINGS).of(SimpleNamespace(cookies={}, headers=headers))


@pytest.fixture
def english():
    return Dictionary(SETTINGS).of(SimpleNamespace(cookies={}, headers={}))


def report(changes=(), advice=()):
    return ClipReport(7.0, 6.8, 6.0, 24_000, 1, 8_000.0, -6.0, -20.0, 50.0, 0.0, changes, advice)


@pytest.mark.parametrize(
    ("given", "tone", "advice"),
    [
        (report(), "good", "Good clip."),
        (report(changes=(Notice("clip_trimmed", "Cut off."),)), "fine", "Good clip."),
        (report(advice=(Notice("clip_short", "Rather short."),)), "fine", "Rather short."),
        (report(advice=(Notice("clip_quiet", "Very quiet."),)), "fair", "Very quiet."),
        (report(advice=(Notice("hostile", HOSTILE),)), "fair", "&lt;img"),
    ],
)
def test_clip_report_advises(english, given, tone, advice):
    html = render.clip_report(given, english)
    assert f'"clip-report {tone}"' in html
    assert advice in html
    assert HOSTILE not in html
    assert ("Good clip." in html) == (not given.advice)


def test_problem_text_is_escaped(words):
    html = render.problem_of(InputError("brand_new", HOSTILE, "text"), words)
    assert HOSTILE not in html
    assert "&lt;img" in html


@pytest.mark.parametrize(
    ("update", "shown"),
    [
        (Waiting(1, 4.2), ["Next in line", "about 5 s"]),
        (Waiting(3, None), ["Number 3 in line"]),
        (Waiting(0, None), ["waiting for the engine"]),
        (Waiting(2, None, "restarting"), ["Engine restarting"]),
    ],
)
def test_waiting_shows_position_and_eta(english, update, shown):
    html = render.waiting(update, english)
    assert all(text in html for text in shown)


@pytest.mark.parametrize(
    ("update", "width"),
    [
        (Running(2.0, 1, expected_seconds=4.0), "width:50%"),
        (Running(9.0, 1, expected_seconds=4.0), "width:97%"),
        (Running(0.0, 1, expected_seconds=4.0), "moving"),
        (Running(0.0, 1), "moving"),
    ],
)
def test_progress_never_claims_to_be_full(english, update, width):
    assert width in render.running(update, english)


def test_progress_tells_when_a_part_is_made_again(words):
    usual, redone = (render.running(Running(2.0, 3, 9.0, redone=redone), words) for redone in (False, True))
    assert words("running_redone") in redone
    assert words("running_redone") not in usual


def test_result_shows_what_was_measured(english):
    stats = RequestStats(5.0, 1.5, 0.3, 125, 1, warnings=(Notice("hostile", HOSTILE),))
    cut = Notice("clip_cut", "The best part was used.")
    html = render.figures(Result("id", Path("x.wav"), 5.0, 42, stats, 0.1, 0.4, 1.7, notices=(cut,)), english)
    assert cut.message in html
    assert all(f"<dd>{value}</dd>" in html for value in ("5.0 s", "0.40 s", "1.70 s", "0.30", "42"))
    assert HOSTILE not in html


def service(state, facts=None, problem=None, progress=None):
    return SimpleNamespace(client=SimpleNamespace(state=state, facts=facts, problem=problem, progress=progress))


def facts(demo):
    return EngineFacts("m", "s", "cpu", {}, {}, {}, 0.0, demo_voice=demo)


def test_banner_names_the_demo_voice_and_the_way_out(words):
    html = banner.banner(service("ready", facts(demo=True)), words)
    assert 'data-banner="demo"' in html
    assert "--model" in html


@pytest.mark.parametrize("demo", [True, False])
def test_banner_warns_of_a_failed_self_test(words, demo):
    reason = Notice.of("self_test_take", "Self-test: {reason}", device="cpu", reason=HOSTILE)
    told = replace(facts(demo=demo), self_test=SelfTest(1.0, reason))
    html = banner.banner(service("ready", told), words)
    assert 'data-banner="degraded"' in html
    assert escape(words.notice(reason)) in html
    assert HOSTILE not in html
    passed = replace(told, self_test=SelfTest(1.0, None, 0.7, 2.2))
    assert "degraded" not in banner.banner(service("ready", passed), words)


def test_no_banner_with_a_real_model(words):
    assert banner.banner(service("ready", facts(demo=False)), words) == ""


@pytest.mark.parametrize("state", ["starting", "restarting", "unloaded", "stopped"])
def test_every_other_state_has_its_banner(words, state):
    html = banner.banner(service(state), words)
    assert "banner" in html
    assert "progressbar" not in html
    assert words(f"engine_{state}") in banner.badge(service(state), words)


@pytest.mark.parametrize("stage", BEGINS)
def test_banner_tells_how_far_the_model_is_loaded(words, stage):
    html = banner.banner(service("starting", progress=LoadProgress(stage, 0.423)), words)
    assert escape(words(f"loading_{stage}")) in html
    assert 'aria-valuenow="42"' in html
    assert "width:42%" in html


def test_broken_banner_tells_the_reason_as_text(words):
    broken = service("broken", problem=CheckpointError("checkpoint_corrupt", HOSTILE))
    html = banner.banner(broken, words)
    assert "&lt;img" in html
    assert HOSTILE not in html


@pytest.mark.parametrize(
    ("amount", "text"),
    [(0, "0 B"), (1023, "1023 B"), (3 << 20, "3 MiB"), (3 << 29, "1.5 GiB"), (140 << 30, "140.0 GiB")],
)
def test_sizes(amount, text):
    assert pieces.size(amount) == text


@pytest.mark.parametrize(("amount", "text"), [(114_000, "114 k"), (14_460_000, "14.5 M"), (505_800_000, "506 M")])
def test_counts(amount, text):
    assert pieces.count(amount) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(42, "0:42"), (725.9, "12:05"), (11_045, "3:04:05"), (183_845, "2 d 3:04:05")]
)
def test_durations(seconds, text):
    assert pieces.duration(seconds) == text


@pytest.mark.parametrize(
    ("typed", "seed"),
    [("", None), ("  ", None), ("0", 0), (" 42 ", 42), ("-1", 1 << 31), ("1.5", 1 << 31), ("９", 1 << 31)],
)
def test_seed_field(typed, seed):
    assert _whole(typed) == seed


@pytest.mark.anyio
@pytest.mark.parametrize("address", ["http://127.0.0.1/x.wav", "https://example.org/x.wav", "ftp://example.org/x"])
async def test_an_address_in_place_of_a_clip_is_refused(address):
    with pytest.raises(gr.Error):
        await clip_input("clip").async_move_resource_to_block_cache(address)


def test_player_serves_the_file_where_it_lies(tmp_path):
    path = tmp_path / "take.wav"
    assert take_player().postprocess(str(path)).path == str(path)
