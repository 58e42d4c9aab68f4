"""The history of takes: whose it is, what is kept with a take, what the purge leaves alone, and files in trouble."""

import logging
import os
import sqlite3
import stat
from pathlib import Path

import pytest

from cosyui.engine.request import Mode, RequestStats
from cosyui.errors import CosyuiError
from cosyui.notice import Notice
from cosyui.ops import sqlite_file
from cosyui.ops.purge import FRESH_SECONDS, SETTLE_SECONDS, Folder, Purge
from cosyui.service import history_store
from cosyui.service.history import History
from cosyui.service.in_use import InUse
from cosyui.service.outputs import OutputStore
from cosyui.service.types import Done, Result, TakeForm
from cosyui.settings import Settings

pytestmark = pytest.mark.anyio
ANN, BOB = "user:ann", "browser:00112233445566778899aabbccddeeff"
NOW, HOUR, DAY = 1_800_000_000.0, 3600.0, 86_400.0
CLIP, OTHER = b"the bytes of a clip" * 100, b"those of another" * 100


class Home:
    """A history with outputs, on a clock of its own. ``again`` is what the next start makes of the same files."""

    def __init__(self, folder, **settings):
        self.folder, self.seconds, self.count = folder, 1000.0, 0
        given = {"outputs_dir": folder / "outputs", "journal": folder / "journal.sqlite"}
        self.settings = Settings.load(given | settings, {})
        self.outputs = OutputStore(self.settings.outputs_dir)
        self.outputs.check()
        self.path = self.settings.history_path
        self.clips = folder / "history-clips"
        self.again()

    def again(self):
        self.in_use, self.forgotten = InUse(), []
        wall = self.wall = lambda: self.seconds + NOW - 1000
        self.history = History(
            self.settings, self.outputs, self.in_use, self.forgotten.append, clock=lambda: self.seconds, wall=wall
        )
        self.history.start()
        return self.history

    async def take(self, text="Some words.", owner=ANN, clip=CLIP, voice="", **changes):
        """A take that was made now; its result."""
        self.count += 1
        self.seconds += 1
        result_path = self.outputs.root / "2026-11-01" / f"120000-{self.count:08x}.wav"
        result_path.parent.mkdir(exist_ok=True)
        result_path.write_bytes(bytes(1000))
        os.utime(result_path, (self.wall(), self.wall()))
        stats = RequestStats(2.0, 1.0, 0.5, 50, 1, warnings=(Notice.of("length_short", "{part} is short", part=1),))
        result = Result(result_path.stem, result_path, 2.0, 7, stats, 0.0, 0.5, 1.0)
        form = TakeForm(**{"text": text, "clip": clip, "transcript": "What it says."} | changes)
        self.history.add(owner, form, result, voice)
        await self.history.settled()
        return result

    def texts(self, owner=ANN, *given, **options):
        return [shown.take.text for shown in self.history.page(owner, *given, **options).takes]

    def purge(self, **options):
        """Everything that it may delete at this time is deleted."""
        purge = Purge(
            [Folder(self.outputs.root, **options)], self.in_use, clock=lambda: self.seconds, wall=lambda: self.wall()
        )
        self.seconds += SETTLE_SECONDS
        purge.run()

    def kept(self):
        return sorted(path.name for path in self.clips.iterdir()) if self.clips.exists() else []


@pytest.fixture
def home(tmp_path):
    return Home(tmp_path)


def code_of(call, *given):
    with pytest.raises(CosyuiError) as caught:
        call(*given)
    return caught.value.code


async def test_takes_are_listed_from_the_newest_on_a_page_at_a_time(home):
    for number in range(7):
        await home.take(f"Take {number}")
    page = home.history.page(ANN, limit=3)
    assert ([shown.take.text for shown in page.takes], page.total) == (["Take 6", "Take 5", "Take 4"], 7)
    assert home.texts(limit=3, offset=3) == ["Take 3", "Take 2", "Take 1"]
    last = home.history.page(ANN, limit=3, offset=900)
    assert ([shown.take.text for shown in last.takes], last.offset) == (["Take 0"], 6)
    assert home.history.page(ANN, limit=3, offset=-5).offset == 0


