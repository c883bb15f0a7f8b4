"""From block numbers to addresses, as rows of integers that a compiled loop can read.

A *side* is where one region's pages lie, on the device or in the host arena. Both are
described by the same six numbers; number x (a block id, or a host block number) has its
page at

    base + (x // per_cell // cells_per_slab) * slab_bytes
         + (x // per_cell % cells_per_slab) * cell_bytes
         + (x % per_cell) * place_bytes

Inside a host cell the regions follow each other, each with all blocks of the cell:

    cell of 3 blocks, regions a and b   [ a0 a1 a2 | b0 b1 b2 ]

so that consecutive blocks of a layer-outermost cache stay consecutive in the host.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kvcellar.device.regions import Region
from kvcellar.errors import IncompatibleError
from kvcellar.layout.groups import CacheLayout
from kvcellar.layout.host import HostGeometry
from kvcellar.transfer.jobs import Direction

Table = npt.NDArray[np.int64]

NUM_SIDE_COLUMNS = 6
_ONE_SLAB = 2**62  # a side without slabs: every number is in slab 0


@dataclass(frozen=True, slots=True)
class DirectionTables:
    """Everything static about copies in one direction.

    Attributes:
        rows: **[num_rows, 13]**: the destination's side, the source's side, and the
            bytes of a page; one row per region, group after group.
        first_row: **[num_groups + 1]** where the rows of each layout position start;
            none where this rank has no layer of the group.
        bytes_per_number: per position, bytes of one number's pages in all its rows.
        destination_bounds: per position, destination numbers are below this.
        source_bounds: the same for source numbers.
    """

    rows: Table
    first_row: tuple[int, ...]
    bytes_per_number: tuple[int, ...]
    destination_bounds: tuple[int, ...]
    source_bounds: tuple[int, ...]


def build_tables(
    layout: CacheLayout,
    geometry: HostGeometry,
    regions: Sequence[Sequence[Region]],
    *,
    num_blocks: int,
    host_address: int,
) -> dict[Direction, DirectionTables]:
    """Prepare the tables of one rank.

    Raises:
        IncompatibleError: a group's regions do not add up to its bytes per block.
    """
    for group, group_regions in zip(layout.groups, regions, strict=True):
        held = sum(region.payload_bytes for region in group_regions)
        if held != group.payload_bytes:
            raise IncompatibleError(
                f"group {group.group_id}: this rank's tensors hold {held} bytes per "
                f"block, the layout says {group.payload_bytes}; build the layout from "
                "this rank's own cache configuration"
            )
    classes = [geometry.classes[number] for number in geometry.class_of]
    num_cells = tuple(geometry.num_slabs * c.cells_per_slab for c in classes)
    num_host_blocks = tuple(
        cells * per_cell
        for cells, per_cell in zip(num_cells, geometry.blocks_per_cell, strict=True)
    )
    on_device = (num_blocks,) * len(classes)
    device = [[_device_side(r) for r in group_regions] for group_regions in regions]
    host = [
        _host_sides(geometry, position, group_regions, host_address)
        for position, group_regions in enumerate(regions)
    ]
    payloads = [[r.payload_bytes for r in group_regions] for group_regions in regions]
    # A group without layers on this rank has no rows, so jobs for it copy nothing.
    cells = [
        [_cell_side(geometry, position, host_address)] if group.payload_bytes else []
        for position, group in enumerate(layout.groups)
    ]
    cell_bytes = [
        [size_class.cell_bytes] if group.payload_bytes else []
        for size_class, group in zip(classes, layout.groups, strict=True)
    ]
    return {
        Direction.STORE: _tables(host, device, payloads, (num_host_blocks, on_device)),
        Direction.LOAD: _tables(device, host, payloads, (on_device, num_host_blocks)),
        Direction.MOVE: _tables(cells, cells, cell_bytes, (num_cells, num_cells)),
    }


_Side = tuple[int, int, int, int, int, int]


def _device_side(region: Region) -> _Side:
    return (region.base_address, 1, _ONE_SLAB, 0, region.block_stride_bytes, 0)


def _host_sides(
    geometry: HostGeometry,
    position: int,
    regions: Sequence[Region],
    host_address: int,
) -> list[_Side]:
    size_class = geometry.classes[geometry.class_of[position]]
    per_cell = geometry.blocks_per_cell[position]
    sides = []
    base = host_address
    for region in regions:
        place_bytes = region.payload_bytes
        slab = (size_class.cells_per_slab, geometry.slab_bytes, size_class.cell_bytes)
        sides.append((base, per_cell, *slab, place_bytes))
        base += per_cell * place_bytes
    return sides


def _cell_side(geometry: HostGeometry, position: int, host_address: int) -> _Side:
    """Whole cells, for moves: a cell is then a block of one region."""
    size_class = geometry.classes[geometry.class_of[position]]
    slab = (size_class.cells_per_slab, geometry.slab_bytes, size_class.cell_bytes)
    return (host_address, 1, *slab, 0)


def _tables(
    destinations: Sequence[Sequence[_Side]],
    sources: Sequence[Sequence[_Side]],
    payloads: Sequence[Sequence[int]],
    bounds: tuple[tuple[int, ...], tuple[int, ...]],
) -> DirectionTables:
    rows: list[tuple[int, ...]] = []
    first_row = [0]
    for group in zip(destinations, sources, payloads, strict=True):
        rows += [(*to, *start, size) for to, start, size in zip(*group, strict=True)]
        first_row.append(len(rows))
    table = np.array(rows, dtype=np.int64).reshape(-1, 2 * NUM_SIDE_COLUMNS + 1)
    bytes_per_number = tuple(sum(sizes) for sizes in payloads)
    return DirectionTables(table, tuple(first_row), bytes_per_number, *bounds)
