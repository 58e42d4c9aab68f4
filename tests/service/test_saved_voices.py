"""Saved voices: what may be saved, what stays through a restart, what a request keeps of them, files to take along."""

import io
import json
import os
import re
import struct
import threading
import zipfile
from pathlib import Path

import pytest
from watching import follow

from cosyui.engine.request import Mode
from cosyui.errors import ConflictError, CosyuiError, MissingError, RightsError
from cosyui.host.config import FakeScript
from cosyui.hub import EMBEDDED_FOLDER
from cosyui.model.tokenizer import TextTokenizer
from cosyui.service.clips import ClipStore
from cosyui.service.types import Done, FormError
from cosyui.service.voice_files import CLIP, RECORD
from cosyui.service.voice_record import ID_PATTERN, LONGEST_CONSENT, VoiceForm, clean_name
from cosyui.service.voice_zip import SLACK, pack
from cosyui.service.voices import SavedVoices
from cosyui.settings import Settings
from cosyui.speech.prompt_format import TextFrontend
from tests.service.conftest import wav_bytes

WORDS = {"transcript": "What the clip says.", "language": "en", "consent": "Ann herself, in writing."}
HELD = "[fake:hold][fake:seconds=2] A sentence."


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "voices"


@pytest.fixture
def new_voices(folder, tmp_path):
    """Makes what a server has at its start; keyword arguments are settings."""

    def make(**changes):
        settings = Settings.load({"voices_dir": folder, "clips_dir": tmp_path / "clips"} | changes, {})
        voices = SavedVoices(settings, ClipStore.from_settings(settings))
        voices.load()
        return voices

    return make


@pytest.fixture
def ask(clip):
    """Makes a good form."""
    return lambda name="Ann", **changes: VoiceForm(name, **({"clip": clip} | WORDS | changes))