async def test_a_take_is_found_by_a_part_of_its_text(home):
    for text in ("ÄPFEL und Birnen", "100 % of it", "明天早上六点半开船", "100 of it"):
        await home.take(text)
    assert home.texts(ANN, "äpfel") == ["ÄPFEL und Birnen"]
    assert home.texts(ANN, "0 %") == ["100 % of it"]
    assert home.texts(ANN, " 早上 ") == ["明天早上六点半开船"]
    assert home.texts(ANN, "' OR 1 --") == []


async def test_all_that_a_take_was_made_of_is_kept(home):
    changes = {"mode": Mode.INSTRUCT, "instruction": "Softly.", "speed": 1.25, "language": "en"}
    result = await home.take("  As it was typed.\n", **changes)
    shown = home.again().find(ANN, result.id)
    take = shown.take
    assert (take.text, take.mode, take.instruction, take.speed) == ("  As it was typed.\n", "instruct", "Softly.", 1.25)
    assert (take.transcript, take.language, take.seed, take.made) == ("What it says.", "en", 7, home.wall())
    assert (take.seconds, take.first_chunk, take.total, take.rtf) == (2.0, 0.5, 1.0, 0.5)
    assert "length_short" in take.notices
    assert home.history.clip(take) == CLIP
    assert shown.file == result.path.resolve()


async def test_a_chosen_voice_is_kept_by_its_name_and_its_clip_is_not(home):
    result = await home.take(voice="voice_123")
    take = home.history.find(ANN, result.id).take
    assert (take.voice, take.clip, home.history.clip(take), home.kept()) == ("voice_123", "", None, [])


async def test_nobody_sees_or_touches_what_is_another_owners(home):
    mine, his = await home.take("Mine"), await home.take("His", BOB)
    assert (home.texts(ANN), home.texts(BOB)) == (["Mine"], ["His"])
    for call in (home.history.find, home.history.remove):
        assert code_of(call, ANN, his.id) == "history_gone"
    assert code_of(home.history.favour, ANN, his.id, True) == "history_gone"
    assert home.history.remove_all(ANN) == 1
    assert (mine.path.exists(), his.path.exists(), home.texts(BOB)) == (False, True, ["His"])


async def test_files_are_for_the_server_alone_and_name_no_owner(home, caplog):
    with caplog.at_level(logging.DEBUG, "cosyui"):
        await home.take("A secret sentence")
        files = [path for path in home.folder.rglob("history*") if path.is_file()] + list(home.clips.iterdir())
        assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}
        assert stat.S_IMODE(home.clips.stat().st_mode) == 0o700
        everything = b"".join(path.read_bytes() for path in files)
        assert b"A secret sentence" in everything
        assert ANN.encode() not in everything
        home.history.remove_all(ANN)
    assert "secret" not in caplog.text
    left = b"".join(path.read_bytes() for path in home.folder.rglob("history*") if path.is_file())
    assert b"A secret sentence" not in left


async def test_a_clip_is_kept_once_and_goes_with_its_last_take(home):
    first, second = await home.take(), await home.take(owner=BOB)
    await home.take(clip=OTHER)
    assert len(home.kept()) == 2
    clip = home.history.find(ANN, first.id).take.clip
    home.history.remove(ANN, first.id)
    assert (clip in home.kept(), home.forgotten) == (True, [])
    home.history.remove(BOB, second.id)
    assert (clip in home.kept(), home.forgotten) == (False, [clip])
    assert not first.path.exists()
    home.history.remove_all(ANN)
    assert home.kept() == []


async def test_a_clip_that_is_gone_or_is_not_what_was_kept_is_none(home):
    result = await home.take(clip=home.folder / "cleaned-up.wav")
    assert home.history.find(ANN, result.id).take.clip == ""
    other = home.history.find(ANN, (await home.take()).id).take
    (home.clips / other.clip).write_bytes(b"something else")
    assert home.history.clip(other) is None
    await home.take()
    assert home.history.clip(other) == CLIP


async def test_favourites_survive_the_purge_also_beyond_the_quota_and_after_a_restart(home):
    kept, plain = await home.take("kept"), await home.take("plain")
    home.history.favour(ANN, kept.id, True)
    assert home.texts(favourites=True) == ["kept"]
    home.seconds += 2 * DAY
    home.purge(max_age=DAY, quota=1)
    assert (kept.path.exists(), plain.path.exists()) == (True, False)
    home.again()
    home.purge(max_age=DAY, quota=1)
    assert kept.path.exists()
    home.history.favour(ANN, kept.id, False)
    home.purge(max_age=DAY)
    assert not kept.path.exists()


