"""Read a HyperPyYAML file as plain data. Nothing that a tag names is ever imported, created or called.

``!new:``, ``!name:`` and ``!apply:`` nodes become dicts that remember their tag; ``!ref`` is resolved here, with its
arithmetic, by a small evaluator over numbers.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import yaml

TAG = "!tag"
"""Key under which a tagged node keeps its tag, such as ``new:package.Class``."""
ARGS = "!args"
"""Key under which a tagged list or scalar keeps its content."""

_NAME = re.compile(r"<([^<>]+)>")
_KEYS = re.compile(r"[^\[\]]+")
_EXPRESSION_LIMIT = 200
_OPERATORS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}  # no power: 9**9**9 would be a way to hang a reader


@dataclass(frozen=True)
class Unresolved:
    """A reference that leads nowhere. It is an error only where its value is needed, so unused parts may hold some."""

    text: str
    reason: str


@dataclass(frozen=True)
class _Ref:
    text: str


class _DataLoader(yaml.SafeLoader):
    """SafeLoader that keeps tagged nodes as data and reads ``1e-06`` as a number, as HyperPyYAML does."""


def _tagged(loader: yaml.SafeLoader, suffix: str, node: yaml.Node) -> Any:
    if suffix in ("ref", "copy") and isinstance(node, yaml.ScalarNode):
        return _Ref(str(node.value))
    if isinstance(node, yaml.MappingNode):
        return {TAG: suffix, **loader.construct_mapping(node, deep=True)}
    if isinstance(node, yaml.SequenceNode):
        return {TAG: suffix, ARGS: loader.construct_sequence(node, deep=True)}
    return {TAG: suffix, ARGS: str(node.value)}


_DataLoader.add_multi_constructor("!", _tagged)
_DataLoader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)[eE][-+]?\d+$"), list("-+.0123456789")
)


def read_yaml(text: str) -> dict[str, Any]:
    """Parse ``text``; the result holds dict, list, str, int, float, bool, None and `Unresolved` only.

    Raises ValueError if the text is no YAML, its top is no mapping or it carries a tag that is not plain data.
    """
    try:
        # A subclass of SafeLoader: it builds no object but the ones above.
        top = yaml.load(text, Loader=_DataLoader)  # noqa: S506
    except (yaml.YAMLError, RecursionError) as error:
        raise ValueError(f"not readable as YAML: {_first_line(error)}") from error
    if not isinstance(top, dict):
        raise ValueError("not a mapping of keys to values at the top")
    return _Resolver(top).resolve_all()


def _first_line(error: BaseException) -> str:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or str(error).split("\n")[0]
    return f"{problem} (line {mark.line + 1})" if mark is not None else problem


class _Resolver:
    """Replaces references by what they stand for. Shared parts stay shared, so no file can blow up in memory."""

    def __init__(self, top: dict[str, Any]) -> None:
        self._top = top
        self._done: dict[int, Any] = {}
        self._open: set[str] = set()

    def resolve_all(self) -> dict[str, Any]:
        return {str(key): self._resolve(value) for key, value in self._top.items()}

    def _resolve(self, value: Any) -> Any:
        if isinstance(value, _Ref):
            return self._reference(value.text.strip())
        if not isinstance(value, (dict, list)):
            return value
        if id(value) not in self._done:
            if isinstance(value, dict):
                self._done[id(value)] = {str(key): self._resolve(item) for key, item in value.items()}
            else:
                self._done[id(value)] = [self._resolve(item) for item in value]
        return self._done[id(value)]

    def _reference(self, text: str) -> Any:
        if text in self._open:
            return Unresolved(text, "it refers to itself")
        self._open.add(text)
        try:
            whole = _NAME.fullmatch(text)
            return self._lookup(whole[1]) if whole else self._expression(text)
        except (LookupError, ValueError, ArithmeticError, SyntaxError) as error:
            return Unresolved(text, str(error).strip("'\""))
        finally:
            self._open.discard(text)

    def _lookup(self, path: str) -> Any:
        value: Any = self._top
        for key in _KEYS.findall(path):
            if isinstance(value, _Ref):
                value = self._resolve(value)
            if isinstance(value, list) and key.isdecimal() and int(key) < len(value):
                value = value[int(key)]
            elif isinstance(value, dict) and key in value:
                value = value[key]
            else:
                raise LookupError(f"there is no key {path}")
        return self._resolve(value)

    def _expression(self, text: str) -> int | float:
        if len(text) > _EXPRESSION_LIMIT:
            raise ValueError("the expression is too long")
        values: list[Any] = []

        def placeholder(match: re.Match[str]) -> str:
            values.append(self._lookup(match[1]))
            return f" _{len(values) - 1} "

        tree = ast.parse(_NAME.sub(placeholder, text).strip(), mode="eval")
        return _evaluate(tree.body, values)


def _evaluate(node: ast.expr, values: list[Any]) -> int | float:
    if isinstance(node, ast.Constant):
        return _number(node.value)
    if isinstance(node, ast.Name) and node.id[1:].isdecimal() and int(node.id[1:]) < len(values):
        return _number(values[int(node.id[1:])])
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_evaluate(node.operand, values)
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        result: int | float = _OPERATORS[type(node.op)](_evaluate(node.left, values), _evaluate(node.right, values))
        return result
    raise ValueError("only numbers, references, + - * / // % and brackets can stand in a reference")


def _number(value: Any) -> int | float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError(f"{value!r} is not a number")
    return value
