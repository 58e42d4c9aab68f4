"""What watches depends on nothing that it watches."""

import ast
from pathlib import Path

import cosyui.ops

FOLDER = Path(cosyui.ops.__file__).parent


def test_the_room_imports_nothing_of_ours_but_itself():
    imported = {
        node.module
        for path in FOLDER.glob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom) and node.module.startswith("cosyui")
    }
    assert imported
    assert {name for name in imported if not name.startswith("cosyui.ops.")} == set()


def test_files_stay_short():
    assert all(len(path.read_text(encoding="utf-8").splitlines()) < 300 for path in FOLDER.glob("*.py"))