async def test_a_new_favourite_is_safe_from_a_quota_that_others_exceed(home):
    takes = [await home.take() for _ in range(4)]
    home.history.favour(ANN, takes[0].id, True)
    home.seconds += FRESH_SECONDS + 1
    home.purge(quota=2000)
    assert [take.path.exists() for take in takes] == [True, False, False, True]


async def test_a_take_whose_file_was_cleaned_up_can_still_be_used_again(home):
    result = await home.take("Once more")
    home.seconds += 2 * DAY
    home.purge(max_age=DAY)
    (shown,) = home.history.page(ANN).takes
    assert (shown.file, shown.take.text, shown.take.seed) == (None, "Once more", 7)
    assert home.history.clip(shown.take) == CLIP
    home.history.remove(ANN, result.id)
    assert home.texts() == []


async def test_a_path_in_the_file_leads_nowhere_but_to_takes(home):
    result = await home.take()
    outside = home.folder / "precious.wav"
    outside.write_bytes(b"x")
    with sqlite3.connect(home.path) as connection:
        connection.execute("UPDATE takes SET path = '../precious.wav'")
    assert home.history.find(ANN, result.id).file is None
    home.history.remove(ANN, result.id)
    assert outside.exists()


async def test_old_and_too_many_takes_are_forgotten_but_no_favourites(tmp_path):
    home = Home(tmp_path, history_rows=10, history_days=5)
    star = await home.take("star", clip=OTHER)
    home.history.favour(ANN, star.id, True)
    for number in range(15):
        await home.take(str(number))
    assert home.texts() == [str(number) for number in range(14, 4, -1)] + ["star"]
    home.seconds += 5 * DAY + 1
    home.history.prune()
    assert home.texts() == ["star"]
    assert len(home.kept()) == 1
    assert star.path.exists()


async def test_a_clock_that_is_set_forward_forgets_nothing(home, monkeypatch):
    await home.take()
    monkeypatch.setattr(home.history, "_wall", lambda: NOW + 400 * DAY)
    home.history.prune()
    assert len(home.texts()) == 1


async def test_clips_have_a_bound_of_their_own(home, monkeypatch):
    monkeypatch.setattr(history_store, "MOST_CLIP_BYTES", 5000)
    star = await home.take("star", clip=b"s" * 2000)
    home.history.favour(ANN, star.id, True)
    for number in range(5):
        await home.take(str(number), clip=bytes([number]) * 1500)
    assert home.texts() == ["4", "3", "star"]
    assert sum((home.clips / name).stat().st_size for name in home.kept()) == 5000


async def test_favourites_have_a_bound(tmp_path):
    home = Home(tmp_path, history_rows=10, history_favourites=3)
    mine = [await home.take() for _ in range(4)]
    his = [await home.take(owner=BOB) for _ in range(3)]
    for take in mine[:3]:
        home.history.favour(ANN, take.id, True)
    assert code_of(home.history.favour, ANN, mine[3].id, True) == "favourites_full"
    home.history.favour(ANN, mine[0].id, True)
    for take in his[:2]:
        home.history.favour(BOB, take.id, True)
    assert code_of(home.history.favour, BOB, his[2].id, True) == "favourites_full"


async def test_what_nobody_uses_is_swept_once_it_is_old(home):
    await home.take()
    (home.clips / ("0" * 64)).write_bytes(b"left by a crash")
    (home.clips / ".new-1").write_bytes(b"half")
    (home.clips / "readme").write_bytes(b"somebody else's")
    os.utime(home.clips / ("0" * 64), (NOW - 100 * DAY, NOW - 100 * DAY))
    home.history.prune()
    assert len(home.kept()) == 2
    assert "readme" in home.kept()


