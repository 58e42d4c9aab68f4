"""The journal on the ops tab: pages, filters, order, and the file of what is shown."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gradio as gr
import pytest
from operators import ADMIN, HOSTILE, READER, Rights, asking

from cosyui.ops.journal import Journal, Page
from cosyui.ops.journal_file import COLUMNS, Filter, Row
from cosyui.ops.leaks import find_trends
from cosyui.settings import Settings
from cosyui.ui.guard import Guard
from cosyui.ui.i18n import Dictionary, Words, translations
from cosyui.ui.journal_table import OUTCOMES, PAGE_ROWS, View, journal_table, pager, trends
from cosyui.ui.ops_journal import OpsJournal

NOW = 1.7e9
MIB = 1 << 20
pytestmark = pytest.mark.anyio


def row(number: int, **changes: Any) -> Row:
    failed = number % 10 == 7
    usual: dict[str, Any] = {"mode": "instruct", "total": float(number), "page_rss_after": 170 * MIB}
    usual |= {"outcome": "failed" if failed else "done", "code": "out_of_memory" if failed else None}
    usual |= {"id": f"id-{number:04}", "client": "odd" if number % 2 else "even", "arrived": NOW + number}
    return Row(**(usual | changes))


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    made = Journal(tmp_path / "journal.sqlite", wall=lambda: NOW)
    for number in range(120):
        made.add(row(number))
    made.write()
    yield made
    made.close()


@pytest.fixture(params=["en", "zh"])
def words(request: pytest.FixtureRequest) -> Words:
    return Dictionary(Settings.load(environ={}))._words[request.param]


def read(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(path.read_text("utf-8").splitlines()))


class Shown:
    """The view of one browser session, as the last event left it."""

    def __init__(self, journal: Journal, session: str, **settings: Any) -> None:
        chosen = Settings.load(settings, {})
        service: Any = SimpleNamespace(rights=Rights(ops=chosen.ops), settings=chosen)
        with gr.Blocks():
            self.tab = OpsJournal(journal, Guard(service, Dictionary(chosen)), translations())
        self.request = asking(session)
        self.view, self.filters = View(), ("", "", "")
        self.update: tuple[Any, ...] = ()

    async def press(self, handler: Any, *more: str) -> list[str]:
        """The ids that are shown then."""
        self.update = await handler(self.view, *self.filters, *more, self.request)
        self.view = self.update[0]
        return re.findall(r"id-\d{4}", self.update[1])


async def test_pages_go_on_and_back(journal: Journal) -> None:
    shown = Shown(journal, READER)
    assert await shown.press(shown.tab.show) == [f"id-{n:04}" for n in range(119, 69, -1)]
    assert (shown.update[3].interactive, shown.update[4].interactive) == (False, True)
    await shown.press(shown.tab._turn_on)
    assert await shown.press(shown.tab._turn_on) == [f"id-{n:04}" for n in range(19, -1, -1)]
    assert "101–120 of 120" in shown.update[2]
    assert (shown.update[3].interactive, shown.update[4].interactive) == (True, False)
    assert (await shown.press(shown.tab._turn_back))[0] == "id-0069"


async def test_filters_begin_with_the_first_page_and_the_order_stays(journal: Journal) -> None:
    shown = Shown(journal, READER)
    await shown.press(shown.tab.show)
    await shown.press(shown.tab._sort, "total")
    assert (await shown.press(shown.tab._sort, "total"))[0] == "id-0000"
    await shown.press(shown.tab._turn_on)
    shown.filters = ("failed", "", "")
    assert await shown.press(shown.tab.show) == [f"id-{n:04}" for n in range(7, 120, 10)]
    shown.filters = ("", " out_of_memory ", "odd")
    assert len(await shown.press(shown.tab.show)) == 12
    shown.filters = ("done", "out_of_memory", "")
    assert await shown.press(shown.tab.show) == []
    assert [choice[1] for choice in shown.update[5].choices] == ["", "out_of_memory"]


async def test_one_who_does_not_see_the_tab_gets_nothing(journal: Journal) -> None:
    shown = Shown(journal, READER, ops="admin")
    update = await shown.tab.show(View(), "", "", "", shown.request)
    assert not any("id-" in str(part) for part in update)
    admin = Shown(journal, ADMIN, ops="admin")
    assert len(await admin.press(admin.tab.show)) == PAGE_ROWS


async def test_the_file_holds_the_filtered_rows_and_no_formula(journal: Journal, tmp_path: Path) -> None:
    journal.add(row(7, id="id-9999", client="=HYPERLINK(1)"))
    journal.write()
    shown = Shown(journal, ADMIN)
    shown.tab._file.GRADIO_CACHE = str(tmp_path / "temporary")
    steps = [step async for step in shown.tab._write(View(), "failed", "", "", shown.request)]
    path = Path(steps[-1][1])
    assert path.is_relative_to(tmp_path / "temporary")
    assert path.parent.parent == tmp_path / "temporary"
    rows = read(path)
    assert tuple(rows[0]) == COLUMNS
    assert len(rows) == 13
    assert {found["outcome"] for found in rows} == {"failed"}
    assert "'=HYPERLINK(1)" in {found["client"] for found in rows}


async def test_no_file_for_one_who_may_not(journal: Journal, tmp_path: Path) -> None:
    shown = Shown(journal, READER)
    shown.tab._file.GRADIO_CACHE = str(tmp_path / "temporary")
    steps = [step async for step in shown.tab._write(View(), "", "", "", shown.request)]
    assert steps[-1][1] is None
    assert "This is for admins" in steps[-1][0]
    assert not (tmp_path / "temporary").exists()


async def test_a_file_that_cannot_be_read_is_told(tmp_path: Path, words: Words) -> None:
    (tmp_path / "broken").write_bytes(b"no database" * 500)
    page = Journal(tmp_path / "broken").page()
    html = journal_table(page, View(), words)
    assert "not a database" in html
    assert "note-line" in html
    assert words("journal_none") in journal_table(Page(), View(), words)


def test_what_clients_and_files_say_stays_text(words: Words) -> None:
    hostile = row(1, id=HOSTILE, client=HOSTILE, outcome=HOSTILE, code=HOSTILE, mode=HOSTILE)
    html = journal_table(Page((hostile,), 1), View(), words)
    assert HOSTILE not in html
    assert html.count("&lt;img") == 5


def test_rows_are_in_words(words: Words) -> None:
    rows = tuple(row(n, outcome=outcome, mode="zero_shot") for n, outcome in enumerate(OUTCOMES))
    html = journal_table(Page(rows, 4), View(), words)
    assert all(words(f"outcome_{outcome}") in html for outcome in OUTCOMES)
    assert words("mode_zero_shot") in html
    assert ">170<" in html
    assert "2023-11-1" not in html
    assert re.search(r"11-1[345] \d\d:\d\d:\d\d", html)
    assert words("journal_device_peak") not in html
    with_gpu = (*rows, row(9, device_peak=5 << 30))
    assert words("journal_device_peak") in journal_table(Page(with_gpu, 5), View(), words)


def test_only_columns_that_are_shown_sort() -> None:
    view = View(Filter(outcome="done"), offset=50)
    assert view.sorted_by("rtf; DROP TABLE requests") == view
    assert view.sorted_by("total") == View(Filter(outcome="done"), "total")
    assert view.sorted_by("arrived").descending is False
    assert View().turned(-1).offset == 0


def test_the_head_tells_the_order(words: Words) -> None:
    page = Page((row(1),), 1)
    assert 'aria-sort="descending"><button type="button" data-pick="journal-sort" data-value="arrived"' in (
        journal_table(page, View(), words)
    )
    assert journal_table(page, View().sorted_by("total"), words).count("aria-sort") == 1


def test_how_memory_moves_is_told_when_there_are_rows_enough(words: Words) -> None:
    rows = [row(n, page_rss_after=170 * MIB + n * 2048) for n in range(60)]
    html = trends(find_trends(rows), words)
    assert words("trend_page_rss_after") in html
    assert "+2.0 KiB" in html
    assert words("trend_allocated_after") not in html
    assert trends(find_trends(rows[:20]), words) == ""
    two = [row(n, engine=n % 2, engine_rss_after=MIB) for n in range(100)]
    assert [trend.engine for trend in find_trends(two)] == [0, 1, None]


def test_the_pager_is_silent_without_rows(words: Words) -> None:
    assert pager(Page(), View(), words) == ""
    assert "51" in pager(Page((row(1),), 51), View(offset=50), words)
