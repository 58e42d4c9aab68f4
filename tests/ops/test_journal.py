"""The request journal: what is written, asked for, kept, and what happens when its file is in trouble."""

import csv
import io
import random
import sqlite3
import threading
from dataclasses import astuple, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cosyui.ops import journal as journal_module
from cosyui.ops import journal_file, migrations, sqlite_file
from cosyui.ops.journal import FIRST_PAUSE, LONGEST_PAUSE, PRUNE_EVERY, Journal
from cosyui.ops.journal_file import COLUMNS, Filter, JournalFile, Row
from cosyui.ops.migrations import MIGRATIONS, NewerFileError, migrate

DAY = 86_400.0
NOW = 1_800_000_000.0


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def wall():
    wall = Clock()
    wall.now = NOW
    return wall


@pytest.fixture
def path(tmp_path):
    return tmp_path / "deep" / "journal.sqlite"


@pytest.fixture
def journal(path, clock, wall):
    """Not started: `write` is what its thread does."""
    journal = Journal(path, clock=clock, wall=wall)
    yield journal
    journal.close()


def row(number=0, **changes):
    return replace(Row(f"id-{number:04}", "page", NOW - 100 + number, "done", mode="zero_shot", rtf=0.5), **changes)


def ids(page):
    return [found.id for found in page.rows]


# --- migrations


def test_columns_are_those_of_a_row():
    connection = sqlite3.connect(":memory:")
    assert migrate(connection) == len(MIGRATIONS)
    assert migrate(connection) == 0
    columns = [name for _, name, *_ in connection.execute("PRAGMA table_info(requests)")]
    assert columns == ["number", *COLUMNS]


def test_a_migration_happens_as_a_whole_or_not_at_all():
    connection = sqlite3.connect(":memory:")
    good = "CREATE TABLE a (x TEXT DEFAULT ';');"
    with pytest.raises(sqlite3.OperationalError):
        migrate(connection, (good, "CREATE TABLE b (x); INSERT INTO missing VALUES (1);"))
    assert connection.execute("PRAGMA user_version").fetchone() == (1,)
    assert [name for (name,) in connection.execute("SELECT name FROM sqlite_master")] == ["a"]
    assert migrate(connection, (good, "CREATE TABLE b (x);")) == 1


def test_old_rows_survive_a_new_column(path, monkeypatch):
    JournalFile(path).write([row()])
    connection = sqlite3.connect(path)
    migrate(connection, (*MIGRATIONS, "ALTER TABLE requests ADD COLUMN colour TEXT;"))
    assert connection.execute("SELECT id, colour FROM requests").fetchall() == [("id-0000", None)]
    connection.close()
    with pytest.raises(NewerFileError, match=f"its format is {len(MIGRATIONS) + 1}"):
        JournalFile(path).write([row()])


# --- rows in and out


def test_a_row_comes_back_as_it_was(journal):
    full = Row(*(f"t{n}" if "str" in str(kind) else n + 1 for n, kind in enumerate(types())))
    full = replace(full, stream=True, long=False, arrived=NOW)
    journal.add(full)
    journal.add(Row("bare", "page", NOW, "rejected"))
    assert journal.write() is None
    page = journal.page(sort="id")
    assert (page.rows, page.total, page.problem) == ((full, Row("bare", "page", NOW, "rejected")), 2, None)
    assert isinstance(page.rows[0].stream, bool)
    assert journal.recent == (full, page.rows[1])


def types():
    return Row.__annotations__.values()


