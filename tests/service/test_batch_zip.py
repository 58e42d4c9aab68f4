"""What comes of a batch: files that open, lengths and times that are exact, names that are safe."""

import csv
import io
import json
import pickle
import re
import wave
import zipfile

import numpy as np
import pytest

from cosyui.service.batch_input import parse
from cosyui.service.batch_lines import LineError
from cosyui.service.batch_zip import safe_name
from cosyui.service.subtitles import Cue, cues, split_like, srt, vtt
from cosyui.speech.sound.audio_out import WavWriter, to_pcm16
from cosyui.speech.sound.loudness import speech_level
from cosyui.speech.sound.sequence import joined

pytestmark = pytest.mark.anyio
RATE = 24_000


def sound(data):
    with wave.open(io.BytesIO(data)) as file:
        assert (file.getframerate(), file.getnchannels(), file.getsampwidth()) == (RATE, 1, 2)
        samples = np.frombuffer(file.readframes(file.getnframes() + 1), "<i2")
        assert len(samples) == file.getnframes() == (len(data) - 44) // 2
        return samples


def milliseconds(text, mark):
    found = re.fullmatch(rf"(\d\d):([0-5]\d):([0-5]\d)\{mark}(\d\d\d)", text)
    hours, minutes, seconds, rest = map(int, found.groups())
    return ((hours * 60 + minutes) * 60 + seconds) * 1000 + rest


def read_srt(text):
    """Strict: numbers from 1, times in order, one blank line behind each block."""
    blocks, cues_ = text.split("\n\n"), []
    assert blocks.pop() == ""
    for number, block in enumerate(blocks, 1):
        head, times, *said = block.split("\n")
        assert head == str(number)
        begin, end = times.split(" --> ")
        assert said
        assert all("-->" not in line for line in said)
        cues_.append((milliseconds(begin, ","), milliseconds(end, ","), "\n".join(said)))
    return cues_


def read_vtt(text):
    head, *blocks, last = text.split("\n\n")
    assert (head, last) == ("WEBVTT", "")
    cues_ = []
    for block in blocks:
        times, *said = block.split("\n")
        begin, end = times.split(" --> ")
        assert all("-->" not in line for line in said)
        assert re.fullmatch(r"(<v [^<>&]*(&(amp|lt|gt);[^<>&]*)*>)?([^<>&]|&(amp|lt|gt);)*", "\n".join(said))
        cues_.append((milliseconds(begin, "."), milliseconds(end, "."), "\n".join(said)))
    return cues_


SCRIPT = """Ann: [fake:seconds=1.5] Hello & <welcome> --> you.
Bo：[fake:seconds=2] The first sentence is here. [fake:segments=2] The second one is here.
=cmd|' /C calc'!A0: [fake:fail=output_bad] No.
../../etc/passwd: [fake:seconds=1.00002] Last.
"""


async def test_everything_is_in_the_archive_and_exact(fake_service):
    pairs = (line.replace("：", ": ").split(": ", 1) for line in SCRIPT.splitlines())
    data = "name,voice,text\n" + "".join(f'"{name}",en,"{text}"\n' for name, text in pairs)
    async with fake_service() as service:
        batch = await service.batches.add("page-0", "page-0", parse(data, "csv"), pause=0.25)
        await service.batches.ended(batch)
        path = await service.batches.result(batch)
        assert (await service.batches.result(batch)).stat().st_ino == path.stat().st_ino
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        files = {name: archive.read(name) for name in archive.namelist()}
    manifest = json.loads(files["manifest.json"])
    assert [line["status"] for line in manifest["lines"]] == ["done", "done", "failed", "done"]
    assert [line["code"] for line in manifest["lines"]] == [None, None, "output_bad", None]
    names = [line["file"] for line in manifest["lines"] if line["file"]]
    assert names == ["lines/0001-Ann.wav", "lines/0002-Bo.wav", "lines/0004-etc-passwd.wav"]
    lengths = [len(sound(files[name])) for name in names]
    assert lengths == [36_000, 48_000 + 6_000, 24_000]
    whole, pause = sound(files["dialogue.wav"]), 6_000
    assert len(whole) == sum(lengths) + 2 * pause
    assert not whole[36_000:42_000].any()
    places = [(0, 36_000), (42_000, 66_000), (66_000, 96_000), (102_000, 126_000)]
    exact = [(begin / 24, end / 24) for begin, end in places]
    told = read_srt(files["subtitles.srt"].decode())
    assert [(begin, end) for begin, end, _ in told] == exact
    assert [text for _, _, text in told] == [
        "Ann: [fake:seconds=1.5] Hello & <welcome> → you.",
        "Bo: [fake:seconds=2] The first sentence is here.",
        "Bo: [fake:segments=2] The second one is here.",
        "../../etc/passwd: [fake:seconds=1.00002] Last.",
    ]
    voiced = read_vtt(files["subtitles.vtt"].decode())
    assert [(begin, end) for begin, end, _ in voiced] == exact
    assert voiced[0][2] == "<v Ann>[fake:seconds=1.5] Hello &amp; &lt;welcome&gt; --&gt; you."
    failures = list(csv.DictReader(io.StringIO(files["failures.csv"].decode())))
    assert [(row["line"], row["code"], row["name"]) for row in failures] == [("4", "output_bad", "'=cmd|' /C calc'!A0")]


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("Ann", "0001-Ann"),
        ("", "0001"),
        ("///", "0001"),
        ("旁白 一", "0001-旁白-一"),
        ("..\\CON:\u202egpj.exe", "0001-CON-gpj-exe"),
        ("a" * 300, "0001-" + "a" * 40),
    ],
)
def test_names_of_files_are_harmless(text, name):
    assert safe_name(1, text) == name


