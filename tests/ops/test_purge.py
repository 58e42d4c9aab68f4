"""What the purge deletes, and above all what it does not."""

import errno
import os
import threading
from collections import Counter
from datetime import datetime
from pathlib import Path, PurePath

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cosyui.ops import purge as purge_module
from cosyui.ops.purge import FRESH_SECONDS, SETTLE_SECONDS, Folder, Purge, is_anything, is_take
from cosyui.ops.sightings import Sightings, steady_clock
from cosyui.service.outputs import OutputStore
from cosyui.speech.sound.audio_out import WavWriter

HOUR, DAY = 3600.0, 86_400.0
NOW = 1_800_000_000.0


class Clocks:
    """A steady one and one on the wall; ``jump`` is somebody setting the time."""

    def __init__(self):
        self.seconds, self.offset = 1000.0, NOW - 1000

    def steady(self):
        return self.seconds

    def wall(self):
        return self.seconds + self.offset

    def jump(self, seconds):
        self.offset += seconds


@pytest.fixture
def clocks():
    return Clocks()


@pytest.fixture
def root(tmp_path):
    root = tmp_path / "outputs"
    root.mkdir()
    return root


class House:
    """Files below a root, with ages; ``purge`` makes the object under test, past its first minute."""

    def __init__(self, root, clocks):
        self.root, self.clocks, self.protected = root, clocks, set()

    def file(self, name, age=0.0, size=10):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x" * size)
        time = self.clocks.wall() - age
        os.utime(path, (time, time))
        for folder in path.parents[: len(path.relative_to(self.root).parts) - 1]:
            os.utime(folder, (time, time))
        return path

    def take(self, number, age=0.0, size=10, day="2026-11-01"):
        return self.file(f"{day}/120000-{number:08x}.wav", age, size)

    def purge(self, settled=True, **options):
        purge = Purge([Folder(self.root, **options)], lambda: self.protected, clock=self.clocks.steady, wall=self.wall)
        if settled:
            self.clocks.seconds += SETTLE_SECONDS
        return purge

    def wall(self):
        return self.clocks.wall()

    def names(self):
        return sorted(str(path.relative_to(self.root)) for path in self.root.rglob("*") if not path.is_dir())


@pytest.fixture
def house(root, clocks):
    return House(root, clocks)


