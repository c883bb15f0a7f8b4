"""The device when the model runs on the CPU: both sides are plain memory."""

from collections.abc import Sequence

import numpy as np

from kvcellar.device.kernel import Kernel, Numbers, best_kernel
from kvcellar.device.numbers import (
    bounds_of,
    out_of_range,
    paired_numbers,
    refuse_overlap,
)
from kvcellar.device.pages import DirectionTables, build_tables
from kvcellar.device.regions import Region
from kvcellar.errors import ClosedError
from kvcellar.layout.groups import CacheLayout
from kvcellar.layout.host import HostGeometry
from kvcellar.transfer.jobs import CopyJob, Direction, GroupCopy


class CpuDevice:
    """Copies by address, in one call per job that holds no interpreter lock.

    Whoever makes it keeps the engine's tensors and the host memory alive until
    ``close``. A forward pass on the CPU is over when its Python call returns, so there
    is nothing to fence.

    Args:
        layout: this rank's cache layout.
        geometry: the cut of this rank's arena.
        regions: for each layout position, from ``regions_from_tensors``.
        num_blocks: blocks in the device cache.
        host_address: address of the arena.
        kernel: how pages are moved; None takes the best there is.

    Raises:
        IncompatibleError: regions and layout disagree about a group's bytes.
    """

    def __init__(
        self,
        layout: CacheLayout,
        geometry: HostGeometry,
        regions: Sequence[Sequence[Region]],
        *,
        num_blocks: int,
        host_address: int,
        kernel: Kernel | None = None,
    ) -> None:
        self._tables = build_tables(
            layout, geometry, regions, num_blocks=num_blocks, host_address=host_address
        )
        self._class_of = geometry.class_of
        self._kernel = kernel or best_kernel()
        self._is_closed = False

    def fence(self) -> None:
        """Nothing is queued on a CPU."""

    def copy(self, job: CopyJob, fence: object = None) -> int:
        """Copy all of ``job`` or, if anything in it is out of range, nothing.

        Raises:
            InvariantError: a block or cell is out of range, lists are of unequal
                length, or a move overwrites what it reads.
            ClosedError: after ``close``.
        """
        del fence
        if self._is_closed:
            raise ClosedError(f"job {job.job_id} came after the device was closed")
        tables = self._tables[job.direction]
        if job.direction is Direction.MOVE:
            refuse_overlap(job, self._class_of)
        total = sum(len(copy.host_blocks) for copy in job.copies)
        destinations, sources = np.empty((2, total), dtype=np.int64)
        spans = np.empty((len(job.copies), 4), dtype=np.int64)
        num_bytes = at = 0
        for index, copy in enumerate(job.copies):
            self._append(tables, copy, job.direction, (destinations, sources), at)
            end = at + len(copy.host_blocks)
            rows = tables.first_row[copy.position : copy.position + 2]
            spans[index] = (*rows, at, end)
            num_bytes += (end - at) * tables.bytes_per_number[copy.position]
            at = end
        self._kernel.copy_pages(tables.rows, spans, destinations, sources)
        return num_bytes

    def close(self) -> None:
        """Refuse further copies."""
        self._is_closed = True

    def _append(
        self,
        tables: DirectionTables,
        copy: GroupCopy,
        direction: Direction,
        targets: tuple[Numbers, Numbers],
        at: int,
    ) -> None:
        """Check one group's numbers and put them into the job's."""
        pairs = paired_numbers(copy, direction)
        bounds = bounds_of(tables, copy.position)
        for numbers, bound, target in zip(pairs, bounds, targets, strict=True):
            if not self._kernel.append(numbers, bound, target, at):
                raise out_of_range(copy, direction, numbers, bound)
