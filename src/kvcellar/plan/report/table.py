"""Aligned columns and wrapped sentences."""

import textwrap
from collections.abc import Iterator, Sequence


def table(rows: Sequence[Sequence[str]], left: Sequence[int] = (0,)) -> Iterator[str]:
    """One line per row; numbers to the right.

    Args:
        left: columns of words.
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [
            cell.ljust(width) if i in left else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        yield "  ".join(cells).rstrip()


def wrapped(text: str, width: int, first: str = "  ", others: str = "  ") -> str:
    """A sentence in lines that a terminal shows whole.

    Args:
        width: of the terminal, in characters.
        first: before its first line.
        others: before the others.
    """
    return textwrap.fill(
        text,
        width,
        initial_indent=first,
        subsequent_indent=others,
        break_long_words=False,
        break_on_hyphens=False,
    )
