"""Tests as text: which there are, with which parameters, and what they run on.

Nothing of a test is run, so that this needs neither vLLM nor PyTorch. Of a file only
the plain constants and the parameters' expressions are worked out.
"""

import ast
import functools
import itertools
import pathlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[2]

Case = dict[str, object]
"""One set of parameters of a test, by name."""

_BUILTINS = {"dict": dict, "range": range, "set": set, "sorted": sorted}


@dataclass(frozen=True)
class TestFile:
    """One file of tests.

    Attributes:
        path: from the top of the tree.
        tree: its syntax.
        constants: its plain constants by name, and those that were lent to it.
    """

    path: str
    tree: ast.Module
    constants: Mapping[str, object]

    def test(self, name: str) -> ast.FunctionDef:
        """The test of that name, or of that end of a name in a class.

        Raises:
            LookupError: the file has none; whoever renamed it finds it here.
        """
        for node in ast.walk(self.tree):
            if isinstance(node, ast.FunctionDef) and node.name == name:
                return node
        raise LookupError(f"{self.path} has no test {name}; mend scripts/pages")

    def cases(self, name: str) -> list[Case]:
        """Every set of parameters that the test runs with."""
        lists = [self._listed(call) for call in self._parametrize_calls(name)]
        return [
            {key: value for part in parts for key, value in part.items()}
            for parts in itertools.product(*lists)
        ]

    def has_marker(self, name: str, marker: str) -> bool:
        """Whether the test or the whole file has ``pytest.mark.<marker>``."""
        marks = [ast.unparse(d) for d in self.test(name).decorator_list]
        of_file = _assigned(self.tree, "pytestmark")
        marks += [] if of_file is None else [ast.unparse(of_file)]
        return any(f"pytest.mark.{marker}" in mark for mark in marks)

    def uses_module(self, name: str, prefix: str) -> bool:
        """Whether a test uses a module of that beginning, itself or through helpers.

        Helpers are functions, fixtures and classes of the same file that it names.
        """
        modules = dict(_imported(self.tree))
        local = {n.name: n for n in self.tree.body if isinstance(n, _Definition)}
        waiting, seen = [self.test(name)], set()
        while waiting:
            for word in _words(waiting.pop()) - seen:
                seen.add(word)
                if modules.get(word, "").startswith(prefix):
                    return True
                if word in local:
                    waiting.append(local[word])
        return False

    def _parametrize_calls(self, name: str) -> Iterator[ast.Call]:
        for decorator in self.test(name).decorator_list:
            call = decorator
            if isinstance(decorator, ast.Name):
                call = _assigned(self.tree, decorator.id)
            if isinstance(call, ast.Call) and "parametrize" in ast.unparse(call.func):
                yield call

    def _listed(self, call: ast.Call) -> list[Case]:
        names = self._value(call.args[0])
        split = names.split(",") if isinstance(names, str) else list(names)
        keys = [key.strip() for key in split]
        rows = self._value(call.args[1])
        return [
            dict(zip(keys, row if len(keys) > 1 else (row,), strict=True))
            for row in rows
        ]

    def _value(self, node: ast.expr) -> Any:
        expression = ast.fix_missing_locations(ast.Expression(node))
        scope = {"__builtins__": _BUILTINS, **self.constants}
        return eval(compile(expression, self.path, "eval"), scope)


@functools.cache
def read(path: str, lent: tuple[tuple[str, object], ...] = ()) -> TestFile:
    """Read one file.

    Args:
        path: from the top of the tree.
        lent: names and values of constants that the file imports.
    """
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    file = TestFile(path, tree, dict(lent))
    constants = dict(lent)
    for node in tree.body:
        name = _name_of(node)
        if name and isinstance(node, ast.Assign | ast.AnnAssign) and node.value:
            try:
                constants[name] = TestFile(path, tree, constants)._value(node.value)
            except (NameError, TypeError, AttributeError):
                continue  # made by a call: nothing that a table could show
    return TestFile(path, tree, constants) if constants else file


def _name_of(node: ast.stmt) -> str:
    if isinstance(node, ast.Assign) and len(node.targets) == 1:
        target = node.targets[0]
    elif isinstance(node, ast.AnnAssign):
        target = node.target
    else:
        return ""
    return target.id if isinstance(target, ast.Name) else ""


def _assigned(tree: ast.Module, name: str) -> ast.expr | None:
    values = [n.value for n in tree.body if _name_of(n) == name and n.value]
    return values[-1] if values else None


_Definition = ast.FunctionDef | ast.ClassDef


def _imported(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Each name that an import makes, and the module it stands for or comes from."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                yield alias.asname or alias.name, f"{node.module}.{alias.name}"
        elif isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.asname or alias.name.split(".")[0], alias.name


def _words(node: ast.AST) -> set[str]:
    """Names used inside, arguments included: those of a test are fixtures."""
    names = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
    return names | {n.arg for n in ast.walk(node) if isinstance(n, ast.arg)}