@pytest.mark.parametrize(
    ("chosen", "found"),
    [
        (Filter(), [3, 2, 1, 0]),
        (Filter(outcome="failed"), [2]),
        (Filter(client="api"), [3]),
        (Filter(code="out_of_memory"), [2]),
        (Filter(mode="instruct"), [1]),
        (Filter(since=NOW - 99), [3, 2, 1]),
        (Filter(until=NOW - 99), [0]),
        (Filter(text="d-0003"), [3]),
        (Filter(text="ap"), [3]),
        (Filter(text="%"), []),
        (Filter(outcome="' OR 1=1 --"), []),
        (Filter(outcome="", client="", text=""), [3, 2, 1, 0]),
    ],
)
def test_filters(journal, chosen, found):
    journal.add(row(0))
    journal.add(row(1, mode="instruct"))
    journal.add(row(2, outcome="failed", code="out_of_memory"))
    journal.add(row(3, client="api"))
    journal.write()
    page = journal.page(chosen)
    assert ids(page) == [f"id-{number:04}" for number in found]
    assert page.total == len(found)


def test_sorting_and_paging_with_unknown_values_last(journal):
    values = [3.0, None, 1.0, 2.0, None]
    for number, value in enumerate(values):
        journal.add(row(number, rtf=value))
    journal.write()
    assert [found.rtf for found in journal.page(sort="rtf").rows] == [3, 2, 1, None, None]
    assert [found.rtf for found in journal.page(sort="rtf", descending=False).rows] == [1, 2, 3, None, None]
    pages = [ids(journal.page(sort="rtf", limit=2, offset=offset)) for offset in (0, 2, 4, 6)]
    assert pages == [["id-0000", "id-0003"], ["id-0002", "id-0004"], ["id-0001"], []]
    assert journal.page(limit=10**9, offset=-5).total == 5
    assert journal.page(limit=-1).rows == ()


@pytest.mark.parametrize("sort", ["", "number; DROP TABLE requests", "rtf DESC", "rowid", "client --"])
def test_only_columns_sort(journal, sort):
    journal.add(row())
    journal.write()
    with pytest.raises(ValueError, match="no column"):
        journal.page(sort=sort)
    with pytest.raises(ValueError, match="no column"):
        journal.csv(sort=sort)


def test_every_column_sorts(journal):
    journal.add(row())
    journal.write()
    assert all(journal.page(sort=column).total == 1 for column in COLUMNS)


def test_an_empty_journal_is_an_empty_page(journal):
    assert journal.page().rows == ()
    assert journal.page().problem is None
    assert "".join(journal.csv()) == ",".join(COLUMNS) + "\r\n"


def test_csv_comes_in_pieces_and_is_no_program(journal, monkeypatch):
    monkeypatch.setattr(journal_file, "BATCH", 2)
    clients = ["=cmd|' /C calc'!A0", "+1", "-1", "@SUM(1)", "\tx", 'quo"te, and\nline', "plain"]
    for number, client in enumerate(clients):
        journal.add(row(number, client=client, rtf=-1.5))
    journal.write()
    pieces = list(journal.csv(Filter(mode="zero_shot"), "id", descending=False))
    assert len(pieces) == 1 + 4
    head, *lines = csv.reader(io.StringIO("".join(pieces), newline=""))
    assert tuple(head) == COLUMNS
    found = [dict(zip(head, line, strict=True)) for line in lines]
    assert [line["client"] for line in found] == [f"'{client}" for client in clients[:5]] + clients[5:]
    assert {line["rtf"] for line in found} == {"-1.5"}
    assert {line["code"] for line in found} == {""}


@given(st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1))
def test_no_text_of_a_row_begins_a_formula(text):
    assert journal_file._harmless(text)[0] not in "=+-@\t\r\n＝＋－＠"


# --- retention


def test_old_rows_and_too_many_rows_go(path, clock, wall):
    journal = Journal(path, most_rows=5, days=2, clock=clock, wall=wall)
    for number in range(8):
        journal.add(row(number, arrived=NOW - (3 * DAY if number == 6 else number)))
    journal.write()
    assert ids(journal.page(sort="id", descending=False)) == ["id-0003", "id-0004", "id-0005", "id-0007"]
    journal.add(row(9))
    journal.write()
    assert journal.page().total == 5  # looked at again an hour later only
    for number in (10, 11):
        journal.add(row(number))
    clock.now += PRUNE_EVERY
    journal.write()
    assert ids(journal.page(sort="id", descending=False)) == ["id-0007", "id-0009", "id-0010", "id-0011"]
    journal.close()


