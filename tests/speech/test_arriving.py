"""Parts of a text that arrives: the same however it is cut into pieces, and whole sentences."""

from cosyui.speech.text.arriving import Arriving
from cosyui.speech.text.passages import HARD_CUT_PAUSE, PARAGRAPH_PAUSE


def parts_of(text, longest=200):
    arriving = Arriving(longest)
    whole = arriving.add(text) + arriving.flush()
    arriving = Arriving(longest)
    assert [part for sign in text for part in arriving.add(sign)] + arriving.flush() == whole
    return whole


def test_parts_end_where_sentences_do_and_are_never_too_long():
    parts = parts_of(
        "Mr. Bell came at 3.15 p.m. today. He said: “Wait…” Then he sat down on the bench. \n\n二。你好吗？😀"
    )
    assert parts[0].text == "Mr. Bell came at 3.15 p.m. today."
    assert "".join(part.text for part in parts[1:]).startswith("He said: “Wait…” Then he sat down on the bench.")
    pauses = [part.pause for part in parts_of("Here is the first paragraph.\n\nHere comes another")]
    assert pauses == [PARAGRAPH_PAUSE, HARD_CUT_PAUSE]
    for text in ("word " * 400, "字" * 900, "x" * 1000, "你好，" * 300):
        parts = parts_of(text)
        assert max(len(part.text) for part in parts) <= 200
        assert "".join("".join(part.text.split()) for part in parts) == "".join(text.split())
    assert parts_of("-" * 1000) == []
    assert parts_of("。！ … ") == []
