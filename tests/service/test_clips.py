"""Clips inside the service: private copies by content, one decoding, long clips, stale transcripts, transcripts."""

import io
import os
import stat
import wave
from pathlib import Path

import numpy as np
import pytest
import soundfile

from cosyui.engine.request import Mode
from cosyui.errors import CosyuiError, InputError, SetupError
from cosyui.service import clips as clips_module
from cosyui.service.checks import transcript_notice
from cosyui.service.clips import ClipStore
from cosyui.service.types import Done, FormError
from cosyui.speech.clip.intake import CUT_SECONDS, Limits
from cosyui.speech.clip.transcribe import FakeTranscriber, Transcript
from tests.service.conftest import wav_bytes

REAL = Path(__file__).parents[1] / "data" / "clips" / "en_librivox_0870.flac"
WORDS = (
    "and mister john dashwood had then leisure to consider "
    "how much there might be prudently in his power to do for them"
)
NAMES = ("语音 样本.wav", "🎙️.wav", "it's “quoted”.wav", "..dots.wav", "n" * 240 + ".wav", "a_b_c...", "x;y&z|.wav")


def variant(number, seconds=3.2):
    """A clip of its own: every number has another sound."""
    return wav_bytes(seconds + number / 1000)


def long_clip(seconds=40):
    """A real recording, again and again."""
    samples, rate = soundfile.read(REAL, dtype="float32")
    file = io.BytesIO()
    soundfile.write(file, np.resize(np.concatenate([samples, np.zeros(rate // 2)]), seconds * rate), rate, format="WAV")
    return file.getvalue()


@pytest.fixture
def store(tmp_path):
    made = ClipStore(Limits(), tmp_path / "clips")
    yield made
    made.close()


def files(root):
    return [path for path in root.rglob("*") if path.is_file()]


def test_copies_are_named_by_content_and_for_this_user_only(store, tmp_path):
    found = set()
    for name in NAMES:
        source = tmp_path / name
        source.write_bytes(variant(1))
        found.add(store.keep(source))
        source.unlink()
    assert len(found) == 1
    (copy,) = files(tmp_path / "clips")
    assert copy.name in found
    assert copy.read_bytes() == variant(1)
    assert stat.S_IMODE(copy.parent.stat().st_mode) == 0o700
    assert store.load(copy.name).id == copy.name


def test_same_name_with_another_sound_is_another_clip(store, tmp_path):
    source = tmp_path / "voice.wav"
    source.write_bytes(variant(1))
    first = store.load(store.keep(source))
    source.write_bytes(variant(2))
    second = store.load(store.keep(source))
    again = store.load(store.keep(variant(1)))
    assert first.id != second.id
    assert first.prompt.key != second.prompt.key
    assert again is first


def test_upload_that_changes_or_goes_after_the_check_does_not_matter(store, tmp_path):
    source = tmp_path / "voice.wav"
    source.write_bytes(variant(1))
    clip_id = store.keep(source)
    source.write_bytes(b"something else")
    before = store.load(clip_id).prompt.key
    source.unlink()
    assert store.load(clip_id).prompt.key == before


def test_second_use_is_not_decoded_again(store, monkeypatch):
    clip_id = store.keep(variant(1))
    first = store.load(clip_id)
    monkeypatch.setattr(clips_module, "prepare", lambda *_, **__: pytest.fail("decoded again"))
    assert store.load(clip_id) is first


def test_copies_and_prepared_clips_are_bounded(monkeypatch, tmp_path):
    monkeypatch.setattr(clips_module, "MAX_FILES", 5)
    store = ClipStore(Limits(), tmp_path, prepared_bytes=1 << 20)
    ids = [store.keep(variant(number)) for number in range(12)]
    assert [path.name for path in sorted(files(tmp_path))] == sorted(ids[-5:])
    for clip_id in ids[-5:]:
        store.load(clip_id)
        assert store.prepared_bytes <= 1 << 20
    with pytest.raises(InputError) as caught:
        store.load(ids[0])
    assert caught.value.code == "clip_missing"
    monkeypatch.setattr(clips_module, "MAX_FILE_BYTES", 2 * len(variant(20)))
    store.keep(variant(20))
    assert len(store) == 2


def test_close_deletes_its_own_files_only(tmp_path):
    (tmp_path / "other").write_text("not ours")
    store = ClipStore(Limits(), tmp_path)
    store.keep(variant(1))
    store.close()
    store.close()
    assert [path.name for path in tmp_path.iterdir()] == ["other"]
    assert store.load(store.keep(variant(1))).report.seconds == pytest.approx(3.2, abs=0.01)
    store.close()


def test_folder_that_is_swept_away_is_made_again(store, tmp_path):
    clip_id = store.keep(variant(1))
    for path in files(tmp_path / "clips"):
        path.unlink()
        path.parent.rmdir()
    assert store.keep(variant(1)) == clip_id
    assert store.load(clip_id).id == clip_id


def test_folder_that_cannot_be_made_stops_the_start(tmp_path):
    (tmp_path / "taken").write_text("a file")
    with pytest.raises(SetupError) as caught:
        ClipStore(Limits(), tmp_path / "taken").check()
    assert caught.value.code == "clips_not_writable"


def test_full_disk_is_told_and_nothing_is_left(store, tmp_path, monkeypatch):
    def full(self, data):
        Path.touch(self)
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(CosyuiError) as caught:
        store.keep(variant(1))
    assert (caught.value.code, caught.value.field) == ("clip_not_stored", "clip")
    assert files(tmp_path / "clips") == []


def test_best_part_comes_without_its_transcript(store):
    data = store.best_part(store.keep(long_clip()), WORDS)
    with wave.open(io.BytesIO(data)) as file:
        assert file.getnframes() / file.getframerate() <= CUT_SECONDS
    part = store.keep(data)
    assert store.outdated(part, WORDS)
    assert store.outdated(part, WORDS.upper() + " ...")
    assert not store.outdated(part, "and mister john dashwood")
    assert not store.outdated(store.keep(variant(1)), WORDS)
    assert WORDS.encode() not in b"".join(path.read_bytes() for path in files(store._root))


def test_a_clip_that_is_short_enough_keeps_its_transcript(store):
    part = store.keep(store.best_part(store.keep(REAL), WORDS))
    assert not store.outdated(part, WORDS)
    assert store.load(part).report.speech_seconds == pytest.approx(6.8, abs=0.2)


@pytest.mark.parametrize(
    ("transcript", "spoken", "code"),
    [
        (WORDS, 6.8, None),
        (WORDS, 15.0, None),
        (WORDS, 3.5, "transcript_too_much"),
        (WORDS * 3, 6.8, "transcript_too_much"),
        ("and mister", 6.8, "transcript_too_little"),
        ("视频截图新京报快讯记者林斐然昨晚起", 5.8, None),
        ("视频截图新京报快讯记者林斐然昨晚起" * 4, 5.8, "transcript_too_much"),
        ("视频截图", 5.8, "transcript_too_little"),
        ("", 5.8, None),
    ],
)
def test_transcript_that_cannot_fit_is_remarked(transcript, spoken, code):
    notice = transcript_notice(transcript, spoken)
    assert (notice.code if notice else None) == code


asynchronous = pytest.mark.anyio


async def last_of(ticket):
    return [update async for update in ticket.updates()][-1]


def codes(result):
    return [notice.code for notice in result.notices]


@asynchronous
async def test_long_clip_needs_a_decision_where_it_has_a_transcript(fake_service, form):
    async with fake_service() as service:
        long = long_clip()
        with pytest.raises(FormError) as caught:
            await service.submit(form(clip=long, transcript=WORDS))
        assert [problem.code for problem in caught.value.problems] == ["clip_too_long"]
        part = service.best_part(long, WORDS)
        with pytest.raises(FormError) as caught:
            await service.submit(form(clip=part, transcript=WORDS))
        assert [(problem.code, problem.field) for problem in caught.value.problems] == [
            ("transcript_stale", "transcript")
        ]
        heard = "And mister John Dashwood had then leisure to consider how much there might be prudently in his power."
        done = await last_of(await service.submit(form(clip=part, transcript=heard)))
        assert isinstance(done, Done)
        assert codes(done.result) == []


@asynchronous
@pytest.mark.parametrize("mode", [Mode.CROSS_LINGUAL, Mode.INSTRUCT])
async def test_long_clip_is_cut_where_nothing_belongs_to_it(fake_service, form, mode):
    async with fake_service() as service:
        assert service.check_clip(long_clip(), mode).cut
        done = await last_of(await service.submit(form(clip=long_clip(), mode=mode, instruction="happily")))
        assert codes(done.result) == ["clip_cut"]


@asynchronous
async def test_misfit_transcript_is_a_remark_of_the_take(fake_service, form):
    async with fake_service() as service:
        assert service.check_transcript(REAL, WORDS) is None
        assert service.check_transcript(REAL, "Two words").code == "transcript_too_little"
        done = await last_of(await service.submit(form(clip=REAL, transcript="Two words")))
        assert codes(done.result) == ["transcript_too_little"]
        done = await last_of(await service.submit(form(clip=REAL, transcript="Two words", mode=Mode.CROSS_LINGUAL)))
        assert codes(done.result) == []


@asynchronous
async def test_transcripts_come_from_the_recogniser_that_was_given(fake_service, clip):
    async with fake_service(transcriber=FakeTranscriber()) as service:
        assert await service.transcribe(clip) == Transcript("A clip of 4.0 seconds.", "en")
        with pytest.raises(InputError) as caught:
            await service.transcribe(long_clip())
        assert caught.value.code == "clip_too_long"


@asynchronous
async def test_without_a_recogniser_it_says_how_to_get_one(fake_service, clip):
    async with fake_service() as service:
        with pytest.raises(InputError) as caught:
            await service.transcribe(clip)
        assert (caught.value.code, caught.value.field) == ("transcriber_missing", "transcript")
        assert "pip install" in caught.value.message


@asynchronous
async def test_copies_are_gone_when_the_service_closes(fake_service, form, tmp_path):
    async with fake_service() as service:
        await last_of(await service.submit(form()))
        assert len(files(tmp_path / "clips")) == 1
    assert list((tmp_path / "clips").iterdir()) == []


@asynchronous
async def test_missing_general_decoder_is_told_at_the_start(fake_service, caplog, monkeypatch):
    from cosyui.speech.clip import pyav as clip_av

    monkeypatch.setattr(clip_av, "installed", lambda: False)
    caplog.set_level("INFO", logger="cosyui")
    async with fake_service():
        pass
    fields = [record.fields for record in caplog.records if record.getMessage() == "decoder_missing"]
    assert [entry["package"] for entry in fields] == ["av"]
    assert "M4A" not in fields[0]["formats"]
