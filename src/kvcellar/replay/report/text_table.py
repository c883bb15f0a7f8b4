"""A table of text, whose width is known before it is printed."""

from collections.abc import Sequence
from typing import NamedTuple

_GAP = "  "


class TextColumn(NamedTuple):
    """A heading and what stands below it; words to the left, numbers to the right."""

    heading: str
    cells: tuple[str, ...]
    is_text: bool = False

    @property
    def width(self) -> int:
        """In characters."""
        return max(map(len, (self.heading, *self.cells)))

    def padded(self, text: str) -> str:
        """The text of one of its cells, as wide as the column."""
        return text.ljust(self.width) if self.is_text else text.rjust(self.width)


def width_of(columns: Sequence[TextColumn]) -> int:
    """Of the whole table, in characters."""
    return sum(one.width for one in columns) + len(_GAP) * (len(columns) - 1)


def table_lines(columns: Sequence[TextColumn]) -> list[str]:
    """The headings, then one line per row."""
    rows = zip(*((one.heading, *one.cells) for one in columns), strict=True)
    return [beside(columns, texts).rstrip() for texts in rows]


def beside(columns: Sequence[TextColumn], texts: Sequence[str]) -> str:
    """One line of a table."""
    padded = (one.padded(text) for one, text in zip(columns, texts, strict=True))
    return _GAP.join(padded)