def content(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def code_of(call, *arguments, **named):
    with pytest.raises(CosyuiError) as caught:
        call(*arguments, **named)
    return caught.value.code, caught.value.field


GOOD_NAMES = {
    "CON": "CON",
    ".hidden": ".hidden",
    "../../etc/passwd": "../../etc/passwd",
    "a/b\\c:d*?": "a/b\\c:d*?",
    "  Ann \n": "Ann",
    "🎙️👩‍🚀": "🎙️👩‍🚀",
    "🏴󠁧󠁢󠁥󠁮󠁧󠁿 Bob": "🏴󠁧󠁢󠁥󠁮󠁧󠁿 Bob",
    "王小明": "王小明",
    "مريم": "مريم",
    "Zoe\u0308": "Zo\u00eb",
    "<img src=x>": "<img src=x>",
    "n" * 80: "n" * 80,
    "e\u0301" * 80: "\u00e9" * 80,
    "%s{name}$(id)": "%s{name}$(id)",
}
BAD_NAMES = {
    "": "voice_name_missing",
    " \t\n\u3000": "voice_name_missing",
    "\u200b\u200d": "voice_name_missing",
    "\ufe0f": "voice_name_missing",
    "n" * 81: "voice_name_too_long",
    "🎙" * 300: "voice_name_too_long",
    "Ann\nBob": "voice_name_invalid",
    "Ann\r\nSet-Cookie: x": "voice_name_invalid",
    "Ann\0": "voice_name_invalid",
    "Ann\u2028Bob": "voice_name_invalid",
    "Ann\x1b[31m": "voice_name_invalid",
    "Ann\u202egpj.exe": "voice_name_invalid",
    "\u2067Ann": "voice_name_invalid",
    "half \ud83d of it": "voice_name_invalid",
}
TAKEN_NAMES = ("ann", "ANN", " Ann ", "en", "EN", "Alloy", "voice_" + "0" * 24, "VOICE_" + "A" * 24)


def test_odd_names_are_shown_as_given_and_ids_have_nothing_of_them(new_voices, ask, folder):
    voices = new_voices()
    saved = [voices.add(ask(name)) for name in GOOD_NAMES]
    assert [voice.name for voice in saved] == list(GOOD_NAMES.values())
    assert all(re.fullmatch(ID_PATTERN, voice.id, re.ASCII) for voice in saved)
    assert set(content(folder)) == {f"{v.id}/{file}" for v in saved for file in (CLIP, RECORD)}
    again = new_voices()
    assert again.problems == ()
    assert sorted(again.all(), key=str) == sorted(saved, key=str)
    for given, voice in zip(GOOD_NAMES, saved, strict=True):
        assert again.find(given) == again.find(voice.id) == again.find(voice.name)
        assert voice.name in again.list()


@pytest.mark.parametrize(("name", "code"), BAD_NAMES.items(), ids=map(ascii, BAD_NAMES))
def test_names_that_cannot_be(name, code):
    assert code_of(clean_name, name) == (code, "name")


def test_names_that_are_taken(new_voices, ask):
    voices = new_voices()
    ann, bob = voices.add(ask()), voices.add(ask("Straße"))
    for name in (*TAKEN_NAMES, "STRASSE"):
        assert code_of(voices.add, ask(name)) == ("voice_name_taken", "name")
    assert code_of(voices.change, bob.id, name="aNN") == ("voice_name_taken", "name")
    assert voices.change(ann.id, name="ANN").name == "ANN", "other capitals of its own name"
    assert voices.all() == (voices.get(ann.id), bob)
    assert voices.find("ann") is None, "names are found as they are written"


def test_everything_that_is_wrong_is_told_at_once(new_voices, ask, folder):
    voices = new_voices()
    wrong = VoiceForm("a\nb", wav_bytes(1.0), "word " * 200, "xx", " \0 ")
    with pytest.raises(FormError) as caught:
        voices.add(wrong)
    assert [(one.code, one.field) for one in caught.value.problems] == [
        ("voice_name_invalid", "name"),
        ("transcript_too_long", "transcript"),
        ("language_invalid", "language"),
        ("consent_missing", "consent"),
        ("clip_too_short", "clip"),
    ]
    for changes, *told in (
        ({"consent": "x" * (LONGEST_CONSENT + 1)}, "consent_too_long", "consent"),
        ({"clip": None}, "clip_missing", "clip"),
        ({"clip": b"noise" * 999}, "clip_unreadable", "clip"),
        ({"clip": wav_bytes(40.0)}, "clip_too_long", "clip"),
    ):
        assert code_of(voices.add, ask(**changes)) == tuple(told)
    assert not folder.exists()


def test_transcript_of_a_whole_recording_is_none_of_its_best_part(new_voices, ask):
    voices = new_voices()
    store = voices._clips
    part = store.best_part(store.keep(wav_bytes(20.0)), WORDS["transcript"])
    assert code_of(voices.add, ask(clip=part)) == ("transcript_stale", "transcript")
    assert voices.add(ask(clip=part, transcript="Other words of the part.")).seconds < 14


def test_long_clip_without_transcript_is_cut(new_voices, ask):
    voice = new_voices().add(ask(clip=wav_bytes(40.0), transcript="", language="zh-CN"))
    assert voice.seconds < 14
    assert (voice.transcript, voice.language) == ("", "zh")


def test_number_of_voices_is_bounded(new_voices, ask):
    voices = new_voices(voices_max=2)
    first = voices.add(ask("1"))
    voices.add(ask("2"))
    assert code_of(voices.add, ask("3")) == ("voices_full", None)
    voices.remove(first.id)
    assert voices.add(ask("3")).name == "3"


def test_many_at_once_make_one_voice_of_a_name(new_voices, ask):
    voices, made, refused = new_voices(), [], []

    def add():
        try:
            made.append(voices.add(ask()))
        except ConflictError as error:
            refused.append(error.code)

    threads = [threading.Thread(target=add) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert voices.all() == tuple(made)
    assert (len(made), refused) == (1, ["voice_name_taken"] * 5)


def test_words_change_and_the_clip_stays(new_voices, ask, folder):
    voices = new_voices()
    old = voices.add(ask())
    sound = voices.clip(old.id)
    new = voices.change(old.id, name="Anna", transcript="", language="")
    assert (new.name, new.transcript, new.language, new.consent) == ("Anna", "", None, old.consent)
    assert (new.id, new.created, voices.clip(new.id)) == (old.id, old.created, sound)
    assert code_of(voices.change, old.id, consent=" ") == ("consent_missing", "consent")
    assert voices.find("Ann") is None
    assert new_voices().get(old.id) == new
    assert {path.name for path in folder.rglob("*") if path.is_file()} == {CLIP, RECORD}


def test_whose_voice_it_is(new_voices, ask):
    voices = new_voices()
    hers, nobodys = voices.add(ask("Hers", maker="key-a")), voices.add(ask("Nobody's"))
    for call in (voices.remove, voices.change):
        with pytest.raises(RightsError, match="Another key"):
            call(hers.id, by="key-b")
    assert voices.get(hers.id) == hers
    assert voices.change(hers.id, name="Mine", by="key-a").maker == "key-a"
    voices.remove(hers.id, "key-a")
    voices.remove(nobodys.id, "key-b")
    assert voices.all() == ()
    voices.remove(voices.add(ask("Hers", maker="key-a")).id)  # there are no keys any more


def test_damaged_ones_are_left_out_and_told(new_voices, ask, folder, caplog):
    voices = new_voices()
    names = ("cut", "other", "empty", "twin", "gone", "good")
    saved = {name: voices.add(ask(name)) for name in names}
    files = {name: folder / voice.id for name, voice in saved.items()}
    (files["cut"] / RECORD).write_bytes((files["cut"] / RECORD).read_bytes()[:50])
    (files["other"] / RECORD).write_bytes((files["good"] / RECORD).read_bytes())
    (files["empty"] / CLIP).write_bytes(b"")
    twin = json.loads((files["twin"] / RECORD).read_text()) | {"name": "EN"}
    (files["twin"] / RECORD).write_text(json.dumps(twin))
    (files["gone"] / CLIP).unlink()
    (folder / "notes.txt").write_text("mine")
    before = content(folder)
    again = new_voices()
    assert again.all() == (saved["good"],)
    (problem,) = again.problems
    assert (problem.code, dict(problem.values)["count"]) == ("voices_damaged", 5)
    told = {record.fields["voice"] for record in caplog.records if record.getMessage() == "voice_damaged"}
    assert told == {saved[name].id for name in names[:-1]}
    assert content(folder) == before, "left alone"


def test_clip_that_was_exchanged_is_never_used(new_voices, ask, folder):
    voices = new_voices()
    voice = voices.add(ask())
    (folder / voice.id / CLIP).write_bytes(wav_bytes(5.0))
    for call in (voices.clip, voices.find, voices.export):
        with pytest.raises(MissingError) as caught:
            call(voice.id)
        assert (caught.value.code, caught.value.status) == ("voice_broken", 404)
    voices.remove(voice.id)
    assert code_of(voices.get, voice.id) == ("voice_not_found", "voice")
    assert voices.find(voice.id) is voices.find("Ann") is None


def test_disk_that_cannot_be_written(new_voices, ask, folder, monkeypatch):
    voices = new_voices()
    voice = voices.add(ask())
    before = content(folder)

    def full(handle):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        assert code_of(voices.add, ask("Bob")) == ("voice_not_stored", None)
        assert code_of(voices.change, voice.id, name="Anna") == ("voice_not_stored", None)
    assert voices.all() == (voice,)
    assert content(folder) == before
    assert voices.add(ask("Bob")).name == "Bob"


def test_folder_that_cannot_be_read(new_voices, folder):
    folder.write_text("a file")
    assert [problem.code for problem in new_voices().problems] == ["voices_unread"]


def test_what_a_killed_server_left_is_finished(new_voices, ask, folder):
    voice = new_voices().add(ask())
    for name in (f".new-{voice.id}", f".gone-{voice.id}"):
        (folder / name).mkdir()
        (folder / name / CLIP).write_bytes(b"half")
    assert new_voices().all() == (voice,)
    assert [path.name for path in folder.iterdir()] == [voice.id]


def test_export_and_import(new_voices, ask, folder):
    voices = new_voices()
    voice = voices.add(ask("../Ann/🎙", maker="key-a"))
    data = voices.export(voice.id)
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        assert archive.namelist() == [CLIP, RECORD]
        assert json.loads(archive.read(RECORD)) == {"name": "../Ann/🎙", **WORDS}
        assert archive.read(CLIP) == voices.clip(voice.id)
    assert code_of(voices.import_, data) == ("voice_name_taken", "name")
    other = voices.import_(data, name="Other", maker="key-b")
    voices.remove(voice.id)
    same = voices.import_(data)
    for copy, name in ((other, "Other"), (same, voice.name)):
        assert (copy.name, copy.transcript, copy.language, copy.consent) == (name, *WORDS.values())
        assert copy.id != voice.id
        assert abs(copy.seconds - voice.seconds) < 0.05
    assert {path.name for path in folder.iterdir()} == {other.id, same.id}


def zip_of(*members, method=zipfile.ZIP_STORED, comment=b""):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as archive:
        for name, data in members:
            archive.writestr(name, data)
        archive.comment = comment
    return file.getvalue()


def hostile_files(clip):
    record = json.dumps({"name": "Ann", **WORDS}).encode()
    good = zip_of((CLIP, clip), (RECORD, record))
    deflated = zipfile.ZIP_DEFLATED
    many = io.BytesIO()
    with zipfile.ZipFile(many, "w") as archive:
        for number in range(1_000):
            archive.writestr(f"{number}", b"")
    lying = bytearray(many.getvalue())
    lying[-22 + 8 : -22 + 12] = struct.pack("<HH", 2, 2)  # says that it holds two
    encrypted = bytearray(good)
    encrypted[good.rindex(b"PK\1\2") + 8] |= 1
    return {
        "nothing": b"",
        "noise": b"noise" * 100,
        "cut": good[:-10],
        "record alone": zip_of((RECORD, record)),
        "another file": zip_of((CLIP, clip), (RECORD, record), ("x.sh", b"")),
        "another path": zip_of((CLIP, clip), (f"../{RECORD}", record)),
        "absolute path": zip_of((f"/tmp/{CLIP}", clip), (RECORD, record)),
        "folder": zip_of(("clip.wav/", b""), (RECORD, record)),
        "two of a name": zip_of((CLIP, clip), ("clip.wax", clip)).replace(b"clip.wax", CLIP.encode()),
        "comment": zip_of((CLIP, clip), (RECORD, record), comment=b"x"),
        "bomb": zip_of((CLIP, bytes(20 << 20)), (RECORD, record), method=deflated),
        "bomb in the record": zip_of((CLIP, clip), (RECORD, b" " * (10 << 20)), method=deflated),
        "many": many.getvalue(),
        "many, said to be two": bytes(lying),
        "unusual packing": zip_of((CLIP, clip), (RECORD, record), method=zipfile.ZIP_LZMA),
        "encrypted": bytes(encrypted),
        "wrong sum": good.replace(b"Ann herself", b"Bob himself"),
        "no JSON": zip_of((CLIP, clip), (RECORD, b"{")),
        "a list": zip_of((CLIP, clip), (RECORD, b"[]")),
        "deep": zip_of((CLIP, clip), (RECORD, b"[" * 60_000)),
        "no name": zip_of((CLIP, clip), (RECORD, b"{}")),
        "name is a number": zip_of((CLIP, clip), (RECORD, b'{"name": 5}')),
        "half a character": zip_of((CLIP, clip), (RECORD, b'{"name": "\\ud83d"}')),
        "too large": zip_of((CLIP, bytes((1 << 20) + SLACK)), (RECORD, record)),
    }


def test_hostile_files_are_refused(new_voices, clip, folder):
    voices = new_voices(clip_max_bytes=1 << 20)
    for name, data in hostile_files(clip).items():
        assert code_of(voices.import_, data) == ("voice_file_invalid", "file"), name
    assert not folder.exists()
    assert voices.import_(zip_of((RECORD, json.dumps({"name": "Ann", **WORDS})), (CLIP, clip), method=8)).name == "Ann"


def test_import_is_checked_as_a_new_voice(new_voices, clip, ask):
    voices = new_voices()
    good = voices.add(ask())
    for changes, sound, told in (
        ({"consent": ""}, clip, ("consent_missing", "consent")),
        ({"name": "a\nb"}, clip, ("voice_name_invalid", "name")),
        ({"language": "xx"}, clip, ("language_invalid", "language")),
        ({}, b"RIFF" + bytes(5000), ("clip_unreadable", "clip")),
        ({}, wav_bytes(1.0), ("clip_too_short", "clip")),
    ):
        assert code_of(voices.import_, pack(good.model_copy(update={"name": "Bob"} | changes), sound)) == told


def sent(service, monkeypatch):
    """The requests that go to the engine."""
    requests, events = [], service.client.events

    def keep(request):
        requests.append(request)
        return events(request)

    monkeypatch.setattr(service.client, "events", keep)
    return requests


def what_the_model_reads(request):
    tokenizer = TextTokenizer(EMBEDDED_FOLDER / "CosyVoice-BlankEN")
    (segment,), _ = TextFrontend(tokenizer).segments(request)
    return tokenizer.decode((*segment.prompt_text_ids, *segment.text_ids))


@pytest.mark.anyio
async def test_instruction_takes_the_place_of_the_transcript_for_one_call(fake_service, form, ask, monkeypatch):
    async with fake_service() as service:
        voice = service.voices.add(ask())
        folder = service.settings.voices_folder
        before, requests = content(folder), sent(service, monkeypatch)
        modes = (Mode.ZERO_SHOT, Mode.CROSS_LINGUAL, Mode.INSTRUCT, Mode.ZERO_SHOT)
        for mode in modes:
            found = service.voices.find("Ann")
            asked = form(mode=mode, clip=found.clip, transcript=found.transcript, instruction="Speak happily.")
            assert isinstance((await follow(await service.submit(asked)))[-1], Done)
        assert [request.mode for request in requests] == list(modes)
        told = [(request.prompt.transcript, request.instruction) for request in requests]
        assert told == [(WORDS["transcript"], ""), ("", ""), ("", "Speak happily."), (WORDS["transcript"], "")]
        assert len({request.prompt.key for request in requests}) == 1
        read = [what_the_model_reads(request) for request in requests]
        assert [WORDS["transcript"] in text for text in read] == [True, False, False, True]
        assert ["Speak happily." in text for text in read] == [False, False, True, False]
        assert content(folder) == before
        assert service.voices.get(voice.id) == voice


@pytest.mark.anyio
async def test_requests_keep_the_voice_that_they_were_asked_with(fake_service, form, ask, tmp_path, monkeypatch):
    release = tmp_path / "release"
    async with fake_service(script=FakeScript(release_file=str(release))) as service:
        voice = service.voices.add(ask())
        requests = sent(service, monkeypatch)
        found = service.voices.find("Ann")
        asked = [form(HELD, clip=found.clip, transcript=found.transcript) for _ in range(4)]
        tickets = [await service.submit(asked[0])]
        service.voices.change(voice.id, name="Bob", transcript="Other words.")
        tickets += [await service.submit(one) for one in asked[1:]]
        copies = len(service.clips)
        service.voices.remove(voice.id)
        assert (copies, len(service.clips), service.clips.prepared_bytes) == (1, 0, 0)
        assert not list(service.settings.voices_folder.iterdir())
        release.touch()
        assert [type((await follow(ticket))[-1]) for ticket in tickets] == [Done] * 4
        assert {request.prompt.transcript for request in requests} == {WORDS["transcript"]}
        assert len({request.prompt.key for request in requests}) == 1
        assert service.overview().finished == 4


@pytest.mark.anyio
async def test_service_tells_of_damaged_voices_and_goes_on(fake_service, new_service, form):
    folder = new_service().settings.voices_folder / ("voice_" + "0" * 24)
    folder.mkdir(parents=True)
    async with fake_service() as service:
        assert "voices_damaged" in {problem.code for problem in service.overview().problems}
        assert isinstance((await follow(await service.submit(form())))[-1], Done)


def test_voices_are_beside_the_outputs():
    given = Settings.load({"outputs_dir": "/srv/cosyui/outputs"}, {})
    assert given.voices_folder == Path("/srv/cosyui/voices")
    assert Settings.load({"voices_dir": "mine"}, {}).voices_folder == Path("mine").absolute()
