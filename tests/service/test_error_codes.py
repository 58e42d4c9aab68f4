"""docs/errors.md knows every code that the source can raise."""

import ast
import re
from pathlib import Path

import cosyui

ROOT = Path(cosyui.__file__).parent
DOCUMENTED = re.findall(r"^\| `(\w+)` \|", (ROOT.parent / "docs" / "errors.md").read_text("utf-8"), re.MULTILINE)
POSITION = {"Failed": 1}


def codes_in(path):
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if not isinstance(node, ast.Call):
            continue
        name = getattr(node.func, "id", getattr(node.func, "attr", ""))
        place = POSITION.get(name, 0)
        if (name.lower().endswith("error") or name in POSITION) and len(node.args) > place + 1:
            code = node.args[place]
            if isinstance(code, ast.Constant) and isinstance(code.value, str) and code.value.isidentifier():
                yield code.value


def test_every_code_is_documented_once():
    raised = {code for path in ROOT.rglob("*.py") for code in codes_in(path)}
    assert {"text_empty", "checkpoint_tensor", "setting_unknown"} <= raised
    assert raised - set(DOCUMENTED) == set()
    assert len(DOCUMENTED) == len(set(DOCUMENTED))
