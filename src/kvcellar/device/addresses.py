"""From block numbers to addresses; the one place that knows the inside of a cell.

    cell of 3 blocks, regions a and b   [ a0 a1 a2 | b0 b1 b2 ]

Region-major, so that consecutive blocks of a layer-outermost device cache stay
consecutive in the host, and a region is one run.
"""

from dataclasses import dataclass

import numpy as np

from kvcellar.device.regions import Region
from kvcellar.device.runs import Addresses, Runs
from kvcellar.errors import IncompatibleError, InvariantError
from kvcellar.layout.groups import CacheLayout
from kvcellar.layout.host import HostGeometry
from kvcellar.transfer.jobs import BlockNumbers, Direction, GroupCopy


@dataclass(frozen=True, slots=True)
class GroupAddresses:
    """Address arithmetic of one group on one rank.

    Attributes:
        position: the group's position in the layout.
        num_blocks: device block ids are below this.
        num_cells: host cell numbers are below this.
        bases: **[num_regions, 1]** address of block 0 of each region.
        strides: **[num_regions, 1]** from block to block.
        payloads: **[num_regions, 1]** bytes per block.
        cell_offsets: **[num_regions, 1]** where each region starts in a cell.
    """

    position: int
    num_blocks: int
    num_cells: int
    host_address: int
    geometry: HostGeometry
    bases: Addresses
    strides: Addresses
    payloads: Addresses
    cell_offsets: Addresses

    def runs(self, copy: GroupCopy, direction: Direction) -> Runs:
        """Addresses of one group's part of a job, region by region.

        Raises:
            InvariantError: a block or cell is out of range, or the two lists differ
                in length.
        """
        if len(copy.device_blocks) != len(copy.host_blocks):
            raise InvariantError(
                f"group {self.position}: {len(copy.device_blocks)} blocks are paired "
                f"with {len(copy.host_blocks)}"
            )
        if direction is Direction.MOVE:
            return self._runs_of_move(copy)
        device = self._device_addresses(copy.device_blocks)
        host = self._host_addresses(copy.host_blocks)
        lengths = np.broadcast_to(self.payloads, device.shape).ravel()
        if direction is Direction.STORE:
            return Runs(host.ravel(), device.ravel(), lengths)
        return Runs(device.ravel(), host.ravel(), lengths)

    def _runs_of_move(self, copy: GroupCopy) -> Runs:
        sources = self._cell_addresses(copy.device_blocks)
        destinations = self._cell_addresses(copy.host_blocks)
        size_class = self.geometry.classes[self.geometry.class_of[self.position]]
        return Runs(
            destinations,
            sources,
            np.full(len(sources), size_class.cell_bytes, np.int64),
        )

    def _device_addresses(self, block_ids: BlockNumbers) -> Addresses:
        self._check_range(block_ids, self.num_blocks, "device block")
        addresses: Addresses = self.bases + self.strides * block_ids
        return addresses

    def _host_addresses(self, host_blocks: BlockNumbers) -> Addresses:
        per_cell = self.geometry.blocks_per_cell[self.position]
        cells, places = np.divmod(host_blocks, per_cell)
        starts = self._cell_addresses(cells)
        addresses: Addresses = starts + self.cell_offsets + self.payloads * places
        return addresses

    def _cell_addresses(self, cells: BlockNumbers) -> Addresses:
        """The same as ``HostGeometry.cell_offset``, for many cells at once."""
        self._check_range(cells, self.num_cells, "host cell")
        geometry = self.geometry
        size_class = geometry.classes[geometry.class_of[self.position]]
        slabs, slots = np.divmod(cells, size_class.cells_per_slab)
        offsets = slabs * geometry.slab_bytes + slots * size_class.cell_bytes
        addresses: Addresses = self.host_address + offsets
        return addresses

    def _check_range(self, numbers: BlockNumbers, bound: int, what: str) -> None:
        if len(numbers) and not 0 <= numbers.min() <= numbers.max() < bound:
            raise InvariantError(
                f"group {self.position}: {what} {numbers.min()} to {numbers.max()} "
                f"asked for, but there are {bound}"
            )


def group_addresses(
    position: int,
    layout: CacheLayout,
    geometry: HostGeometry,
    regions: tuple[Region, ...],
    *,
    num_blocks: int,
    host_address: int,
) -> GroupAddresses:
    """Prepare the arithmetic of the group at ``position``.

    Raises:
        IncompatibleError: the regions do not add up to the group's bytes per block.
    """
    payloads = np.array([region.payload_bytes for region in regions], dtype=np.int64)
    expected = layout.groups[position].payload_bytes
    if payloads.sum() != expected:
        raise IncompatibleError(
            f"group {layout.groups[position].group_id}: this rank's tensors hold "
            f"{payloads.sum()} bytes per block, the layout says {expected}; build the "
            "layout from this rank's own cache configuration"
        )
    size_class = geometry.classes[geometry.class_of[position]]
    starts = np.cumsum(payloads) - payloads
    return GroupAddresses(
        position=position,
        num_blocks=num_blocks,
        num_cells=geometry.num_slabs * size_class.cells_per_slab,
        host_address=host_address,
        geometry=geometry,
        bases=_column([region.base_address for region in regions]),
        strides=_column([region.block_stride_bytes for region in regions]),
        payloads=payloads[:, None],
        cell_offsets=(starts * geometry.blocks_per_cell[position])[:, None],
    )


def _column(values: list[int]) -> Addresses:
    return np.array(values, dtype=np.int64)[:, None]
