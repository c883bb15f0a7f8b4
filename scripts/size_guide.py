"""Fails when a file or function outgrows the house sizes; prints the largest ones.

Code lines only: blank lines, comments and docstrings are free.
"""

import ast
import io
import pathlib
import sys
import tokenize
from collections.abc import Iterator
from typing import NamedTuple

ROOT = pathlib.Path(__file__).resolve().parent.parent
FOLDERS = ("src", "tests", "benchmarks", "scripts")
NUM_SHOWN = 3

# What may be larger than the limit, and why. Key: "path" or "path::function".
EXCEPTIONS: dict[str, str] = {}

SKIPPED_TOKENS = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
    tokenize.ENDMARKER,
}


class Limit(NamedTuple):
    """Code lines above which a unit should be reviewed, and above which it fails."""

    review: int
    fail: int


FILE_LIMIT = Limit(300, 500)
FUNCTION_LIMIT = Limit(40, 60)


class Unit(NamedTuple):
    """One file or function and its code lines."""

    name: str
    num_lines: int
    limit: Limit


def code_lines(source: str) -> set[int]:
    """Numbers of the lines that hold code; the first line is 1."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in SKIPPED_TOKENS:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(source)):
        if _has_docstring(node):
            lines.difference_update(range(node.body[0].lineno, _end(node.body[0]) + 1))
    return lines


def units(path: str, source: str) -> Iterator[Unit]:
    """The file itself, then each of its functions."""
    lines = code_lines(source)
    yield Unit(path, len(lines), FILE_LIMIT)
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            own = lines.intersection(range(node.lineno, _end(node) + 1))
            yield Unit(f"{path}::{node.name}", len(own), FUNCTION_LIMIT)


def too_large(found: list[Unit], exceptions: dict[str, str]) -> list[str]:
    """One complaint per unit above its limit, and per exception no longer needed."""
    large = {u.name: u for u in found if u.num_lines > u.limit.fail}
    complaints = [
        f"{u.name}: {u.num_lines} code lines, the limit is {u.limit.fail}"
        for u in large.values()
        if u.name not in exceptions
    ]
    unused = [name for name in exceptions if name not in large]
    return complaints + [f"{name}: no longer needs its exception" for name in unused]


def _has_docstring(node: ast.AST) -> bool:
    holders = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    return isinstance(node, holders) and ast.get_docstring(node) is not None


def _end(node: ast.stmt) -> int:
    return node.end_lineno or node.lineno


def main() -> int:
    """Print the largest units and the complaints; exit status 1 if there are any."""
    found = [
        unit
        for folder in FOLDERS
        for path in sorted((ROOT / folder).rglob("*.py"))
        for unit in units(str(path.relative_to(ROOT)), path.read_text("utf-8"))
    ]
    for kind, limit in (("files", FILE_LIMIT), ("functions", FUNCTION_LIMIT)):
        same_kind = [u for u in found if u.limit == limit]
        largest = sorted(same_kind, key=lambda u: -u.num_lines)[:NUM_SHOWN]
        num_review = sum(u.num_lines > limit.review for u in same_kind)
        listed = ", ".join(f"{u.name} {u.num_lines}" for u in largest)
        print(f"{num_review} {kind} above {limit.review}; largest: {listed}")
    complaints = too_large(found, EXCEPTIONS)
    print("\n".join(complaints), end="\n" if complaints else "")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
