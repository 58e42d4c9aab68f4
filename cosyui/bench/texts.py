"""``python -m cosyui.bench texts FILE.jsonl``: what becomes of texts on their way to the model, judged case by case.

One JSON object a line: ``id``, ``text``, ``prompt_text`` (transcript of the clip; in mode ``instruct`` the
instruction), ``mode`` (``zero_shot``, ``saved_voice``, ``cross_lingual``, ``instruct``), ``expect`` (``ok``, ``split``:
more than one segment, ``reject``) and ``note``. Parts of a note are separated by ``;``: ``say:`` lists pieces that must
be spoken, joined by `` & ``, with `` / `` between equal choices; ``not:`` lists pieces that must not be; ``or reject
with CODE`` and ``or ok with a warning`` allow another outcome; any other part is a comment. No weights are loaded.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cosyui.bench.text_timing import report
from cosyui.engine.request import Mode, PromptClip, SynthesisRequest
from cosyui.errors import InputError, SetupError
from cosyui.hub import resolve
from cosyui.model.config import load_config
from cosyui.model.tokenizer import END_OF_PROMPT, TextTokenizer
from cosyui.notice import Notice
from cosyui.speech.prompt_format import SegmentInput, TextFrontend
from cosyui.speech.text.markup import join
from cosyui.speech.text.prepare import has_speech

MODES = {"zero_shot": Mode.ZERO_SHOT, "saved_voice": Mode.ZERO_SHOT, "cross_lingual": Mode.CROSS_LINGUAL,
         "instruct": Mode.INSTRUCT}  # fmt: skip
EXPECTED = ("ok", "split", "reject")
_MAY_REFUSE = re.compile(r"or reject(?:ed)? with (\w+)")
_MAY_WARN = re.compile(r"or ok with an? (?:[\w-]+ )?warning")


@dataclass(frozen=True)
class Case:
    """``say``: each piece as its equal choices; ``refusal``: a code that is right, too; ``warned``: so is a warning."""

    id: str
    text: str
    prompt_text: str
    mode: Mode
    expect: str
    say: tuple[tuple[str, ...], ...] = ()
    avoid: tuple[str, ...] = ()
    refusal: str | None = None
    warned: bool = False


@dataclass(frozen=True)
class Outcome:
    """What the front end made of a case: segments, or the error with which it was refused."""

    segments: tuple[SegmentInput, ...] = ()
    warnings: tuple[Notice, ...] = ()
    error: InputError | None = None

    def __str__(self) -> str:
        if self.error:
            return f"refused with {self.error.code}"
        return " | ".join(segment.text for segment in self.segments)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", type=Path, nargs="?", help="cases, one JSON object a line")
    parser.add_argument("--timing", action="store_true", help="time long texts of many kinds instead")
    parser.add_argument("--model", default="embedded", help="whose tokenizer counts (default: the embedded voice)")
    parser.add_argument(
        "--frontend",
        choices=("released", "checkpoint"),
        default="released",
        help="released: the text itself goes to the tokenizer; checkpoint: by the front end that the checkpoint names",
    )


def run(args: argparse.Namespace) -> int:
    """Print a line per case and the count. 0 if all are right."""
    if args.file is None and not args.timing:
        raise SetupError("cases_invalid", "Name a file of cases, or use --timing.")
    cases = [] if args.timing else list(read_cases(args.file))
    folder = resolve(args.model)
    tokenizer = TextTokenizer(folder / "CosyVoice-BlankEN")
    name = load_config(folder).text_frontend if args.frontend == "checkpoint" else None
    frontend = TextFrontend(tokenizer, name)
    if args.timing:
        report(frontend)
        return 0
    right = 0
    for case in cases:
        outcome = prepare_case(case, frontend)
        problems = [*judge(case, outcome), *faults(outcome, frontend, tokenizer)]
        right += not problems
        print(f"FAIL {case.id}: said {str(outcome)[:300]!r}; {'; '.join(problems)}" if problems else f"ok   {case.id}")
    print(f"texts: {right} of {len(cases)}")
    return 0 if right == len(cases) else 1


def read_cases(file: Path) -> Iterator[Case]:
    """The cases of a file. Raises SetupError ``cases_invalid`` that names the line and what is wrong with it."""
    try:
        lines = file.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise SetupError("cases_invalid", f"{file} cannot be read: {error}.") from None
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            yield parse_case(json.loads(line))
        except json.JSONDecodeError as error:
            raise SetupError("cases_invalid", f"{file.name}, line {number}: not JSON ({error.msg}).") from None
        except ValueError as error:
            raise SetupError("cases_invalid", f"{file.name}, line {number}: {error}.") from None


def parse_case(data: Any) -> Case:
    """A case from its JSON object. Raises ValueError that says what is wrong."""
    if not isinstance(data, dict):
        raise ValueError("not a JSON object")
    fields: dict[str, str] = {}
    for key in ("id", "text", "prompt_text", "mode", "expect", "note"):
        value = data.get(key, "" if key == "note" else None)
        if not isinstance(value, str):
            raise ValueError(f"{key!r} is missing or is no text")
        fields[key] = value
    for key, known in (("mode", tuple(MODES)), ("expect", EXPECTED)):
        if fields[key] not in known:
            raise ValueError(f"{key!r} is {fields[key]!r}, not one of {', '.join(known)}")
    say: list[tuple[str, ...]] = []
    avoid: list[str] = []
    note, mode = fields.pop("note"), MODES[fields.pop("mode")]
    for part in re.split(r";\s", note + " "):
        kind, _, pieces = part.strip().rstrip(";").partition(":")
        if kind == "say":
            say += [tuple(choice.strip() for choice in piece.split(" / ")) for piece in pieces.split(" & ")]
        elif kind == "not":
            avoid += [piece.strip() for piece in pieces.split(" & ")]
    if not all(all(choices) for choices in say) or not all(avoid):
        raise ValueError("an empty piece in 'say' or 'not'")
    refusal = _MAY_REFUSE.search(note)
    return Case(
        **fields,
        mode=mode,
        say=tuple(say),
        avoid=tuple(avoid),
        refusal=refusal.group(1) if refusal else None,
        warned=bool(_MAY_WARN.search(note)),
    )


def prepare_case(case: Case, frontend: TextFrontend) -> Outcome:
    """The whole gate, as the engine calls it; the language is left to be found out."""
    instruct = case.mode is Mode.INSTRUCT
    clip = PromptClip(np.zeros(1, np.float32), 24_000, "" if instruct else case.prompt_text)
    instruction = case.prompt_text if instruct else ""
    request = SynthesisRequest(case.id, case.text, case.mode, clip, 0, instruction=instruction)
    try:
        segments, warnings = frontend.segments(request)
    except InputError as error:
        return Outcome(error=error)
    return Outcome(tuple(segments), warnings)


def judge(case: Case, outcome: Outcome) -> list[str]:
    """What differs from what the case wants; nothing if it came out right."""
    if outcome.error:
        if case.expect == "reject" or _may_refuse(case, outcome.error.code):
            return []
        return [f"wanted {case.expect}: {outcome.error}"]
    if case.expect == "reject" and not (case.warned and outcome.warnings):
        return ["wanted a refusal" + (" or a warning" if case.warned else "")]
    problems = []
    if case.expect == "split" and len(outcome.segments) < 2:
        problems.append("wanted more than one segment")
    forms = spoken_forms([segment.text for segment in outcome.segments])
    silent = [choices for choices in case.say if not any(_says(form, choice) for form in forms for choice in choices)]
    problems += [f"wanted {' / '.join(choices)!r}" for choices in silent]
    there = [piece for piece in case.avoid if any(_flat(piece) in form for form in forms)]
    return problems + [f"{piece!r} should not be there" for piece in there]


def _may_refuse(case: Case, code: str) -> bool:
    """Whether a refusal is as good as speech. A note's code names the kind: its last word must be the same.

    A clone without transcript is refused on every route, so also where a note says that a blank one is none.
    """
    if case.mode is Mode.ZERO_SHOT and not case.prompt_text.strip() and code == "transcript_missing":
        return True
    return case.refusal is not None and case.refusal.split("_")[-1] == code.split("_")[-1]


def spoken_forms(texts: list[str]) -> tuple[str, ...]:
    """The text that the segments make up. Nobody hears whether there was a blank where it was cut: once with, once
    without.
    """
    return tuple(dict.fromkeys((_flat(join(texts)), _flat("".join(texts)))))


def _flat(text: str) -> str:
    return " ".join(text.casefold().split())


def _says(form: str, piece: str) -> bool:
    """Whether a piece is there; one in Latin letters at the start of a word: ``one`` is not in ``phone``."""
    piece = _flat(piece)
    boundary = "(?<![a-z])" if piece[:1].isascii() and piece[:1].isalpha() else ""
    return bool(re.search(boundary + re.escape(piece), form))


def faults(outcome: Outcome, frontend: TextFrontend, tokenizer: TextTokenizer) -> Iterator[str]:
    """What must never happen, whatever a case wants."""
    if outcome.error:
        return
    if not outcome.segments:
        yield "no segment and no error"
    controls = {tokenizer.id_of(token) for token in tokenizer.controls}
    for number, segment in enumerate(outcome.segments, start=1):
        ids = (*segment.prompt_text_ids, *segment.text_ids)
        spoken = segment.text_ids[len(segment.text_ids) - segment.spoken_ids :]
        if not spoken or not has_speech(segment.text):
            yield f"segment {number} is empty"
        if len(spoken) > frontend.limits.max_tokens:
            yield f"segment {number} has {len(spoken)} tokens, over {frontend.limits.max_tokens}"
        if [id_ for id_ in ids if id_ in controls] != [tokenizer.id_of(END_OF_PROMPT)] or controls & set(spoken):
            yield f"segment {number} has not exactly one end of prompt, before its text"
        if "<|" in segment.text or "<|" in tokenizer.decode(ids):
            yield f"segment {number} spells a control token"
        if not 0 <= segment.pause <= 10 or (segment.pause and number == len(outcome.segments)):
            yield f"segment {number} asks for {segment.pause} s of silence"
