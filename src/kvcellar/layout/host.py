"""How host memory is cut: slabs, size classes, and the address of every cell.

    [ slab 0 | slab 1 | ... ]        one mapping, equal slabs
    [ cell | cell | ... | waste ]    a slab serves one cell size at a time

A cell is named by its number within its size class: ``slab * cells_per_slab +
slot``. Ranks whose cells differ in bytes so share one numbering.
"""

from dataclasses import dataclass

from kvcellar.errors import ConfigError
from kvcellar.layout.groups import CacheLayout

MAX_SLAB_WASTE = 0.005  # share of a slab that no cell covers
MIN_SLABS_PER_CLASS = 4  # fewer, and a class can starve the others
MIN_CELLS_PER_SLAB = 16  # of the largest; fewer, and book-keeping grows for nothing


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
    """Cut ``host_bytes`` (one rank's share) for the groups of ``layout``.

    Raises:
        ConfigError: the memory cannot hold one slab per size class.
    """
    sizes = sorted({layout.cell_bytes(i) for i in range(len(layout.groups))})
    slab_bytes = _slab_bytes(sizes, host_bytes)
    num_slabs = host_bytes // slab_bytes
    if num_slabs < len(sizes):
        needed = max(sizes) * len(sizes)
        raise ConfigError(
            f"host memory of {host_bytes} bytes per rank is too small: this model "
            f"needs at least {needed} bytes for one cell of each of its "
            f"{len(sizes)} sizes; raise host_memory"
        )
    class_of = tuple(
        sizes.index(layout.cell_bytes(i)) for i in range(len(layout.groups))
    )
    classes = tuple(
        SizeClass(
            cell_bytes=size,
            cells_per_slab=slab_bytes // size,
            positions=tuple(i for i, c in enumerate(class_of) if sizes[c] == size),
        )
        for size in sizes
    )
    blocks = tuple(layout.blocks_per_cell(i) for i in range(len(layout.groups)))
    return HostGeometry(slab_bytes, num_slabs, classes, class_of, blocks)


def _slab_bytes(sizes: list[int], host_bytes: int) -> int:
    """Bytes of a slab: a multiple of the largest cell that wastes little everywhere.

    A slab of m largest cells wastes less than 1/m of itself in every class, so the
    search ends at ``1 / MAX_SLAB_WASTE``. An arena with room for that many has a cut
    that no longer depends on its size, and more memory never means fewer cells. In
    smaller ones, ``MIN_SLABS_PER_CLASS`` comes first and the least waste second.
    """
    largest = sizes[-1]
    limit = host_bytes // (MIN_SLABS_PER_CLASS * len(sizes)) // largest

    def waste(multiple: int) -> float:
        slab = multiple * largest
        return max(slab % size for size in sizes) / slab

    enough = range(MIN_CELLS_PER_SLAB, limit + 1)
    good = next((m for m in enough if waste(m) <= MAX_SLAB_WASTE), None)
    return largest * (good or min(range(1, max(limit, 1) + 1), key=waste))
