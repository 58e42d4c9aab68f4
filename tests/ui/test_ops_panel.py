"""The ops tab's panel: each figure by itself, in both languages, with hostile names as text; and who may act there."""

from __future__ import annotations

import ast
import string
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import fields, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from operators import ADDRESS, ADMIN, HOSTILE, READER, Rights, asking

from cosyui.engine.request import EngineFacts, Mode, SelfTest
from cosyui.engine.self_test import Findings, verdict
from cosyui.notice import Notice
from cosyui.ops.leaks import Leak, Suspect
from cosyui.ops.monitor import MachineSample, ProcessSample
from cosyui.ops.nvml import THROTTLE_REASONS, GpuSample
from cosyui.ops.purge import PurgeResult
from cosyui.ops.sampler import Sample
from cosyui.ops.schedule import JobView
from cosyui.ops.vram import PARTS
from cosyui.service import remarks
from cosyui.service.soft_restart import Trim
from cosyui.service.types import Overview, QueueEntry
from cosyui.settings import Settings
from cosyui.ui.guard import Guard
from cosyui.ui.i18n import Dictionary, Words
from cosyui.ui.locales import zh, zh_panel
from cosyui.ui.ops import panel
from cosyui.ui.ops_actions import trimmed
from cosyui.ui.ops_purge import told

GIB = 1 << 30
GPU = GpuSample(
    "GPU-a",
    "Card",
    used=7 * GIB,
    total=24 * GIB,
    utilisation=83,
    temperature=71,
    memory_utilisation=34,
    power=310.4,
    power_limit=450.0,
    sm_clock=2520,
    memory_clock=10501,
    throttle=("power_cap", "thermal_by_software"),
)
SHOWN = {
    "utilisation": "83 %",
    "used": "7.0 GiB",
    "memory_utilisation": "34 %",
    "power": "310 W",
    "temperature": "71 °C",
    "sm_clock": "2520 MHz",
    "memory_clock": "10501 MHz",
    "throttle": "power limit, heat (software)",
}
LIMITS = {"total": "/ 24.0 GiB", "power_limit": "/ 450 W"}


@pytest.fixture(params=["en", "zh"])
def words(request: pytest.FixtureRequest) -> Words:
    return Dictionary(Settings.load(environ={}))._words[request.param]


@pytest.fixture
def english() -> Words:
    return Dictionary(Settings.load(environ={}))._words["en"]


def machine(*gpus: GpuSample) -> MachineSample:
    return MachineSample(ProcessSample(1, GIB, 3.0, 4), None, 16 * GIB, 8 * GIB, 25.0, 8, gpus)


def entry(number: int, **changes: Any) -> QueueEntry:
    usual = QueueEntry(f"id-{number}", "abcd1234", "waiting", 75.0, number, 12.3, 4.0, 0.0, Mode.ZERO_SHOT)
    return replace(usual, **changes)


def overview(*gpus: GpuSample, **changes: Any) -> Overview:
    empty: dict[str, Any] = dict.fromkeys((field.name for field in fields(Overview)), 0)
    empty |= {"engine": "ready", "problem": None, "facts": None, "stats": None, "rtf": None, "speed": None}
    empty |= dict.fromkeys(("engines", "running", "waiting", "problems", "leaks"), ())
    empty |= {"sample": Sample(0.0), "purge": JobView("purge", 3600.0), "machine": machine(*gpus)}
    return Overview(**(empty | changes))


def test_all_figures_of_a_gpu_are_shown(english: Words) -> None:
    html = panel(overview(GPU), english)
    assert [text for text in (*SHOWN.values(), *LIMITS.values()) if text not in html] == []
    assert 'data-card="gpu"' in html


@pytest.mark.parametrize("missing", SHOWN)
def test_a_figure_that_is_not_told_is_a_dash_and_the_others_stay(english: Words, missing: str) -> None:
    html = panel(overview(replace(GPU, **{missing: None})), english)
    shown = {name for name, text in SHOWN.items() if text in html}
    assert shown == SHOWN.keys() - {missing}


@pytest.mark.parametrize("missing", LIMITS)
def test_without_a_limit_there_is_the_figure_alone(english: Words, missing: str) -> None:
    html = panel(overview(replace(GPU, **{missing: None})), english)
    assert LIMITS[missing] not in html
    assert all(text in html for text in SHOWN.values())


def test_a_gpu_of_which_nothing_is_told_has_dashes_only(words: Words) -> None:
    gpu = panel(overview(GpuSample("GPU-a", "Card")), words).split('data-card="gpu"')[1].split("</section>")[0]
    assert gpu.count("<dd") == len(SHOWN)
    assert gpu.count("–</dd>") == len(SHOWN)


def test_every_reason_to_slow_down_has_words(words: Words) -> None:
    html = panel(overview(replace(GPU, throttle=tuple(THROTTLE_REASONS.values()))), words)
    assert all(words(f"throttle_{reason}") in html for reason in THROTTLE_REASONS.values())
    assert words("throttle_none") in panel(overview(replace(GPU, throttle=())), words)