@pytest.mark.parametrize("days", [2, -2, 2000])
def test_a_clock_that_jumps_makes_no_row_old(path, clock, wall, days):
    journal = Journal(path, days=1, clock=clock, wall=wall)
    journal.add(row())
    journal.write()
    wall.now += days * DAY
    clock.now += PRUNE_EVERY
    journal.add(row(1, arrived=wall.now))
    journal.write()
    assert journal.page().total == 2
    journal.close()


# --- trouble


def test_a_locked_file_costs_no_row(journal, path, clock, monkeypatch):
    monkeypatch.setattr(sqlite_file, "BUSY_SECONDS", 0.0)
    journal.add(row(0))
    journal.write()
    other = sqlite3.connect(path)
    other.execute("BEGIN EXCLUSIVE")
    for number in range(1, 4):
        journal.add(row(number))
    assert journal.write() > FIRST_PAUSE
    assert "locked" in journal.problem
    assert journal.waiting == 3
    assert journal.write() == FIRST_PAUSE  # not tried again before its time
    for _ in range(20):
        clock.now += LONGEST_PAUSE
        assert journal.write() <= LONGEST_PAUSE
    other.rollback()
    other.close()
    clock.now += LONGEST_PAUSE
    assert journal.write() is None
    assert (journal.problem, journal.waiting, journal.dropped) == (None, 0, 0)
    assert ids(journal.page(sort="id", descending=False)) == [f"id-{number:04}" for number in range(4)]


def test_a_full_disk_costs_no_row_that_fits_into_memory(path, clock, wall, monkeypatch):
    journal = Journal(path, backlog=10, clock=clock, wall=wall)
    journal.add(row(0))
    journal.write()
    write, full = JournalFile.write, True

    def failing(self, rows):
        if full:
            raise sqlite3.OperationalError("database or disk is full")
        write(self, rows)

    monkeypatch.setattr(JournalFile, "write", failing)
    for number in range(1, 31):
        journal.add(row(number))
    journal.write()
    assert (journal.waiting, journal.dropped) == (10, 20)
    assert "full" in journal.problem
    full = False
    clock.now += LONGEST_PAUSE
    assert journal.write() is None
    assert ids(journal.page(sort="id", descending=False)) == ["id-0000", *(f"id-{n:04}" for n in range(21, 31))]
    assert len(journal.recent) == 31


def test_a_really_full_file(journal, path, clock):
    journal.add(row(0))
    journal.write()
    connection = journal._file._connection
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    connection.execute(f"PRAGMA max_page_count = {pages}")
    for number in range(1, 200):
        journal.add(row(number))
    assert journal.write() is not None
    assert "full" in journal.problem
    clock.now += LONGEST_PAUSE
    assert journal.write() is None  # a new connection, without the limit
    assert journal.page().total == 200


@pytest.mark.parametrize("damage", ["rubbish", "middle"])
def test_a_damaged_file_is_moved_aside_and_a_new_one_begun(path, clock, wall, damage):
    journal = Journal(path, clock=clock, wall=wall)
    for number in range(300):
        journal.add(row(number))
    journal.write()
    journal.close()
    data = bytearray(path.read_bytes())
    start = 0 if damage == "rubbish" else 4096
    data[start:] = random.Random(0).randbytes(len(data) - start)
    path.write_bytes(data)
    journal = Journal(path, clock=clock, wall=wall)
    journal.add(row(1000))
    journal.page()
    journal.write()
    journal.add(row(1001))
    journal.write()
    assert ids(journal.page(sort="id")) == ["id-1001", "id-1000"]
    assert [file.name for file in path.parent.iterdir() if "damaged" in file.name] == ["journal.sqlite.damaged-1"]
    assert (journal.problem, journal.dropped) == (None, 0)
    journal.close()


