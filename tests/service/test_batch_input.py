"""From a file to lines: good ones, bad ones, each problem with the number of its line."""

import json

import pytest

from cosyui.errors import InputError
from cosyui.service.batch_check import Checker
from cosyui.service.batch_input import KINDS, kind_of, parse
from cosyui.service.batch_lines import BatchError, Parsed
from cosyui.service.batch_script import speakers
from cosyui.service.clips import ClipStore
from cosyui.service.voices import SavedVoices
from cosyui.settings import Settings


def told(data, kind):
    """Lines as (number, name, voice, text), problems as (number, code)."""
    try:
        parsed = parse(data, kind)
    except BatchError as error:
        parsed = Parsed([], list(error.problems))
    lines = [(line.number, line.name, line.voice, line.text) for line in parsed.lines]
    return lines, [(one.line, one.code) for one in parsed.problems]


INVALID, MALFORMED = "batch_field_invalid", "batch_malformed"
GOOD = [
    ("csv", "text\nHello.\n", [(2, "", "", "Hello.")]),
    ("csv", "\ufefftext,voice\r\nHello.,en\r\n", [(2, "", "en", "Hello.")]),
    ("csv", 'Voice ; TEXT\nen;"One; two, ""three"""\n', [(2, "", "en", 'One; two, "three"')]),
    ("csv", "name\ttext\nAnn\tHello, you.\n\n\t\nBo\tYes.\n", [(2, "Ann", "", "Hello, you."), (5, "Bo", "", "Yes.")]),
    ("csv", 'text\n"One\nmore\n"\nTwo\n', [(2, "", "", "One\nmore\n"), (5, "", "", "Two")]),
    ("csv", "\n\ntext,seed\nHi,7\n", [(4, "", "", "Hi")]),
    ("csv", "text,name\n=1+1,../../etc\n", [(2, "../../etc", "", "=1+1")]),
    (
        "jsonl",
        '{"text": "Hi", "voice": "en"}\n\n{"text": "你好\u2028", "speed": 1}',
        [(1, "", "en", "Hi"), (3, "", "", "你好\u2028")],
    ),
    (
        "txt",
        "Ann: Hello.\nBo： 你好。\n  Ann :  Again\n",
        [(1, "Ann", "", "Hello."), (2, "Bo", "", "你好。"), (3, "Ann", "", "Again")],
    ),
    ("txt", "旁白：从前\n有座山。\n\n山里有庙。", [(1, "旁白", "", "从前\n有座山。"), (4, "", "", "山里有庙。")]),
    (
        "txt",
        "It begins at 10:30.\nSee https://example.org: now\r\n",
        [(1, "", "", "It begins at 10:30.\nSee https://example.org: now")],
    ),
    ("txt", "Dr. Lee: Ann: hello", [(1, "Dr. Lee", "", "Ann: hello")]),
    ("txt", "Ann:\nHello.\n", [(1, "Ann", "", "Hello.")]),
    ("txt", "He said, with care: no", [(1, "", "", "He said, with care: no")]),
    ("txt", "One two three four five: no", [(1, "", "", "One two three four five: no")]),
]


@pytest.mark.parametrize(("kind", "data", "lines"), GOOD)
def test_good_input(kind, data, lines):
    assert told(data.encode(), kind) == (lines, [])
    assert told(data, kind) == (lines, [])


BAD = [
    ("csv", b"", [(1, "batch_header")]),
    ("csv", b"words,voice\nHello.,en\n", [(1, "batch_header")]),
    ("csv", b"text,text\nHello.,en\n", [(1, "batch_header")]),
    ("csv", b"text,mood\nHello.,sad\n", [(1, "batch_field_unknown")]),
    ("csv", "text\nOne\nTwo é\n".encode("latin-1"), [(3, "batch_encoding")]),
    ("csv", "text\nOne\n".encode("utf-16"), [(1, "batch_encoding")]),
    ("csv", b"text,voice\nOne, two,en\nThree\nFour,en\n", [(2, MALFORMED), (3, MALFORMED)]),
    ("csv", b'text\nOne\n"Two\n\nThree\n', [(3, MALFORMED)]),
    ("csv", b'text\n"One"x\n', [(2, MALFORMED)]),
    ("csv", b"text,seed,speed\na,1.5,\nb,,fast\nc,,1.5\nd,,nan\n", [(2, INVALID), (3, INVALID), (5, INVALID)]),
    ("csv", b"text\na\0b\n", [(2, INVALID)]),
    (
        "jsonl",
        b'{"text": "a"}\n{"text": \n[1]\n"x"\n{"text": "a", "text": "b"}\n',
        [(2, MALFORMED), (3, MALFORMED), (4, MALFORMED), (5, MALFORMED)],
    ),
    ("jsonl", b'{"text": "a", "mood": 1, "seed": "7"}\n', [(1, "batch_field_unknown"), (1, INVALID)]),
    (
        "jsonl",
        b'{"text": 7}\n{"text": "a", "seed": true}\n{"text": "\\ud800"}\n{"text": "a", "speed": NaN}\n',
        [(1, INVALID), (2, INVALID), (3, INVALID), (4, MALFORMED)],
    ),
    ("jsonl", b'{"text": "a", "name": "' + b"x" * 81 + b'"}', [(1, INVALID)]),
    (
        "jsonl",
        b'{"text": "a", "seed": 1' + b"0" * 400 + b'}\n{"text": "a", "speed": -1' + b"0" * 400 + b"}\n",
        [(1, INVALID), (2, INVALID)],
    ),
    ("jsonl", b"[" * 100_000, [(1, MALFORMED)]),
    ("txt", b"Ann: a\nb\0\n", [(2, INVALID)]),
    ("txt", b"Ann: a\n\xff\n", [(2, "batch_encoding")]),
]


