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
        self._class_of = geometry.class_of
        num_classes = len(geometry.classes)
        self._empty = list(range(geometry.num_slabs - 1, -1, -1))
        self._slabs: list[dict[int, _Slab]] = [{} for _ in range(num_classes)]
        self._partial: list[dict[int, _Slab]] = [{} for _ in range(num_classes)]
        self._cells_per_slab = [c.cells_per_slab for c in geometry.classes]
        self._num_used = [0] * num_classes
        self._num_free = [0] * num_classes  # in slabs that the class owns
        self._can_give: set[int] = set()  # classes with a slab's worth of free cells

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
        class_id = self._class_of[position]
        partial = self._partial[class_id]
        if not partial:
            if not self._empty:
                return None
            self._claim_slab(class_id)
        slab = next(iter(partial.values()))
        cells, free = slab.cells, slab.free
        slot = free.pop()
        if not free:
            del partial[slab.number]
        cell = cells[slot] = Cell(position, slab.number * len(cells) + slot)
        self._num_used[class_id] += 1
        self._num_free[class_id] -= 1
        if self._can_give:
            self._note_free(class_id)
        return cell

    def free(self, cell: Cell) -> None:
        """Give a cell back; its slab becomes empty with its last cell."""
        class_id = self._class_of[cell.position]
        cells_per_slab = self._cells_per_slab[class_id]
        number, slot = divmod(cell.number, cells_per_slab)
        slab = self._slabs[class_id][number]
        if slab.cells[slot] is not cell:
            raise InvariantError(f"{cell!r} is freed but its slab does not hold it")
        slab.cells[slot] = None
        slab.free.append(slot)
        self._num_used[class_id] -= 1
        self._num_free[class_id] += 1
        if len(slab.free) == cells_per_slab:
            self._return_slab(class_id, slab)
            return
        self._partial[class_id][number] = slab
        if self._num_free[class_id] == cells_per_slab:
            self._can_give.add(class_id)

    def reclaim_slab(self, position: int) -> list[CellMove] | None:
        """Empty one slab of another size class by moving its cells together.

        A class can spare a slab exactly when it has a slab's worth of free cells. A
        full arena asks before every eviction, so that is counted, not searched for.

        Returns:
            The moves to carry out, or None when no other class can spare a slab.
        """
        wanted = self._class_of[position]
        if not self._can_give or self._can_give == {wanted}:
            return None
        choices = [
            (self._emptiest(class_id), class_id)
            for class_id, num_free in enumerate(self._num_free)
            if num_free >= self._cells_per_slab[class_id] and class_id != wanted
        ]
        classes = self.geometry.classes
        slab, class_id = min(
            choices, key=lambda c: c[0].num_used * classes[c[1]].cell_bytes
        )
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
            free = sum(len(slab.free) for slab in slabs.values())
            if free != self._num_free[class_id]:
                raise InvariantError(f"class {class_id}: {free=} is not what it counts")
            can_give = free >= self._cells_per_slab[class_id]
            if can_give != (class_id in self._can_give):
                raise InvariantError(f"class {class_id}: {can_give=} is not noted")
            if partial != self._partial[class_id].keys():
                raise InvariantError(f"class {class_id}: partial slabs are {partial}")

    def _note_free(self, class_id: int) -> None:
        """The number of a class's free cells has changed."""
        if self._num_free[class_id] >= self._cells_per_slab[class_id]:
            self._can_give.add(class_id)
        else:
            self._can_give.discard(class_id)

    def _claim_slab(self, class_id: int) -> None:
        num_cells = self._cells_per_slab[class_id]
        slab = _Slab(self._empty.pop(), num_cells)
        self._num_free[class_id] += num_cells
        self._slabs[class_id][slab.number] = slab
        self._partial[class_id][slab.number] = slab

    def _return_slab(self, class_id: int, slab: _Slab) -> None:
        """A slab has no cell any more: whoever asks next gets it."""
        del self._slabs[class_id][slab.number]
        self._partial[class_id].pop(slab.number, None)
        self._num_free[class_id] -= len(slab.cells)
        self._empty.append(slab.number)
        self._note_free(class_id)

    def _emptiest(self, class_id: int) -> _Slab:
        """The slab with fewest cells, among those with room."""
        return min(self._partial[class_id].values(), key=lambda s: s.num_used)

    def _compact(self, class_id: int, slab: _Slab) -> list[CellMove]:
        del self._partial[class_id][slab.number]  # so that nothing moves into it
        moves = []
        for cell in slab.cells:
            if cell is None:
                continue
            source = cell.number
            self._adopt(class_id, cell)
            moves.append(CellMove(cell, cell.position, source, cell.number))
        self._num_used[class_id] -= len(moves)
        self._num_free[class_id] += len(moves)
        self._return_slab(class_id, slab)
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
        self._num_free[class_id] -= 1
        self._note_free(class_id)
