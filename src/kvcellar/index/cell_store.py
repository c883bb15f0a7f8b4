"""Cells by reference: shared between checkpoints, given back with the last holder."""

from collections.abc import Hashable, Iterable
from typing import TYPE_CHECKING

from kvcellar.index.cells import Cell
from kvcellar.index.slabs import CellMove, SlabAllocator

if TYPE_CHECKING:
    from kvcellar.index.announcements import Announcements
    from kvcellar.index.tenants import Tenant


class CellStore:
    """Counts references over a ``SlabAllocator`` and collects its compactions.

    Attributes:
        shared: checkpoint cells by what other checkpoints find them by.
        announcements: where comings and goings are noted; None if nobody follows.
        payers: tenants that are bounded, by the cells that were taken for them.
    """

    def __init__(self, slabs: SlabAllocator) -> None:
        self.slabs = slabs
        self.shared: dict[Hashable, Cell] = {}
        self.announcements: Announcements | None = None
        self.payers: dict[Cell, Tenant] = {}
        self._moves: list[list[CellMove]] = []

    def take(self, position: int) -> Cell | None:
        """A cell with one reference, compacting if that makes room; None if full."""
        while (cell := self.slabs.allocate(position)) is None:
            moves = self.slabs.reclaim_slab(position)
            if moves is None:
                return None
            self._moves.append(moves)
        return cell

    def cell_bytes(self, position: int) -> int:
        """Payload bytes of one cell of the group at ``position``."""
        geometry = self.slabs.geometry
        return geometry.classes[geometry.class_of[position]].cell_bytes

    def share(self, key: Hashable, cell: Cell) -> None:
        """Let other checkpoints that need the same block find ``cell``."""
        cell.share_key = key
        self.shared[key] = cell

    def find(self, key: Hashable) -> Cell | None:
        """Another reference to the cell shared under ``key``, if its bytes are good."""
        cell = self.shared.get(key)
        if cell is None or cell.is_lost:
            return None
        cell.refs += 1
        return cell

    def find_all(self, keys: Iterable[Hashable]) -> list[Cell] | None:
        """Another reference to each cell, if the bytes of all are there already."""
        found = []
        for key in keys:
            cell = self.shared.get(key)
            if cell is None or cell.is_lost or not cell.has_landed:
                return None
            found.append(cell)
        for cell in found:
            cell.refs += 1
        return found

    def release(self, cells: Iterable[Cell]) -> None:
        """Drop one reference of each cell; the last one gives it back."""
        for cell in cells:
            cell.refs -= 1
            if cell.refs == 0:
                key = cell.share_key
                if key is not None and self.shared.get(key) is cell:
                    del self.shared[key]
                if cell.is_announced and self.announcements is not None:
                    self.announcements.removed(cell)
                if self.payers and (tenant := self.payers.pop(cell, None)):
                    tenant.used_bytes -= self.cell_bytes(cell.position)
                self.slabs.free(cell)

    def take_moves(self) -> list[list[CellMove]]:
        """Compactions to carry out in order, before any job planned after them.

        Within one compaction no move touches another's cells; between two they may.
        """
        moves, self._moves = self._moves, []
        return moves