def test_a_text_is_cut_like_its_sound():
    text = "One is short. This here is a much longer second sentence, with a clause. End."
    assert split_like(text, [13, 59, 4]) == [
        "One is short.", "This here is a much longer second sentence, with a clause.", "End."
    ]  # fmt: skip
    assert split_like("第一句话。第二句话！还有第三句吗？", [5, 5, 7]) == ["第一句话。", "第二句话！", "还有第三句吗？"]
    assert split_like("no borders at all here", [1, 1]) == ["no borders", "at all here"]
    assert split_like("x", [1, 1, 1]) == ["", "", "x"]
    assert split_like("", [0]) == [""]


def test_parts_that_do_not_fit_the_sound_give_one_cue():
    whole = [Cue(5, 105, "A", "One. Two.")]
    for parts in ((), ((50, 4), (40, 4)), ((50, 4), (200, 4)), ((0, 4), (100, 4))):
        assert list(cues("One. Two.", "A", 5, 100, parts)) == whole
    assert list(cues(" One.\nTwo. ", "", 0, 100, ((50, 4), (100, 4)))) == [
        Cue(0, 50, "", "One."), Cue(50, 100, "", "Two.")
    ]  # fmt: skip
    assert list(cues("x", "", 0, 100, ((50, 1), (100, 1)))) == [Cue(0, 100, "", "x")]


def test_times_of_more_than_an_hour():
    cue = Cue(3_661 * RATE + 12, 36_000 * RATE, "A & <b>", "a\u2028b")
    assert read_srt(srt([cue]))[0][:2] == (3_661_000, 36_000_000)
    assert read_vtt(vtt([cue]))[0][2].startswith("<v A &amp; &lt;b&gt;>")


def test_joined_lines_have_one_loudness_and_their_length(tmp_path):
    time = np.arange(2 * RATE) / RATE
    waves = [gain * np.sin(2 * np.pi * 220 * time).astype(np.float32) for gain in (0.2, 0.12, 0.0, 0.36)]
    paths = []
    for number, samples in enumerate(waves):
        paths.append(tmp_path / f"{number}.wav")
        with WavWriter(paths[-1]) as writer:
            writer.write(to_pcm16(samples))
    whole = np.frombuffer(b"".join(joined(paths, 100)), "<i2")
    assert len(whole) == 4 * 2 * RATE + 300
    pieces = [whole[number * (2 * RATE + 100) :][: 2 * RATE] for number in range(4)]
    assert (pieces[0] == np.frombuffer(to_pcm16(waves[0]), "<i2")).all()
    levels = [speech_level(pieces[number].astype(np.float32) / 32767) for number in (0, 1, 3)]
    assert max(levels) - min(levels) < 0.1
    assert not pieces[2].any()


def test_problems_pickle():
    error = pickle.loads(pickle.dumps(LineError("a", "b", None, 3)))
    assert (error.code, error.line) == ("a", 3)
