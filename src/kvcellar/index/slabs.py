"""Which cells of the arena are taken. Pure integers: the bytes are in ``tiers``.

A slab serves one size class at a time; an empty slab belongs to none. When a class
has no free cell and no slab is empty, the emptiest slab of another class is
*compacted*: its cells move into free cells of their own class and the slab changes
hands. Workers run jobs in the order they were planned, so a move may be followed at
once by jobs that use either end of it.
"""

from dataclasses import dataclass

from kvcellar.errors import InvariantError
from kvcellar.index.cells import Cell
from kvcellar.layout.host import HostGeometry


@dataclass(frozen=True, slots=True)
class CellMove:
    """One cell's bytes go to another place of the same size.

    Attributes:
        cell: the cell, which has its new number already.
        source: its old number.
        destination: its new number, unless a later move changed it again.
    """

    cell: Cell
    position: int
    source: int
    destination: int


class _Slab:
    __slots__ = ("cells", "free", "number")

    def __init__(self, number: int, num_cells: int) -> None:
        self.number = number
        self.cells: list[Cell | None] = [None] * num_cells
        self.free = list(range(num_cells - 1, -1, -1))

    @property
    def num_used(self) -> int:
        return len(self.cells) - len(self.free)


class SlabAllocator:
    """Hands out cells. Not thread-safe: the planner owns it."""

    def __init__(self, geometry: HostGeometry) -> None:
        self.geometry = geometry
        num_classes = len(geometry.classes)
        self._empty = list(range(geometry.num_slabs - 1, -1, -1))
        self._slabs: list[dict[int, _Slab]] = [{} for _ in range(num_classes)]
        self._partial: list[dict[int, _Slab]] = [{} for _ in range(num_classes)]
        self._num_used = [0] * num_classes

    @property
    def used_bytes(self) -> int:
        """Payload bytes in cells that are taken."""
        sizes = (c.cell_bytes for c in self.geometry.classes)
        return sum(n * size for n, size in zip(self._num_used, sizes, strict=True))

    @property
    def claimed_bytes(self) -> int:
        """Bytes of the slabs that hold at least one cell."""
        slabs = self.geometry.num_slabs - len(self._empty)
        return slabs * self.geometry.slab_bytes

    def num_used(self, position: int) -> int:
        """Cells taken in the size class of the group at ``position``."""
        return self._num_used[self.geometry.class_of[position]]

    def allocate(self, position: int) -> Cell | None:
        """Take a cell; None when its class has none free and no slab is empty."""
        class_id = self.geometry.class_of[position]
        partial = self._partial[class_id]
        if not partial and not self._claim_slab(class_id):
            return None
        slab = next(iter(partial.values()))
        slot = slab.free.pop()
        if not slab.free:
            del partial[slab.number]
        cell = Cell(position, slab.number * len(slab.cells) + slot)
        slab.cells[slot] = cell
        self._num_used[class_id] += 1
        return cell

    def free(self, cell: Cell) -> None:
        """Give a cell back; its slab becomes empty with its last cell."""
        class_id = self.geometry.class_of[cell.position]
        slab, slot = self._locate(class_id, cell.number)
        if slab.cells[slot] is not cell:
            raise InvariantError(f"{cell!r} is freed but its slab does not hold it")
        self._vacate(class_id, slab, slot)

    def reclaim_slab(self, position: int) -> list[CellMove] | None:
        """Empty one slab of another size class by moving its cells together.

        Returns:
            The moves to carry out, or None when no other class has enough free
            cells to take in those of its emptiest slab.
        """
        wanted = self.geometry.class_of[position]
        choices = [
            (slab.num_used * self.geometry.classes[class_id].cell_bytes, class_id, slab)
            for class_id in range(len(self._partial))
            if class_id != wanted and (slab := self._emptiest(class_id)) is not None
        ]
        if not choices:
            return None
        _, class_id, slab = min(choices, key=lambda choice: choice[0])
        return self._compact(class_id, slab)

    def check(self) -> None:
        """Verify that counts, free lists and slabs agree.

        Raises:
            InvariantError: they do not.
        """
        num_owned = sum(len(slabs) for slabs in self._slabs) + len(self._empty)
        if num_owned != self.geometry.num_slabs:
            raise InvariantError(f"{num_owned} slabs are owned, not {self.geometry}")
        for class_id, slabs in enumerate(self._slabs):
            used = sum(slab.num_used for slab in slabs.values())
            held = sum(c is not None for s in slabs.values() for c in s.cells)
            partial = {n for n, slab in slabs.items() if slab.free}
            if not used == held == self._num_used[class_id]:
                raise InvariantError(f"class {class_id}: {used=} but {held=}")
            if partial != self._partial[class_id].keys():
                raise InvariantError(f"class {class_id}: partial slabs are {partial}")

    def _claim_slab(self, class_id: int) -> bool:
        if not self._empty:
            return False
        num_cells = self.geometry.classes[class_id].cells_per_slab
        slab = _Slab(self._empty.pop(), num_cells)
        self._slabs[class_id][slab.number] = slab
        self._partial[class_id][slab.number] = slab
        return True

    def _locate(self, class_id: int, number: int) -> tuple[_Slab, int]:
        cells_per_slab = self.geometry.classes[class_id].cells_per_slab
        slab_number, slot = divmod(number, cells_per_slab)
        return self._slabs[class_id][slab_number], slot

    def _vacate(self, class_id: int, slab: _Slab, slot: int) -> None:
        slab.cells[slot] = None
        slab.free.append(slot)
        self._num_used[class_id] -= 1
        if len(slab.free) == len(slab.cells):
            del self._slabs[class_id][slab.number]
            self._partial[class_id].pop(slab.number, None)
            self._empty.append(slab.number)
        else:
            self._partial[class_id][slab.number] = slab

    def _emptiest(self, class_id: int) -> _Slab | None:
        """The slab with fewest cells, if its class has room for them elsewhere.

        A class has that room exactly when it has a slab's worth of free cells: a full
        arena asks before every eviction, so this comes without a pass over the slabs.
        """
        cells_per_slab = self.geometry.classes[class_id].cells_per_slab
        num_cells = len(self._slabs[class_id]) * cells_per_slab
        if num_cells - self._num_used[class_id] < cells_per_slab:
            return None
        return min(self._partial[class_id].values(), key=lambda s: s.num_used)

    def _compact(self, class_id: int, slab: _Slab) -> list[CellMove]:
        del self._partial[class_id][slab.number]  # so that nothing moves into it
        moves = []
        for slot, cell in enumerate(slab.cells):
            if cell is None:
                continue
            source = cell.number
            self._adopt(class_id, cell)
            moves.append(CellMove(cell, cell.position, source, cell.number))
            self._vacate(class_id, slab, slot)
            self._partial[class_id].pop(slab.number, None)
        return moves

    def _adopt(self, class_id: int, cell: Cell) -> None:
        """Put a cell that leaves its slab into a partial one of its class."""
        partial = self._partial[class_id]
        slab = next(iter(partial.values()))
        slot = slab.free.pop()
        if not slab.free:
            del partial[slab.number]
        slab.cells[slot] = cell
        cell.number = slab.number * len(slab.cells) + slot
        self._num_used[class_id] += 1
