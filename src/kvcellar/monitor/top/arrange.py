"""Which panel goes where, for any size of a terminal.

wide (150 cells)               usual (72)               narrow
+------------------+--------+  +--------------------+   one below the other,
| sources          | memory |  | sources            |   as many as fit
|                  +--------+  +----------+---------+
|                  | copies |  | memory   | copies  |
+-------------+----+--------+  +----------+---------+
| misses      | prefixes    |  | misses   |prefixes |
+-------------+-------------+  +----------+---------+
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

WIDE, USUAL = 150, 72


class Place(NamedTuple):
    """A panel with the cells and lines that it gets, its frame included."""

    name: str
    width: int
    height: int


Column = tuple[Place, ...]
Row = tuple[Column, ...]


@dataclass(frozen=True, slots=True)
class _Wish:
    """A row before its height is known: least and most lines, with their frames."""

    columns: tuple[tuple[str, ...], ...]
    least: int
    most: int
    weights: tuple[int, ...] = ()


_SOURCES = _Wish((("sources",),), 6, 16)
_MEMORY = _Wish((("memory",),), 6, 9)
_COPIES = _Wish((("copies",),), 6, 9)
_MISSES = _Wish((("misses",),), 4, 14)
_PREFIXES = _Wish((("prefixes",),), 4, 14)
_USUAL = (
    _SOURCES,
    _Wish((("memory",), ("copies",)), 7, 9),
    _Wish((("misses",), ("prefixes",)), 5, 24),
)
_WIDE = (
    _Wish((("sources",), ("memory", "copies")), 13, 22, (2, 1)),
    _Wish((("misses",), ("prefixes",)), 5, 30),
)
_NARROW = (_SOURCES, _MEMORY, _MISSES, _COPIES, _PREFIXES)
_ENGINES_LEAST, _ENGINES_FRAME = 5, 3


def arrange(width: int, height: int, num_engines: int) -> list[Row]:
    """Rows of panels within ``height`` lines, the most telling first.

    Args:
        width: cells.
        height: lines.
        num_engines: a panel lists them if there are several and there is room.
    """
    wishes = _wishes(width, height, num_engines)
    heights = _heights(wishes, height)
    return [
        _row(wish, width, lines) for wish, lines in zip(wishes, heights, strict=False)
    ]


def chart_width(width: int) -> int:
    """Cells of the panel that shows sources over time, in a terminal of that width."""
    wish = _wishes(width, 0, 1)[0]
    return _widths(wish, width)[0]


def _wishes(width: int, height: int, num_engines: int) -> list[_Wish]:
    wishes = list(_WIDE if width >= WIDE else _USUAL if width >= USUAL else _NARROW)
    least = sum(wish.least for wish in wishes)
    if num_engines > 1 and height >= least + _ENGINES_LEAST:
        most = num_engines + _ENGINES_FRAME
        wishes.insert(1, _Wish((("engines",),), _ENGINES_LEAST, most))
    return wishes


def _heights(wishes: Sequence[_Wish], height: int) -> list[int]:
    """Lines of each row that fits at all; what is left goes round, line by line."""
    heights: list[int] = []
    for wish in wishes:
        if sum(heights) + wish.least > height:
            break
        heights.append(wish.least)
    spare, at = height - sum(heights), 0
    while spare and any(h < w.most for h, w in zip(heights, wishes, strict=False)):
        if heights[at] < wishes[at].most:
            heights[at] += 1
            spare -= 1
        at = (at + 1) % len(heights)
    return heights


def _row(wish: _Wish, width: int, height: int) -> Row:
    return tuple(
        _column(names, column_width, height)
        for names, column_width in zip(wish.columns, _widths(wish, width), strict=True)
    )


def _column(names: Sequence[str], width: int, height: int) -> Column:
    """Panels one below the other in equal parts, the first with what is left over."""
    part, rest = divmod(height, len(names))
    return tuple(
        Place(name, width, part + (rest if at == 0 else 0))
        for at, name in enumerate(names)
    )


def _widths(wish: _Wish, width: int) -> list[int]:
    weights = wish.weights or (1,) * len(wish.columns)
    ends = [
        round(width * sum(weights[: at + 1]) / sum(weights))
        for at in range(len(weights))
    ]
    return [end - begin for begin, end in zip([0, *ends], ends, strict=False)]
