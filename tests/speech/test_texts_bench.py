"""``bench texts``: the tables of texts come out right, and the judge can tell when they do not."""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path

import pytest

from cosyui.bench import texts
from cosyui.bench.__main__ import main
from cosyui.bench.text_timing import KINDS, kind, report
from cosyui.errors import SetupError
from cosyui.hub import EMBEDDED_FOLDER
from cosyui.model.tokenizer import TextTokenizer
from cosyui.speech.prompt_format import TextFrontend

DATA = Path(__file__).parent / "data"
CASES = [
    case for name in ("texts.jsonl", "texts_gate.jsonl", "texts_more.jsonl") for case in texts.read_cases(DATA / name)
]
TOKENIZER = TextTokenizer(EMBEDDED_FOLDER / "CosyVoice-BlankEN")
FRONTEND = TextFrontend(TOKENIZER)


def problems(case: texts.Case) -> list[str]:
    outcome = texts.prepare_case(case, FRONTEND)
    return [*texts.judge(case, outcome), *texts.faults(outcome, FRONTEND, TOKENIZER)]


@pytest.mark.parametrize("case", CASES, ids=[case.id for case in CASES])
def test_text(case: texts.Case) -> None:
    assert problems(case) == []


def case(text: str = "明天见。", expect: str = "ok", note: str = "", **changes: str) -> texts.Case:
    return texts.parse_case(
        {"id": "x", "text": text, "prompt_text": "今天散步。", "mode": "zero_shot", "expect": expect, "note": note}
        | changes
    )


MUST_FAIL = {
    "refused though speech is wanted": case("。。。"),
    "spoken though a refusal is wanted": case("好的。", "reject"),
    "spoken without the allowed warning": case("好的。", "reject", "or ok with a warning"),
    "refused for another reason": case("。。。", note="or reject with text_too_long"),
    "a piece is missing": case(note="say: 后天"),
    "one of two pieces is missing": case(note="say: 明天 & 后天"),
    "neither choice": case(note="say: 后天 / 昨天"),
    "a piece that must not be": case(note="not: 见"),
    "in another case of letters": case("Hello World.", note="not: hello world"),
    "not from the start of a word": case("My phone.", note="say: one"),
    "one segment only": case(expect="split"),
    "no transcript is no reason for the text": case("。", prompt_text=""),
    "instruction missing": case(mode="instruct", prompt_text=" "),
    "over a joint of sentences": case("第一章\n春天来了。", "split", "say: 第一章春天"),
}


@pytest.mark.parametrize("wrong", MUST_FAIL.values(), ids=MUST_FAIL.keys())
def test_the_judge_can_fail(wrong: texts.Case) -> None:
    assert problems(wrong) != []


MUST_PASS = {
    "either choice": case("我有3个。", note="say: 四个 / 三个; a comment: not a rule"),
    "across a joint": case(
        "the boat moved along the quiet shore and " * 8, "split", "say: shore and the boat moved along"
    ),
    "spaces and letter case": case("Hello   World.", note="say:  hello world "),
    "the kind of refusal": case("شكرا", "reject", "or ok with an unsupported-language warning"),
    "blank transcript": case(prompt_text="  "),
    "a slash of its own": case("一。", note="not: / & km/h"),
    "instruction": case(mode="instruct", prompt_text="慢一点。"),
    "saved voice": case(mode="saved_voice"),
    "cross-lingual": case(mode="cross_lingual", prompt_text=""),
}


@pytest.mark.parametrize("right", MUST_PASS.values(), ids=MUST_PASS.keys())
def test_the_judge_allows_what_a_note_allows(right: texts.Case) -> None:
    assert problems(right) == []


def test_faults_are_found_whatever_a_case_wants() -> None:
    outcome = texts.prepare_case(case(), FRONTEND)
    segment = outcome.segments[0]
    bad = {
        "tokens, over": {"text_ids": segment.text_ids * 99, "spoken_ids": len(segment.text_ids) * 99},
        "end of prompt": {"prompt_text_ids": segment.prompt_text_ids * 2},
        "is empty": {"text": "。"},
        "spells": {"text": "a<|b"},
        "silence": {"pause": 1.0},
    }
    for told, changes in bad.items():
        changed = texts.Outcome((replace(segment, **changes),))
        assert any(told in fault for fault in texts.faults(changed, FRONTEND, TOKENIZER))
    assert list(texts.faults(texts.Outcome(), FRONTEND, TOKENIZER)) == ["no segment and no error"]


GOOD = {"id": "a", "text": "好。", "prompt_text": "好。", "mode": "zero_shot", "expect": "ok", "note": ""}
BAD_LINES = {
    "not json": "{",
    "JSON object": "[1]",
    "'text' is missing": json.dumps({key: value for key, value in GOOD.items() if key != "text"}),
    "'id' is missing or is no text": json.dumps(GOOD | {"id": 1}),
    "'mode' is 'x', not one of": json.dumps(GOOD | {"mode": "x"}),
    "'expect' is 'maybe'": json.dumps(GOOD | {"expect": "maybe"}),
    "empty piece": json.dumps(GOOD | {"note": "say: a &  & b"}),
}


@pytest.mark.parametrize(("told", "line"), BAD_LINES.items())
def test_a_bad_line_is_named(tmp_path: Path, told: str, line: str) -> None:
    file = tmp_path / "cases.jsonl"
    file.write_text(f"{json.dumps(GOOD)}\n\n{line}\n", encoding="utf-8")
    with pytest.raises(SetupError, match="(?i)line 3: .*" + told.replace("(", ".")) as caught:
        list(texts.read_cases(file))
    assert caught.value.code == "cases_invalid"


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "cases.jsonl"
    file.write_text("\n".join(map(json.dumps, [GOOD, GOOD | {"id": "b", "note": "say: 坏"}])), encoding="utf-8")
    assert main(["texts", str(file)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["ok", "a"]
    assert lines[1].startswith("FAIL b")
    assert "'好。'" in lines[1]
    assert "'坏'" in lines[1]
    assert lines[2] == "texts: 1 of 2"
    file.write_text(json.dumps(GOOD), encoding="utf-8")
    assert main(["texts", str(file), "--frontend", "checkpoint"]) == 0
    assert main(["texts", str(tmp_path / "none.jsonl")]) == 2


def test_options() -> None:
    parser = argparse.ArgumentParser()
    texts.add_arguments(parser)
    args = parser.parse_args(["file"])
    assert (args.model, args.frontend) == ("embedded", "released")


def test_timing_has_a_row_for_every_kind(capsys: pytest.CaptureFixture[str]) -> None:
    assert all(len(kind(name, 1000)) == 1000 for name in KINDS)
    report(FRONTEND, sizes=(200,))
    rows = capsys.readouterr().out.splitlines()[1:]
    assert [row[:26].strip() for row in rows] == list(KINDS)
    assert all(float(row[26:]) >= 0 for row in rows)


def test_a_file_or_timing_is_needed() -> None:
    with pytest.raises(SetupError, match="--timing"):
        texts.run(argparse.Namespace(file=None, timing=False))