@pytest.mark.parametrize(("kind", "data", "problems"), BAD)
def test_bad_input_is_told_by_its_lines(kind, data, problems):
    assert told(data, kind)[1] == problems


def test_kinds_and_speakers():
    assert [kind_of(name) for name in ("a.CSV", "b.tsv", "c.jsonl", "d.ndjson", "e.txt", "f.doc", "g")] == [
        "csv", "csv", "jsonl", "jsonl", "txt", None, None
    ]  # fmt: skip
    assert set(KINDS) == {"csv", "jsonl", "txt"}
    assert speakers("Bo: a\nAnn：b\nc\nBo: d") == ["Bo", "Ann"]


@pytest.fixture
def check(tmp_path):
    settings = Settings.load({"voices_dir": tmp_path / "voices", "clips_dir": tmp_path, "batch_lines": 50}, {})
    checker = Checker(settings, SavedVoices(settings, ClipStore.from_settings(settings)), None)

    def run(data, kind="txt", cast=None, voice=""):
        return checker.check(parse(data, kind), cast or {}, voice, script=kind == "txt")

    return run


def refused(run, *given, **more):
    with pytest.raises(BatchError) as caught:
        run(*given, **more)
    return [(one.line, one.code, one.field) for one in caught.value.problems], caught.value


def test_every_line_gets_its_voice(check):
    lines = check("Once upon a time.\n\nAnn: Hi.\nBo: 你好。", cast={"Ann": "alloy", "Bo": "zh"}, voice="en")
    assert [line.voice_key for line in lines] == ["en", "alloy", "zh"]
    lines = check("text,voice,name\nOne,,Ann\nTwo,zh,Ann\nThree,,Cy\n", "csv", cast={"Ann": "alloy"}, voice="en")
    assert [line.voice for line in lines] == ["alloy", "zh", "en"]


def test_all_problems_are_told_at_once_in_their_order(check):
    script = "Once.\n\nAnn: Hi.\nBob: Hello.\nBo: ...\nBob: Bye.\nCy: Hm.\n"
    problems, error = refused(check, script, cast={"Ann": "en", "Bo": "en", "Cy": "nobody"})
    assert problems == [
        (1, "voice_missing", "voice"),
        (4, "speaker_unknown", "cast"),
        (5, "text_nothing_to_speak", "text"),
        (6, "speaker_unknown", "cast"),
        (7, "voice_not_found", "voice"),
    ]
    assert "Line 4: 'Bob' has no voice." in error.message
    data = "text,voice,seed,speed,language\n,en,,,\nHi,en,-1,9,\nHi,nobody,x,,\nHi,en,,,xx\n"
    assert refused(check, data, "csv")[0] == [
        (2, "text_empty", "text"),
        (3, "speed_out_of_range", "speed"),
        (3, "seed_out_of_range", "seed"),
        (4, INVALID, "seed"),
        (5, "language_invalid", "language"),
    ]


def test_the_first_are_told_one_by_one(check):
    problems, error = refused(check, "\n".join('{"text": ""}' for _ in range(30)), "jsonl", voice="en")
    assert (len(problems), error.count) == (20, 30)
    assert error.message.endswith("And 10 more problems.")
    with pytest.raises(InputError, match="more than 50 lines"):
        check("\n".join(json.dumps({"text": "a"}) for _ in range(51)), "jsonl", voice="en")
