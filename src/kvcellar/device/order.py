"""Which earlier jobs a job must come after: the newest that share memory with it.

The planner counts on jobs being carried out in the order it planned them: a cell that
one job frees may be filled by the next, and a move may be followed at once by jobs that
use either end of it. Stores and loads run on streams of their own, side by side. So a
job is made to wait for the newest job of the *other* kind that uses one of its blocks
or cells; jobs of one kind follow each other anyway. What can be observed is then the
planned order, and jobs that share nothing do overlap.

A cell is numbered within its size class, and a slab may change its class: then the same
bytes have another number. Jobs in the new class come after all that used any part of
the slab before the change.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from kvcellar.layout.host import HostGeometry
from kvcellar.transfer.jobs import BlockNumbers, CopyJob, Direction

LANES = (Direction.STORE, Direction.LOAD)

Numbers = npt.NDArray[np.int64]


class _Cells(NamedTuple):
    """Cells of one size class that a job uses, and their slabs."""

    size_class: int
    cells: Numbers
    slabs: Numbers


class JobOrder:
    """Remembers who used each block and cell last. Used by one thread.

    Jobs are numbered from 1 as they are added; 0 stands for none.

    Args:
        geometry: the cut of this rank's arena.
        num_blocks: blocks in the device cache.
    """

    def __init__(self, geometry: HostGeometry, num_blocks: int) -> None:
        self._geometry = geometry
        self._num_jobs = 0
        self._slab_class: Numbers = np.full(geometry.num_slabs, -1, dtype=np.int64)
        self._blocks = {lane: _none(num_blocks) for lane in LANES}
        self._slabs = {lane: _none(geometry.num_slabs) for lane in LANES}
        self._before_change = {lane: _none(geometry.num_slabs) for lane in LANES}
        self._cells = {
            lane: [
                _none(geometry.num_slabs * size_class.cells_per_slab)
                for size_class in geometry.classes
            ]
            for lane in LANES
        }

    def predecessors(self, job: CopyJob) -> dict[Direction, int]:
        """The newest job of each other lane that shares memory with ``job``."""
        lanes = [lane for lane in LANES if lane is not job.direction]
        used = list(self._used_cells(job))
        newest = {lane: self._newest(lane, used) for lane in lanes}
        if job.direction is not Direction.MOVE:
            for lane in lanes:
                blocks = [
                    _newest(self._blocks[lane], c.device_blocks) for c in job.copies
                ]
                newest[lane] = max([newest[lane], *blocks])
        return {lane: number for lane, number in newest.items() if number}

    def add(self, job: CopyJob) -> int:
        """Count a job as queued now; its number, or 0 for a move, which is over."""
        used = list(self._used_cells(job))
        for size_class, _, slabs in used:
            changed = slabs[self._slab_class[slabs] != size_class]
            for lane in LANES:
                self._before_change[lane][changed] = self._slabs[lane][changed]
            self._slab_class[changed] = size_class
        if job.direction is Direction.MOVE:
            return 0
        self._num_jobs += 1
        number, lane = self._num_jobs, job.direction
        for copy in job.copies:
            self._blocks[lane][copy.device_blocks] = number
        for size_class, cells, slabs in used:
            self._cells[lane][size_class][cells] = number
            self._slabs[lane][slabs] = number
        return number

    def _newest(self, lane: Direction, used: Sequence[_Cells]) -> int:
        newest = 0
        for size_class, cells, slabs in used:
            is_renumbered = self._slab_class[slabs] != size_class
            newest = max(
                newest,
                _newest(self._cells[lane][size_class], cells),
                _newest(self._before_change[lane], slabs),
                _newest(self._slabs[lane], slabs[is_renumbered]),
            )
        return newest

    def _used_cells(self, job: CopyJob) -> Iterator[_Cells]:
        for copy in job.copies:
            size_class = self._geometry.class_of[copy.position]
            sides = [copy.host_blocks]
            per_cell = self._geometry.blocks_per_cell[copy.position]
            if job.direction is Direction.MOVE:  # then the numbers are cells
                sides, per_cell = [copy.host_blocks, copy.device_blocks], 1
            per_slab = self._geometry.classes[size_class].cells_per_slab
            for numbers in sides:
                cells = numbers // per_cell
                yield _Cells(size_class, cells, cells // per_slab)


def _none(count: int) -> Numbers:
    return np.zeros(count, dtype=np.int64)


def _newest(table: Numbers, numbers: BlockNumbers | Numbers) -> int:
    return int(table[numbers].max(initial=0))