def test_a_slice_and_a_lost_gpu_say_so(words: Words) -> None:
    assert words("gpu_slice") in panel(overview(replace(GPU, parent="GPU-b")), words)
    assert words("gpu_slice") not in panel(overview(GPU), words)
    assert words("gpu_lost") in panel(overview(GpuSample("GPU-a", "Card", lost=True)), words)


def test_without_a_gpu_there_are_cpu_and_memory_in_the_same_frames(words: Words) -> None:
    html = panel(overview(), words)
    assert words("ops_no_gpu") in html
    assert 'data-card="gpu"' not in html
    assert all(text in html for text in ("25 %", "8.0 GiB", "/ 16.0 GiB"))


def test_a_card_that_only_the_engine_knows_has_its_memory_in_parts(words: Words) -> None:
    vram = dict.fromkeys(PARTS, GIB)
    html = panel(overview(sample=Sample(0.0, vram={"gpu": vram})), words)
    assert words("gpu_untold") in html
    assert words("ops_no_gpu") not in html
    known = panel(overview(GPU, sample=Sample(0.0, vram={"GPU-a": vram})), words)
    assert known.count('data-card="gpu"') == 1
    assert words("gpu_untold") not in known


def test_each_take_can_be_cancelled_by_those_who_may(words: Words) -> None:
    shown = overview(running=(entry(0, state="running", eta_seconds=None),), waiting=(entry(1), entry(2, long=True)))
    html = panel(shown, words, may_cancel=True)
    assert [f'data-pick="cancel" data-value="id-{number}"' in html for number in range(4)] == [True, True, True, False]
    assert all(text in html for text in ("1:15", "13 s", "abcd1234", words("ops_long")))
    assert "data-pick" not in panel(shown, words)


def test_hostile_names_stay_text(words: Words) -> None:
    hostile = overview(
        replace(GPU, name=HOSTILE, throttle=()),
        waiting=(entry(1, id=f'"{HOSTILE}', client=HOSTILE),),
        problems=(remarks.not_started("journal", OSError(HOSTILE)),),
    )
    html = panel(hostile, words, may_cancel=True)
    assert HOSTILE not in html
    assert 'data-value="&quot;&lt;img' in html


def test_the_model_card_tells_of_the_self_test_and_what_runs_where(words: Words) -> None:
    usual = EngineFacts(
        "m", "s", "cpu", {}, {}, {}, 0.0, providers={"speech tokenizer": "CPU"}, versions={"torch": "2.99.1"}
    )
    reason = Notice.of("self_test_take", "Self-test: {reason}", device="cpu", reason=HOSTILE)
    html = panel(overview(facts=replace(usual, self_test=SelfTest(3.0, None, 0.714, 2.25))), words)
    assert all(text in html for text in ("speech tokenizer</i> CPU", "torch</i> 2.99.1", "0.71", "2.25"))
    assert words("self_test_passed", seconds=3.0) in html
    failed = panel(overview(facts=replace(usual, self_test=SelfTest(3.0, reason))), words)
    assert "&lt;img" in failed
    assert HOSTILE not in failed
    assert f"<dt>{words('ops_self_test')}</dt><dd>–</dd>" in panel(overview(facts=usual), words)


def failed_self_tests() -> list[Notice]:
    """One for each part that may be at fault."""
    good = Findings(agreement=0.7, likelihood=-4.0, gain=2.0, chance=-8.8)
    silent = replace(good, agreement=0.1, likeness=0.97)
    found = [
        (replace(good, gain=0.1), False),
        (silent, False),
        (replace(silent, likeness=0.3), False),
        (replace(silent, gain=0.1), False),
        (replace(silent, gain=0.1), True),
        (replace(good, failure="It fell silent."), False),
    ]
    verdicts = [verdict(findings, "cpu", untrained=untrained) for findings, untrained in found]
    return [reason for reason in verdicts if reason is not None]


def every_remark() -> list[Notice]:
    suspects = tuple(Suspect(code, "mode=x", 2e6, 1.0) for code in ("kind", "retries", "redone"))
    more = tuple(Suspect(code, "", 2e6, 1.0) for code in ("long_speech", "new_prompt"))
    columns = ("allocated_after", "reserved_after", "engine_rss_after", "page_rss_after")
    given = (suspects, more, (), suspects)
    leaks = [
        Leak(column, "Memory", 2e6, 1e6, 4e8, 200, some, number or None)
        for number, (column, some) in enumerate(zip(columns, given, strict=True))
    ]
    sampler: Any = SimpleNamespace(latest=Sample(0.0), machine_problem="x", disk_problem="x", service_fails=True)
    stale: Any = SimpleNamespace(
        latest=Sample(0.0, stale=True, machine_age=12.0), machine_problem=None, disk_problem=None, service_fails=False
    )
    journal: Any = SimpleNamespace(problem="x", path=Path("journal"), dropped=3)
    purges = (
        JobView("purge", 1.0, error="x"),
        JobView("purge", 1.0, result=PurgeResult(errors=1, over_quota=GIB, problems=["x"])),
    )
    return [
        *failed_self_tests(),
        *(remarks.not_started(part, OSError("x")) for part in ("journal", "sampler", "schedule")),
        remarks.uploads_kept(OSError("x")),
        remarks.sampler_crashed(OSError("x")),
        remarks.journal_unread("x"),
        remarks.batches_damaged(["x"]),
        remarks.batches_unread(Path("batches"), OSError("x")),
        remarks.voices_damaged(["x"]),
        remarks.voices_unread(Path("voices"), OSError("x")),
        remarks.history_failed(Path("history"), "x"),
        remarks.history_damaged(Path("history")),
        *(remark for source in (sampler, stale) for remark in remarks.of_sampler(source)),
        *remarks.of_journal(journal),
        *(remark for purge in purges for remark in remarks.of_purge(purge)),
        *(remark for leak in leaks for remark in remarks.of_leak(leak)),
    ]