def test_a_disk_that_damages_every_file_is_given_a_rest(journal, path, clock, monkeypatch):
    def failing(self, rows):
        self.path.parent.mkdir(exist_ok=True)
        self.path.write_bytes(b"no database at all" * 500)
        with sqlite3.connect(self.path) as connection:
            connection.execute("SELECT * FROM requests")

    monkeypatch.setattr(JournalFile, "write", failing)
    journal.add(row())
    for _ in range(10):
        assert journal.write() is not None
        clock.now += LONGEST_PAUSE
    assert (journal.waiting, journal.dropped) == (1, 0)
    assert len([file for file in path.parent.iterdir() if "damaged" in file.name]) == sqlite_file.DAMAGED_FILES


def test_a_file_of_a_later_version_is_left_alone(journal, path):
    path.parent.mkdir()
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    journal.add(row())
    journal.write()
    assert "its format is 99" in journal.problem
    assert journal.waiting == 1
    assert sorted(file.name for file in path.parent.iterdir()) == ["journal.sqlite"]


def test_a_file_that_is_deleted_meanwhile_is_made_again(journal, path):
    journal.add(row(0))
    journal.write()
    for file in path.parent.iterdir():
        file.unlink()
    path.parent.rmdir()
    journal.add(row(1))
    assert journal.write() is None
    assert ids(journal.page()) == ["id-0001"]


def test_a_folder_that_cannot_be_written_is_a_problem_not_an_error(tmp_path, clock):
    (tmp_path / "file").touch()
    journal = Journal(tmp_path / "file" / "journal.sqlite", clock=clock)
    journal.add(row())
    assert journal.write() > 0
    assert "Not a directory" in journal.problem or "exists" in journal.problem
    assert journal.page().rows == ()
    journal.close()
    assert journal.waiting == 1


@pytest.mark.parametrize(
    "changes", [{"speech_tokens": 1 << 70}, {"client": "\udc80"}, {"code": object()}, {"arrived": float("nan")}]
)
def test_a_row_that_cannot_be_written_takes_no_other_down(journal, changes):
    journal.add(row(0))
    journal.add(row(1, **changes))
    journal.add(row(2))
    assert journal.write() is None
    assert ids(journal.page()) == ["id-0002", "id-0000"]
    assert (journal.dropped, journal.waiting) == (1, 0)


def test_reading_a_damaged_file_is_told(journal, path):
    journal.add(row(0))
    journal.write()
    journal._file.close()
    path.write_bytes(b"no database at all" * 500)
    assert "not a database" in journal.page().problem
    journal.write()
    assert journal.page().problem is None


def test_rows_are_written_in_the_background_and_the_last_ones_at_the_end(path):
    journal = Journal(path)
    journal.start()
    threads = [threading.Thread(target=lambda n=n: [journal.add(row(100 * n + i)) for i in range(100)]) for n in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    journal.close(timeout=60)
    assert journal.waiting == 0
    assert len(set(ids(Journal(path).page(limit=500)))) == 200


def test_without_a_thread_all_rows_are_written_at_the_end(path, monkeypatch):
    def start(thread):
        raise RuntimeError("can't start new thread")

    journal = Journal(path)
    with monkeypatch.context() as scarce:
        scarce.setattr(threading.Thread, "start", start)
        with pytest.raises(RuntimeError):
            journal.start()
    journal.add(row())
    journal.close()
    assert Journal(path).page().total == 1


def test_a_crash_of_the_writer_is_not_its_end(path, monkeypatch):
    calls = []
    seen = threading.Event()

    def write(self):
        calls.append(1)
        if len(calls) < 3:
            raise RuntimeError("a bug")
        seen.set()

    monkeypatch.setattr(journal_module.Journal, "write", write)
    monkeypatch.setattr(journal_module, "FIRST_PAUSE", 0.0)
    journal = Journal(path)
    journal.start()
    assert seen.wait(60)
    journal.close(60)


def test_figures_only():
    """No column could hold what was said."""
    names = set(COLUMNS)
    assert not names & {"text", "transcript", "instruction", "audio", "path", "prompt"}
    assert astuple(row())[0] == "id-0000"
    assert migrations.MIGRATIONS[0].count("TEXT") == 6
