"""Which cells became loadable and which left, in order, for those who follow.

A cell is told of when the first thing that needs it can be loaded, and taken back when
it is given back. So whatever is taken back was told of before. Nothing of this exists
unless somebody follows.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from kvcellar.index.cells import Cell


@dataclass(slots=True, eq=False)
class Notice:
    """What followers are told of one cell.

    Attributes:
        content: what the engine's side made of it; nobody here looks inside.
        is_announced: whether they have been told.
    """

    content: object
    is_announced: bool = False


class Change(NamedTuple):
    """A cell became loadable, or left.

    Attributes:
        content: of its notice.
    """

    is_stored: bool
    content: object


class Announcements:
    """Collects changes until they are taken.

    Attributes:
        notices: by cell, of all that are held.
    """

    def __init__(self) -> None:
        self.notices: dict[Cell, Notice] = {}
        self._changes: list[Change] = []

    def stored(self, cells: Iterable[Cell]) -> None:
        """These cells can be loaded from now on; some may have been told of."""
        for cell in cells:
            notice = self.notices.get(cell)
            if notice is not None and not notice.is_announced:
                notice.is_announced = True
                self._changes.append(Change(is_stored=True, content=notice.content))

    def removed(self, cell: Cell) -> None:
        """This cell has been given back."""
        notice = self.notices.pop(cell, None)
        if notice is not None and notice.is_announced:
            self._changes.append(Change(is_stored=False, content=notice.content))

    def take(self) -> list[Change]:
        """What has changed since the last call, in order."""
        changes, self._changes = self._changes, []
        return changes
