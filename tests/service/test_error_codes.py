"""docs/errors.md knows every code that the source can raise."""

import ast
import re
from pathlib import Path

import cosyui

ROOT = Path(cosyui.__file__).parent
DOCUMENTED = re.findall(r"^\| `(\w+)` \|", (ROOT.parent / "docs" / "errors.md").read_text("utf-8"), re.MULTILINE)
POSITION = {"Failed": 1, "refused": 0}


def codes_in(path):
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if not isinstance(node, ast.Call):
            continue
        name = getattr(node.func, "id", getattr(node.func, "attr", ""))
        place = POSITION.get(name, 0)
        if (name.lower().endswith("error") or name in POSITION) and len(node.args) > place + 1:
            yield from patterns(node.args[place])


def patterns(code):
    """Patterns of the codes that an expression can be."""
    match code:
        case ast.Constant(value=str(text)) if text.isidentifier():
            yield text
        case ast.JoinedStr():  # one sentence for several fields
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else r"\w+" for part in code.values)
        case ast.IfExp():
            yield from patterns(code.body)
            yield from patterns(code.orelse)


def test_every_code_is_documented_once():
    raised = {code for path in ROOT.rglob("*.py") for code in codes_in(path)}
    assert {"text_empty", "clip_missing", "checkpoint_tensor", "setting_unknown"} <= raised
    assert [code for code in raised if not any(re.fullmatch(code, known) for known in DOCUMENTED)] == []
    assert len(DOCUMENTED) == len(set(DOCUMENTED))
