"""Which cells became loadable and which left, in order, for those who follow.

A cell is told of when the first thing that needs it can be loaded, and taken back when
it is given back. So whatever is taken back was told of before. Nothing of this exists
unless somebody follows.

A step may make thousands of cells loadable, so there is no object for each: a cell
carries what is told of it, and changes are lists of cells.
"""

from collections.abc import Iterable
from typing import NamedTuple

from kvcellar.index.cells import Cell


class Changes(NamedTuple):
    """Cells that became loadable, and then cells that left."""

    stored: list[Cell]
    removed: list[Cell]


class Announcements:
    """Collects changes until they are taken."""

    def __init__(self) -> None:
        self._ended: list[Changes] = []
        self._stored: list[Cell] = []
        self._removed: list[Cell] = []  # since the last one that was stored

    def stored(self, cells: Iterable[Cell]) -> None:
        """These cells can be loaded from now on; some may have been told of."""
        new = [c for c in cells if not c.is_announced and c.notice is not None]
        if not new:
            return
        if self._removed:
            self._end()
        for cell in new:
            cell.is_announced = True
        self._stored += new

    def removed(self, cell: Cell) -> None:
        """This cell, which was told of, has been given back."""
        self._removed.append(cell)

    def take(self) -> list[Changes]:
        """What has changed since the last call, in order."""
        if self._stored or self._removed:
            self._end()
        ended, self._ended = self._ended, []
        return ended

    def _end(self) -> None:
        self._ended.append(Changes(self._stored, self._removed))
        self._stored, self._removed = [], []