def test_every_remark_has_a_chinese_sentence_with_its_values() -> None:
    chinese = Words("zh", {})
    for remark in every_remark():
        sentence = zh.NOTICES[remark.code]
        named = {name for _, name, _, _ in string.Formatter().parse(sentence) if name}
        assert named <= dict(remark.values).keys(), remark.code
        assert chinese.notice(remark) != remark.message
    assert zh_panel.REMARKS.keys() == {remark.code for remark in every_remark()}


def test_remarks_are_told_in_the_language_of_the_page(words: Words) -> None:
    found = tuple(every_remark())
    html = panel(overview(problems=found), words)
    assert all(f'data-notice="{remark.code}"' in html for remark in found)
    assert ("mode=x" in html, "does not run" in html) == (True, words.language == "en")


def test_the_purge_tells_what_was_kept_and_why(words: Words) -> None:
    kept = Counter(protected=2, young=7)
    dry = told(PurgeResult(dry_run=True, files=3, bytes=5 << 20, folders=1, kept=kept), words)
    wet = told(PurgeResult(files=3, bytes=5 << 20, folders=1, errors=1, problems=["a: no"]), words)
    assert dry.startswith(words("purge_would", files=3, size="5 MiB", folders=1))
    assert words("purge_kept_protected", count=2) in dry
    assert words("purge_kept_young", count=7) in dry
    assert wet.startswith(words("purge_did", files=3, size="5 MiB", folders=1))
    assert "a: no" in wet


def test_what_a_trim_freed_is_told(words: Words) -> None:
    sentence = trimmed(Trim({"unused": 4 << 20, "host": 1 << 20}, 0.7, engines=2), words)
    assert [part in sentence for part in ("5 MiB", "4 MiB", "1 MiB", "0.7")] == [True] * 4
    assert trimmed(Trim({}, 0.0, engines=0), words) == words("soft_restart_nobody")


# --- who may


def guard_of(rights: Rights) -> Guard:
    chosen = Settings.load({}, {})
    service: Any = SimpleNamespace(rights=rights, settings=chosen)
    return Guard(service, Dictionary(chosen))


@pytest.mark.parametrize(("ops", "reader_sees"), [("all", True), ("admin", False)])
def test_who_sees_the_contents(ops: str, reader_sees: bool) -> None:
    guard = guard_of(Rights(ops=ops))
    assert (guard.sees(asking(ADMIN)), guard.sees(asking(READER))) == (True, reader_sees)


@pytest.mark.anyio
async def test_nothing_is_done_for_one_who_may_not() -> None:
    rights, done = Rights(), []

    async def work(words: Words, value: str) -> AsyncIterator[str]:
        yield "at work"
        done.append(value)
        yield f"did {HOSTILE}"

    handler = guard_of(rights).action(work)
    refused = [html async for html in handler(asking(READER), "a")]
    assert done == []
    assert len(refused) == 1
    assert 'role="alert"' in refused[0]
    shown = [html async for html in handler(asking(ADMIN), "b")]
    assert done == ["b"]
    assert ["at work" in shown[0], "did &lt;img" in shown[1]] == [True, True]
    assert not any(HOSTILE in html for html in refused + shown)
    assert rights.checked == [(READER, ADDRESS), (ADMIN, ADDRESS)]


@pytest.mark.anyio
async def test_a_fault_of_an_action_is_a_sentence(caplog: pytest.LogCaptureFixture) -> None:
    async def work(words: Words) -> AsyncIterator[str]:
        yield "at work"
        raise ZeroDivisionError

    guard = guard_of(Rights())
    shown = [html async for html in guard.action(work)(asking(ADMIN))]
    assert guard.words(asking(ADMIN))("unexpected") in shown[-1]
    assert "action_failed" in caplog.text


def test_every_handler_of_the_tab_goes_through_the_guard() -> None:
    """Nothing else there asks the service for its rights, but the page for its login."""
    folder = Path(panel.__code__.co_filename).parent
    asks = {
        path.name
        for path in folder.glob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Attribute) and node.attr == "rights"
    }
    assert asks == {"guard.py", "page.py"}
