"""The script of a dialogue: ``Anna: Hello.`` on a line of its own, and who speaks in it."""

from __future__ import annotations

import re

from cosyui.service.batch_lines import LONGEST_NAME, Line, LineError, Parsed

_SPEAKER = re.compile(r"\s*([^\W_][^:：!?,;\"。！？，；“”<>\[\]{}]{0,79}?)\s*(?:：|:(?=\s|$))\s*(.*)", re.DOTALL)
"""A name has no marks in it but a point, and after a half-width colon comes a blank: 10:30 and https:// are text."""
MOST_WORDS = 4


def speaker_of(line: str) -> tuple[str, str]:
    """The name before the colon, ``""`` for none, and what is said."""
    match = _SPEAKER.match(line)
    if match is None or len(match[1].split()) > MOST_WORDS or len(match[1]) > LONGEST_NAME:
        return "", line.strip()
    return " ".join(match[1].split()), match[2].strip()


def speakers(text: str) -> list[str]:
    """Each once, in the order of their first words."""
    named = (speaker_of(line)[0] for line in text.split("\n"))
    return list(dict.fromkeys(name for name in named if name))


def parse_script(text: str) -> Parsed:
    """A line without a name goes on with the one above it; after an empty line, the default voice begins anew."""
    parsed = Parsed([], [])
    going = False
    for number, line in enumerate(text.split("\n"), 1):
        if "\0" in line or any("\ud800" <= char <= "\udfff" for char in line):
            message = "The line has a NUL or half a character in it."
            parsed.problems.append(LineError("batch_field_invalid", message, "text", number))
            continue
        name, said = speaker_of(line)
        if name or (said and not going):
            parsed.lines.append(Line(number=number, text=said, name=name))
            going = True
        elif said:
            before = parsed.lines[-1]
            parsed.lines[-1] = before.model_copy(update={"text": f"{before.text}\n{said}".strip()})
        else:
            going = False
    return parsed