def test_exact_survivors_of_a_mixed_folder(house, root, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious.wav").write_bytes(b"x")
    old = 25 * HOUR
    gone = [house.take(1, old), house.take(2, 300 * DAY), house.file("2026-11-01/.120000-00000003.abc.part", 2 * HOUR)]
    kept = [
        house.take(4, 23 * HOUR),
        house.file("2026-11-01/.120000-00000005.abc.part", 0.5 * HOUR),
        house.file("2026-11-01/notes.txt", old),
        house.file("readme.txt", old),
        house.file("120000-00000006.wav", old),
        house.file("private/120000-00000007.wav", old),
        house.file("2026-11-01/deep/120000-00000008.wav", old),
    ]
    saved, running = house.take(9, old), house.take(10, old)
    partial = house.file("2026-11-01/.120000-0000000b.abc.part", 5 * HOUR)
    house.protected = {saved, running, root / "2026-11-01/120000-0000000b.wav"}
    link = root / "2026-11-01" / "120000-0000000c.wav"
    link.symlink_to(outside / "precious.wav")
    folder_link = root / "2026-11-02"
    folder_link.symlink_to(outside)
    inner_link = root / "2026-11-01" / "latest"
    inner_link.symlink_to(outside)
    for path in (link, folder_link, inner_link):
        os.utime(path, (NOW - old, NOW - old), follow_symlinks=False)
    result = house.purge().run()
    assert house.names() == sorted(str(p.relative_to(root)) for p in [*kept, saved, running, partial])
    assert (outside / "precious.wav").exists()
    assert not any(path.exists() for path in gone)
    assert (result.files, result.errors) == (len(gone) + 3, 0)
    assert result.kept == Counter(young=2, foreign=5, protected=3)
    assert result.bytes > 30


def test_a_link_in_the_place_of_a_folder_leads_nowhere(house, root, tmp_path):
    outside = tmp_path / "outside" / "2026-11-01"
    outside.mkdir(parents=True)
    victim = outside / "120000-00000001.wav"
    victim.write_bytes(b"x")
    os.utime(victim, (1, 1))
    house.take(1, 25 * HOUR)

    def exchange():
        if not (root / "2026-11-01").is_symlink():
            (root / "2026-11-01").rename(root / "moved")
            (root / "2026-11-01").symlink_to(outside)
        return ()

    purge = Purge([Folder(root)], exchange, clock=house.clocks.steady, wall=house.wall)
    house.clocks.seconds += SETTLE_SECONDS
    result = purge.run()
    assert victim.exists()
    assert (result.files, result.errors) == (0, 1)


def test_a_root_that_is_a_link_itself_is_the_users_wish(house, root, tmp_path):
    take = house.take(1, 25 * HOUR)
    saved = house.take(2, 25 * HOUR)
    link = tmp_path / "link"
    link.symlink_to(root)
    purge = Purge(
        [Folder(link)], lambda: {link / "2026-11-01" / saved.name}, clock=house.clocks.steady, wall=house.wall
    )
    house.clocks.seconds += SETTLE_SECONDS
    purge.run()
    assert (take.exists(), saved.exists()) == (False, True)


def test_dry_run_says_what_would_be_and_does_nothing(house, root):
    house.take(1, 25 * HOUR)
    house.take(2, 25 * HOUR, day="2026-10-01")
    house.take(3, 2 * HOUR, size=100)
    purge = house.purge(quota=50)
    planned = purge.run(dry_run=True)
    assert len(house.names()) == 3
    done = purge.run()
    assert (planned.files, planned.bytes, planned.folders, planned.kept) == (3, 120, 2, Counter())
    assert (done.files, done.bytes, done.folders, done.kept) == (3, 120, 2, Counter())
    assert (planned.dry_run, done.dry_run) == (True, False)
    assert list(root.iterdir()) == []


def test_empty_folders_go_but_not_todays_nor_foreign_ones(house, root, clocks):
    today = f"{datetime.fromtimestamp(clocks.wall()).astimezone():%Y-%m-%d}"
    for name in (today, "2026-10-01", "private", "2026-10-02"):
        (root / name).mkdir()
        os.utime(root / name, (NOW - DAY, NOW - DAY))
    os.utime(root / "2026-10-02", (NOW, NOW))  # somebody may be about to write into it
    result = house.purge().run()
    assert sorted(path.name for path in root.iterdir()) == sorted([today, "2026-10-02", "private"])
    assert result.folders == 1


def test_a_quota_takes_the_oldest_first_and_nothing_fresh_or_in_use(house, root):
    takes = [house.take(number, (10 - number) * HOUR, size=100) for number in range(8)]
    fresh = house.take(20, FRESH_SECONDS - SETTLE_SECONDS - 1, size=500)
    house.file("2026-11-01/big.bin", 5 * HOUR, size=10_000)
    house.protected = {takes[0]}
    purge = house.purge(quota=900)
    result = purge.run()
    assert [path.exists() for path in takes] == [True, False, False, False, False, True, True, True]
    assert (result.files, result.over_quota) == (4, 0)
    house.protected = set(takes)
    assert house.purge(settled=False, quota=100).run().over_quota == 4 * 100 + 500 - 100
    assert fresh.exists()


def test_a_folder_of_temporary_files_goes_whole_but_for_the_young(house, root):
    house.file("a1b2/upload.wav", 25 * HOUR)
    house.file("c3d4/upload.wav", 2 * HOUR)
    house.file("loose", 25 * HOUR)
    result = house.purge(own=is_anything).run()
    assert house.names() == ["c3d4/upload.wav"]
    assert [path.name for path in root.iterdir()] == ["c3d4"]
    assert (result.files, result.folders) == (2, 1)


@pytest.mark.parametrize("place", ["/", Path.home(), Path.cwd(), Path.cwd().parent, "/tmp"])
def test_a_folder_of_everybody_is_refused(place):
    with pytest.raises(ValueError, match="not a folder of our own"):
        Purge([Folder(Path(place), own=is_anything)])


def test_what_the_recorder_writes_is_known_as_a_take(tmp_path):
    outputs = OutputStore(tmp_path)
    path = outputs.path("235959-0123abcd")
    assert is_take(path.relative_to(tmp_path))
    with WavWriter(path):
        (partial,) = path.parent.iterdir()
        assert is_take(partial.relative_to(tmp_path))
    assert not any(is_take(PurePath(name)) for name in ("", "x", "2026-11-01/x.wav", "2026-1-1/235959-0123abcd.wav"))


# --- clocks


@pytest.mark.parametrize("days", [2, -2, 400, -400])
def test_a_clock_that_jumps_deletes_nothing_fresh(house, clocks, days):
    old, fresh = house.take(1, 23 * HOUR), house.take(2, 0)
    purge = house.purge()
    purge.run()
    clocks.seconds += 600
    clocks.jump(days * DAY)
    written_later = house.take(3, 0)
    assert purge.run().files == 0
    clocks.seconds += HOUR
    assert purge.run().files == 1
    assert (old.exists(), fresh.exists(), written_later.exists()) == (False, True, True)
    clocks.seconds += 24 * HOUR
    assert purge.run().files == 2


@pytest.mark.parametrize("days", [2, -2])
def test_files_from_before_a_jump_that_no_run_has_seen_yet_are_safe(house, clocks, days):
    house.take(1, HOUR)
    purge = house.purge()
    house.take(2, 0)
    clocks.jump(days * DAY)
    assert purge.run().files == 0
    house.take(3, 0)
    os.utime(house.root / "2026-11-01/120000-00000003.wav", (NOW - 9 * DAY, NOW - 9 * DAY))
    clocks.seconds += HOUR
    assert purge.run().files == 0  # it was not there an hour ago, whatever its time says
    clocks.seconds += 24 * HOUR
    assert purge.run().files == 3


def test_a_machine_that_sets_its_clock_after_the_start(house, clocks):
    """The clock was two days ahead, or far behind, when the service was started."""
    fresh = house.take(1, HOUR)
    clocks.jump(2 * DAY)
    purge = house.purge(settled=False)
    assert purge.run().kept == Counter(settling=1)
    clocks.jump(-2 * DAY)
    clocks.seconds += SETTLE_SECONDS
    assert purge.run().kept == Counter(young=1)
    clocks.jump(-9000 * DAY)
    purge = house.purge()
    clocks.jump(9000 * DAY)
    assert purge.run().kept == Counter(young=1)
    assert fresh.exists()


def test_a_time_in_the_future_is_fresh_once_only(house, clocks):
    house.take(1, -1000 * DAY)
    purge = house.purge()
    assert purge.run().kept == Counter(young=1)
    clocks.seconds += 24 * HOUR
    assert purge.run().kept == Counter(young=1)
    clocks.seconds += 1
    assert purge.run().files == 1


def test_a_file_that_is_changed_is_young_again(house, clocks):
    take = house.take(1, 23 * HOUR)
    purge = house.purge()
    purge.run()
    clocks.seconds += HOUR
    os.utime(take, (clocks.wall(), clocks.wall()))
    clocks.seconds += HOUR
    assert purge.run().kept == Counter(young=1)
    assert len(purge._folders[0][1]) == 2  # the file and its folder
    take.unlink()
    take.parent.rmdir()
    purge.run()
    assert len(purge._folders[0][1]) == 0


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.one_of(st.tuples(st.just("pass"), st.floats(0, 40_000)), st.tuples(st.just("jump"), st.floats(-1e7, 1e7))),
        max_size=12,
    ),
    st.floats(0, 1e6),
)
def test_no_order_of_jumps_makes_a_file_older_than_it_is(events, age):
    """The clock was right at the start; ``age`` is the file's age then."""
    clocks = Clocks()
    sightings = Sightings(clocks.steady, clocks.wall)
    born = clocks.steady() - age
    stat = os.stat_result((0, 7, 0, 1, 0, 0, 10, 0, clocks.wall() - age, 0))
    for kind, amount in [*events, ("pass", 1.0)]:
        if kind == "jump":
            clocks.jump(amount)
        else:
            clocks.seconds += amount
        sightings.look()
        assert sightings.age(PurePath("a"), stat) <= clocks.steady() - born + 2
        sightings.looked()