@pytest.mark.parametrize("start", [0, 4096])
async def test_a_damaged_file_is_put_aside_and_a_new_one_begun(home, start):
    for number in range(40):
        await home.take(f"{number} of the old file")
    await home.history.close()
    data = home.path.read_bytes()
    home.path.write_bytes(data[:start] + b"rubbish!" * ((len(data) - start) // 8))
    home.again()
    await home.take("new")
    assert home.texts() == ["new"]
    assert [problem.code for problem in home.history.problems] == ["history_damaged"]
    assert home.path.with_name("history.sqlite.damaged-1").exists()


async def test_a_file_that_cannot_be_read_protects_every_take_and_is_told(home, monkeypatch):
    monkeypatch.setattr(sqlite_file, "BUSY_SECONDS", 0.0)
    star, plain = await home.take("star"), await home.take("plain")
    home.history.favour(ANN, star.id, True)
    await home.history.close()
    lock = sqlite3.connect(home.path, isolation_level=None)
    lock.execute("PRAGMA locking_mode = EXCLUSIVE")
    lock.execute("BEGIN EXCLUSIVE")
    home.again()
    home.seconds += 2 * DAY
    home.purge(max_age=DAY)
    assert (star.path.exists(), plain.path.exists()) == (True, True)
    assert [problem.code for problem in home.history.problems] == ["history_failed"]
    assert code_of(home.history.page, ANN) == "history_failed"
    lock.close()
    assert home.texts() == ["plain", "star"]
    assert home.history.problems == ()
    home.purge(max_age=DAY)
    assert (star.path.exists(), plain.path.exists()) == (True, False)


async def test_a_file_of_a_later_version_is_left_alone(home):
    with sqlite3.connect(home.path) as connection:
        connection.execute("PRAGMA user_version = 99")
    await home.take()
    assert [problem.code for problem in home.history.problems] == ["history_failed"]
    with sqlite3.connect(home.path) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (99,)
        assert connection.execute("SELECT name FROM sqlite_master").fetchall() == []
    assert home.kept() == []


async def test_what_cannot_be_deleted_is_listed_still(home, monkeypatch):
    result = await home.take()

    def refuse(*_, **__):
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", refuse)
        assert code_of(home.history.remove, ANN, result.id) == "history_not_deleted"
    assert (home.texts(), result.path.exists()) == (["Some words."], True)
    home.history.remove(ANN, result.id)
    assert home.texts() == []


async def made(service, form, owner=ANN):
    ticket = await service.submit(form)
    asked = ticket._job.request
    last = [update async for update in ticket.updates()][-1]
    assert isinstance(last, Done)
    service.history.add(owner, form, last.result)
    await service.history.settled()
    return asked, last.result


async def test_a_take_that_is_used_again_asks_the_engine_for_the_same(fake_service, new_clip):
    async with fake_service() as service:
        clip = new_clip()
        first, result = await made(service, TakeForm("Hello there.", clip=clip, transcript="Words.", speed=1.1))
        take = service.history.find(ANN, result.id).take
        form = TakeForm(
            take.text,
            Mode(take.mode),
            service.history.clip(take),
            take.transcript,
            take.instruction,
            take.speed,
            take.seed,
            language=take.language,
        )
        second, _ = await made(service, form)
        for field in ("text", "mode", "seed", "instruction", "language", "speed", "long"):
            assert getattr(first, field) == getattr(second, field)
        assert first.prompt.key == second.prompt.key
        assert first.prompt.transcript == second.prompt.transcript
        assert service.history.page(ANN).total == 2
        assert service.history.remove_all(ANN) == 2
        assert not result.path.exists()
        assert clip not in [
            path.read_bytes() for path in service.settings.outputs_dir.parent.rglob("*") if path.is_file()
        ]


async def test_trouble_with_the_history_is_told_and_reaches_no_take(fake_service, form, tmp_path):
    (tmp_path / "here").mkdir()
    async with fake_service(history_file=tmp_path / "here") as service:
        _, result = await made(service, form())
        assert result.path.exists()
        assert "history_failed" in [problem.code for problem in service.overview().problems]
        assert code_of(service.history.page, ANN) == "history_failed"


async def test_switched_off_it_stores_nothing(fake_service, form, tmp_path):
    async with fake_service(history=False) as service:
        assert service.history is None
        ticket = await service.submit(form())
        assert isinstance([update async for update in ticket.updates()][-1], Done)
    assert not list(tmp_path.rglob("history*"))
