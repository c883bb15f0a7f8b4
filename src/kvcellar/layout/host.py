"""How host memory is cut: slabs, size classes, and the address of every cell.

    [ slab 0 | slab 1 | ... ]        one mapping, equal slabs
    [ cell | cell | ... | waste ]    a slab serves one cell size at a time

A cell is named by its number within its size class: ``slab * cells_per_slab +
slot``. Ranks whose cells differ in bytes so share one numbering.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from kvcellar.config import HostBudget
from kvcellar.errors import IncompatibleError
from kvcellar.layout.cut import Cut, choose_cut
from kvcellar.layout.groups import CacheLayout, GroupLayout


@dataclass(frozen=True, slots=True)
class SizeClass:
    """Cells of one size.

    Attributes:
        cell_bytes: payload bytes of one cell.
        cells_per_slab: cells that fit into one slab.
        positions: layout positions of the groups that use this size.
    """

    cell_bytes: int
    cells_per_slab: int
    positions: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class HostGeometry:
    """The cut of one rank's arena.

    Attributes:
        class_of: size class of the group at each layout position.
        blocks_per_cell: blocks in one cell of the group at each position.
    """

    slab_bytes: int
    num_slabs: int
    classes: tuple[SizeClass, ...]
    class_of: tuple[int, ...]
    blocks_per_cell: tuple[int, ...]

    @property
    def arena_bytes(self) -> int:
        """Bytes of the whole mapping; never more than was asked for."""
        return self.slab_bytes * self.num_slabs

    def cell_offset(self, position: int, cell: int) -> int:
        """Byte offset in the arena of a cell of the group at ``position``."""
        size_class = self.classes[self.class_of[position]]
        slab, slot = divmod(cell, size_class.cells_per_slab)
        return slab * self.slab_bytes + slot * size_class.cell_bytes


def plan_geometry(layout: CacheLayout, host_bytes: int) -> HostGeometry:
    """Cut ``host_bytes`` for the groups of ``layout``, held by one rank alone.

    Several ranks, whose bytes may differ, are cut by ``layout.ranks``.

    Raises:
        ConfigError: the memory cannot hold one slab per size class.
        IncompatibleError: a group holds no bytes.
    """
    for group in layout.groups:
        refuse_empty(group, num_ranks=1)
    sizes = sorted({layout.cell_bytes(i) for i in range(len(layout.groups))})
    budget = HostBudget(host_bytes, is_per_rank=True)
    cut = choose_cut([(size,) for size in sizes], budget)
    class_of = tuple(
        sizes.index(layout.cell_bytes(i)) for i in range(len(layout.groups))
    )
    return make_geometry(layout, cut, 0, class_of)


def refuse_empty(group: GroupLayout, num_ranks: int) -> None:
    """Refuse a group of which no rank holds anything.

    Args:
        group: with the bytes of so many ranks together.

    Raises:
        IncompatibleError: it holds no bytes.
    """
    if not group.payload_bytes:
        raise IncompatibleError(
            f"group {group.group_id} holds no bytes on any of {num_ranks} rank(s), so "
            "there is nothing of it to keep; serve this model without kvcellar"
        )


def make_geometry(
    layout: CacheLayout, cut: Cut, rank: int, class_of: Sequence[int]
) -> HostGeometry:
    """One rank's part of a cut.

    Args:
        layout: with the rank's bytes.
        class_of: size class of the group at each layout position.
    """
    positions = range(len(layout.groups))
    members = [
        tuple(p for p in positions if class_of[p] == number)
        for number in range(len(cut.cells_per_slab))
    ]
    classes = tuple(
        SizeClass(layout.cell_bytes(group[0]), num_cells, group)
        for num_cells, group in zip(cut.cells_per_slab, members, strict=True)
    )
    blocks = tuple(layout.blocks_per_cell(p) for p in positions)
    return HostGeometry(
        cut.slab_bytes[rank], cut.num_slabs, classes, tuple(class_of), blocks
    )