def test_the_steady_clock_goes_on():
    assert steady_clock() <= steady_clock()


# --- trouble


def test_a_root_that_is_not_there_or_not_readable(tmp_path, house, monkeypatch):
    assert Purge([Folder(tmp_path / "missing")]).run().errors == 0
    (tmp_path / "file").touch()
    result = Purge([Folder(tmp_path / "file")]).run()
    assert (result.errors, result.files) == (1, 0)
    assert "Not a directory" in result.problems[0]


def test_files_that_vanish_meanwhile_are_nobodys_fault(house):
    takes = [house.take(number, 25 * HOUR) for number in range(3)]

    def vanish():
        takes[1].unlink(missing_ok=True)
        return ()

    purge = Purge([Folder(house.root)], vanish, clock=house.clocks.steady, wall=house.wall)
    house.clocks.seconds += SETTLE_SECONDS
    result = purge.run()
    assert (result.files, result.errors, house.names()) == (2, 0, [])


def test_what_may_not_be_deleted_is_counted_and_the_rest_goes(house, monkeypatch):
    takes = [house.take(number, 25 * HOUR) for number in range(20)]
    unlink = os.unlink

    def failing(name, **options):
        if int(Path(name).stem[-8:], 16) % 2:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        unlink(name, **options)

    monkeypatch.setattr(purge_module.os, "unlink", failing)
    result = house.purge(quota=5).run()
    monkeypatch.undo()
    assert sum(path.exists() for path in takes) == 10
    assert (result.files, result.kept, result.errors) == (10, Counter(error=10), 10)
    assert len(result.problems) == purge_module.MOST_PROBLEMS
    assert "Permission denied" in result.problems[0]
    assert result.over_quota == 95


