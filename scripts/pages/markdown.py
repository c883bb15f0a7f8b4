"""Small pieces of Markdown that all rendered pages share."""

from collections.abc import Iterable, Iterator

COMMAND = ".venv/bin/python scripts/render_docs.py"


def origin(source: str) -> str:
    """The line under a page's title that says what it is made from."""
    return f"Made from {source} by `scripts/render_docs.py`; change it there, not here."


def table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    """A table's lines; bars inside a cell are escaped."""
    yield f"| {' | '.join(head)} |"
    yield f"|{'---|' * len(head)}"
    for row in rows:
        yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |"


def code(text: str) -> Iterator[str]:
    """A block of text as it stands."""
    yield from ("```text", text.rstrip("\n"), "```")
