"""A deployment's own pronunciations: what they replace, what they leave alone, and what a wrong line says."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app import BAD_SETUP, main
from cosyui.errors import SetupError
from cosyui.host.config import HostConfig
from cosyui.settings import Settings
from cosyui.speech.text.lexicon import MAX_BYTES, Lexicon

FILE = """# how we say it

重庆 = [ch][óng][q][ìng]
重庆大学=重大
SQL = sequel
Kubernetes = [K][UW2][B][ER0]
New York = nu york
Ａ４ = a four
"""

APPLIED = {
    "我在重庆。": "我在[ch][óng][q][ìng]。",
    "重庆大学在重庆": "重大在[ch][óng][q][ìng]",
    "学SQL，不学sql和MySQL或SQLite": "学sequel，不学sql和MySQL或SQLite",
    "kubernetes and KUBERNETES": "[K][UW2][B][ER0] and [K][UW2][B][ER0]",
    "I like SQL. New york!": "I like sequel. nu york!",
    "用A4纸": "用a four纸",
    "a@SQL.org, https://SQL.org/SQL, www.SQL.com, SQL.io": "a@SQL.org, https://SQL.org/SQL, www.SQL.com, SQL.io",
    "[h][ǎo][breath]": "[h][ǎo][breath]",
    "": "",
}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "words.txt"
    path.write_text(FILE, encoding="utf-8-sig")
    return path


@pytest.mark.parametrize(("text", "spoken"), APPLIED.items())
def test_apply(file: Path, text: str, spoken: str) -> None:
    assert Lexicon.load(file).apply(text) == spoken


WRONG = {
    "nothing": "must be a word, =",
    "= b": "nothing before",
    "a =": "nothing after",
    "a = 。": "nothing in its spoken form",
    "a = [hao3]": r"write \[h\]\[ǎo\]",
    "a = [h]": "an initial needs its final",
    "a = [music]": r"no marks of this model.*\[music\]",
    "[h] = x": "is no word",
    "a.com = b": "is no word",
    "。 = 句号": "is no word",
    f"{'a' * 61} = b": "at most 60",
    "ok = well": "there twice",
}


@pytest.mark.parametrize(("line", "reason"), WRONG.items())
def test_a_wrong_line_is_named_with_its_reason(tmp_path: Path, line: str, reason: str) -> None:
    path = tmp_path / "words.txt"
    path.write_text(f"ok = well\n{line}\n", encoding="utf-8")
    with pytest.raises(SetupError, match=f"words.txt, line 2: .*{reason}") as caught:
        Lexicon.load(path)
    assert caught.value.code == "lexicon_invalid"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"\xff\xfe", "UTF-8"),
        (b"#" * (MAX_BYTES + 1), "larger"),
        ("\n".join(f"w{n} = x" for n in range(5001)).encode(), "5000"),
    ],
)
def test_a_file_that_cannot_be_used(tmp_path: Path, content: bytes, reason: str) -> None:
    path = tmp_path / "words.txt"
    path.write_bytes(content)
    with pytest.raises(SetupError, match=reason):
        Lexicon.load(path)
    with pytest.raises(SetupError, match="cannot be read"):
        Lexicon.load(tmp_path / "none.txt")


@given(st.text(alphabet="aAbBİß重庆 .@[h]1", max_size=40))
def test_what_is_in_no_entry_stays(text: str) -> None:
    assert Lexicon([]).apply(text) == text
    assert Lexicon([("zzz", "x")]).apply(text) == text
    marked = Lexicon([("重庆", "<>"), ("ab", "<>")]).apply(text)
    assert len(marked) == len(text)


def test_the_setting_reaches_the_engine_and_is_checked_at_the_start(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = Settings.load({"lexicon": file}, {})
    assert HostConfig.from_settings(settings).engine.lexicon == file
    file.write_text("a = [hao3]", encoding="utf-8")
    assert main(["--check", "--lexicon", str(file), "--outputs-dir", str(tmp_path / "out")]) == BAD_SETUP
    assert "words.txt, line 1" in capsys.readouterr().err