def test_a_folder_that_cannot_be_read_is_told_and_stays(house, root, monkeypatch):
    house.take(1, 25 * HOUR)
    house.take(2, 25 * HOUR, day="2026-10-01")
    open_file = os.open

    def failing(path, *rest, **options):
        if path == "2026-10-01":
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return open_file(path, *rest, **options)

    monkeypatch.setattr(os, "open", failing)
    result = house.purge().run()
    monkeypatch.undo()
    assert (result.files, result.errors, result.folders) == (1, 1, 1)
    assert house.names() == ["2026-10-01/120000-00000002.wav"]


def test_a_file_that_changed_since_it_was_looked_at_stays(house):
    take = house.take(1, 25 * HOUR)

    def touch():
        os.utime(take, (NOW, NOW))
        return ()

    purge = Purge([Folder(house.root)], touch, clock=house.clocks.steady, wall=house.wall)
    house.clocks.seconds += SETTLE_SECONDS
    assert purge.run().kept == Counter(young=1)
    assert take.exists()


def test_what_is_protected_is_asked_for_at_the_moment_of_the_deletion(house):
    takes = [house.take(number, 25 * HOUR) for number in range(4)]

    def one_that_remains():
        return [path for path in takes if path.exists()][-1:]

    purge = Purge([Folder(house.root)], one_that_remains, clock=house.clocks.steady, wall=house.wall)
    house.clocks.seconds += SETTLE_SECONDS
    assert purge.run().files == 3
    house.protected = {house.root}
    assert house.purge().run().kept == Counter(protected=1)


def test_nothing_goes_when_nobody_knows_what_is_in_use(house):
    take = house.take(1, 25 * HOUR)

    def broken():
        raise RuntimeError("no answer")

    purge = Purge([Folder(house.root)], broken, clock=house.clocks.steady, wall=house.wall)
    house.clocks.seconds += SETTLE_SECONDS
    with pytest.raises(RuntimeError):
        purge.run()
    assert take.exists()


def test_two_at_once_are_one_after_the_other(house):
    for number in range(30):
        house.take(number, 25 * HOUR)
    purge = house.purge()
    results = []
    threads = [threading.Thread(target=lambda: results.append(purge.run())) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(result.files for result in results) == 30
    assert sum(result.errors for result in results) == 0


def test_no_descriptor_is_left_open(house):
    purge = house.purge()
    before = len(list(Path("/proc/self/fd").iterdir()))
    for number in range(20):
        house.take(number, 25 * HOUR)
        purge.run()
    assert len(list(Path("/proc/self/fd").iterdir())) == before
